"""The messages between a worker and the hub as structs, and how an error of the hub becomes one of them.

Payloads stay raw bytes: the hub decodes them only where it needs a value.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias, Union

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from waypost.errors import (
    DeadlineExceeded,
    InsufficientScope,
    InvocationFailed,
    PolicyDenied,
    ProtocolError,
    UnknownTool,
    WaypostError,
    shorten,
)
from waypost.redaction import redacted

NULL: Final = Raw(b"null")
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""The bytes of the longest message."""

Given: TypeAlias = Raw | UnsetType
Text: TypeAlias = str | None


class Failure(Struct, omit_defaults=True):
    """Why something did not work."""

    code: str = "UNKNOWN"
    message: str = ""
    stacktrace: Text = None


class WorkerRegistered(Struct, tag="workerregistered", omit_defaults=True):
    """The hub's first message: who the worker is to it, and what the hub can do."""

    worker_id: str
    reattach_token: Text = None
    features: list[str] | None = None


class Reattach(Struct, tag="reattach"):
    """A worker that was connected before says so."""

    previous_worker_id: str
    reattach_token: Text = None


class Observable(Struct, omit_defaults=True):
    """How a function may be observed."""

    delivery: Text = None
    args_format: Any = None
    legacy_trigger_type: Text = None
    allow: bool | None = None


class Outside(Struct, omit_defaults=True):
    """Where a function is to be called over HTTP."""

    url: str
    method: Text = None
    timeout_ms: int | None = None
    headers: dict[str, str] | None = None
    auth: dict[str, Any] | None = None


class RegisterFunction(Struct, tag="registerfunction", omit_defaults=True):
    """A worker offers a function."""

    id: str
    description: Text = None
    request_format: Any = None
    response_format: Any = None
    metadata: Any = None
    invocation: Outside | None = None
    observe: Observable | None = None


class UnregisterFunction(Struct, tag="unregisterfunction"):
    """A worker takes a function back."""

    id: str


class Action(Struct, omit_defaults=True):
    """What becomes of the answer of a call: nobody waits for it, or it is made later from a queue."""

    type: str
    queue: Text = None


class Origin(Struct, omit_defaults=True):
    """Who made a call, as far as it is known."""

    worker_id: Text = None
    worker_name: Text = None
    function_id: Text = None
    invocation_id: Text = None
    parent: Any = None


class Activation(Struct, omit_defaults=True):
    """For which observer a call is made."""

    observer_id: str
    activation_id: Text = None


class InvokeFunction(Struct, tag="invokefunction", omit_defaults=True):
    """A call of a function."""

    function_id: str
    data: Given = UNSET
    invocation_id: Text = None
    metadata: Given = UNSET
    traceparent: Text = None
    baggage: Text = None
    action: Action | None = None
    namespace: Text = None
    caller: Origin | None = None
    observe_depth: int | None = None
    activation: Activation | None = None


class InvocationResult(Struct, tag="invocationresult", omit_defaults=True):
    """The end of a call: a result or an error."""

    invocation_id: Text = None
    function_id: Text = None
    result: Given = UNSET
    error: Given = UNSET
    traceparent: Text = None
    baggage: Text = None


class RegisterTriggerType(Struct, tag="registertriggertype", omit_defaults=True):
    """A worker offers a kind of trigger."""

    id: str
    description: Text = None
    trigger_request_format: Any = None
    call_request_format: Any = None
    namespace: Text = None


class UnregisterTriggerType(Struct, tag="unregistertriggertype"):
    """A worker takes a kind of trigger back."""

    id: str
    namespace: Text = None


class RegisterTrigger(Struct, tag="registertrigger", omit_defaults=True):
    """A function is to be called when something happens."""

    id: str
    trigger_type: str
    function_id: str
    config: Given = UNSET
    metadata: Given = UNSET
    namespace: Text = None
    trigger_namespace: Text = None


class UnregisterTrigger(Struct, tag="unregistertrigger", omit_defaults=True):
    """A function is not to be called any more."""

    id: str
    trigger_type: Text = None


class TriggerRegistrationResult(Struct, tag="triggerregistrationresult", omit_defaults=True):
    """What the provider of a kind of trigger says to a binding."""

    id: str
    trigger_type: Text = None
    function_id: Text = None
    error: Given = UNSET


class RegistrationRejected(Struct, tag="registrationrejected", omit_defaults=True):
    """The hub does not take a registration."""

    code: str
    namespace: str
    owner_worker_id: str
    worker_name: Text = None
    function_id: Text = None


class RegisterService(Struct, tag="registerservice"):
    """What old workers say of a group of functions; it has no effect."""

    id: str


class Ping(Struct, tag="ping"):
    """Is anybody there?"""


class Pong(Struct, tag="pong"):
    """Somebody is there."""


class ObserveSource(Struct, omit_defaults=True):
    """What is observed."""

    function_id: str
    namespace: Text = None
    args: dict[str, Any] | None = None
    filters: Any = None
    capture: list[str] | None = None
    on: Text = None
    deliver: Text = None


class ObserveTarget(Struct, omit_defaults=True):
    """The function that hears of it."""

    function_id: str
    namespace: Text = None


class Observe(Struct, tag="observe", omit_defaults=True):
    """A worker wants a function to hear of the calls of another."""

    id: str
    source: ObserveSource
    target: ObserveTarget
    metadata: Given = UNSET
    max_fires: int | None = None
    expires_in_ms: int | None = None
    max_in_flight: int | None = None


class Unobserve(Struct, tag="unobserve"):
    """A worker has seen enough."""

    id: str


class ObserverAck(Struct, tag="observerack", omit_defaults=True):
    """The owner of a function says that it knows an observer, or why not."""

    function_id: str
    id: str
    revision: int = 0
    namespace: Text = None
    error: Failure | None = None


class Observed(Struct):
    """One event that the owner of a function tells of, and the observers that it is for."""

    function_id: str
    invocation_id: str = ""
    matched: list[str] = []
    namespace: Text = None
    status: str = "success"
    input: Given = UNSET
    output: Given = UNSET
    error: Given = UNSET
    caller: Given = UNSET
    metadata: Given = UNSET
    started_at_ms: int = 0
    duration_ms: float = 0.0
    observe_depth: int = 0
    traceparent: Text = None
    baggage: Text = None


class InvocationsObserved(Struct, tag="invocationsobserved"):
    """The owner of functions tells of events that observers wait for."""

    items: list[Observed] = []


class LocalInvocationStats(Struct, tag="localinvocationstats"):
    """How often a worker called its own functions; it has no effect."""


FromWorker: TypeAlias = Union[  # noqa: UP007  # one union of messages, not of types
    RegisterFunction,
    UnregisterFunction,
    InvokeFunction,
    InvocationResult,
    RegisterTriggerType,
    UnregisterTriggerType,
    RegisterTrigger,
    UnregisterTrigger,
    TriggerRegistrationResult,
    RegisterService,
    Reattach,
    Ping,
    Pong,
    Observe,
    Unobserve,
    ObserverAck,
    InvocationsObserved,
    LocalInvocationStats,
]

encode: Final = msgspec.json.Encoder().encode
_decode: Final[Callable[[bytes], FromWorker]] = msgspec.json.Decoder(FromWorker).decode


_LOOSE: Final = (b"NaN", b"Infinity", b"\\ud", b"\\uD")
_NAMED: Final = re.compile(rb'"invocation_id"\s*:\s*"([^"\\]{1,200})"')
_NEAR: Final = 16 * 1024
"""Bytes at both ends of a message that cannot be read that are looked at all the same."""


def decode_message(data: bytes) -> FromWorker:
    """A message of a worker; a `ProtocolError` says why it is none."""
    try:
        if not data.isascii():
            str(data, "utf-8")  # what is passed on as it is must be text to others too
        frame = _decoded(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"it is not a message that the hub knows: {error}") from None
    return frame


def find_invocation_ids(data: bytes) -> tuple[type[Struct] | None, list[str]]:
    """Whether a message that cannot be read is an answer or a call, and which calls it names near its ends."""
    near = data if len(data) <= 2 * _NEAR else data[:_NEAR] + b" " + data[-_NEAR:]
    ids = dict.fromkeys(found.decode(errors="replace") for found in _NAMED.findall(near))
    if b'"invocationresult"' in near:
        return InvocationResult, list(ids)
    return InvokeFunction if b'"invokefunction"' in near else None, list(ids)


def _decoded(data: bytes) -> FromWorker:
    try:
        return _decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if not any(mark in data for mark in _LOOSE):
            raise
        # Python writes NaN, for which others write null, and halves of characters, which are no text to anybody else.
        value = json.loads(data, parse_constant=lambda _: None)
        return _decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def to_exception(answer: InvocationResult) -> InvocationFailed | None:
    """What an answer says went wrong, for whoever waits for it."""
    failure = read_failure(answer.error)
    return None if failure is None else InvocationFailed(failure.message, failure.code, failure.stacktrace)


def read_failure(error: Given) -> Failure | None:
    """The error of a result; one that makes no sense is told as it came."""
    if error is UNSET or bytes(error) == b"null":
        return None
    try:
        return msgspec.json.decode(error, type=Failure)
    except (msgspec.MsgspecError, RecursionError):
        return Failure(message=bytes(error).decode(errors="replace")[:1000])


_log: Final = logging.getLogger(__name__)
UNKNOWN: Final = "function_not_found"
"""That nobody offers a function."""
_CODES: Final = (
    (PolicyDenied, "FORBIDDEN"),
    (InsufficientScope, "FORBIDDEN"),
    (UnknownTool, UNKNOWN),
    (DeadlineExceeded, "TIMEOUT"),
)


class WorkerUnreachable(InvocationFailed):
    """Nobody could be asked, or whoever was asked is gone: the function itself did not fail."""


def to_failure(error: BaseException) -> Failure:
    """What a worker is told about an error."""
    if isinstance(error, InvocationFailed):
        return Failure(error.code, error.message, error.stacktrace)
    if isinstance(error, WaypostError):
        code = next((code for kind, code in _CODES if isinstance(error, kind)), "invocation_error")
        return Failure(code, error.message)
    _log.error("a call of a worker crashed", exc_info=error)
    return Failure("invocation_error", redacted(f"{type(error).__name__}: {error}"))


def not_found(function_id: str, namespace: str) -> InvocationFailed:
    """Nobody offers a function."""
    return WorkerUnreachable(f"Function {shorten(function_id)} not found in namespace {shorten(namespace)}.", UNKNOWN)


class LegacyTrigger(Struct):
    """The binding that an observer stands for."""

    trigger_type: str
    config: Raw


class ObserverInfo(Struct):
    """An observer as the owner of the function knows it: not who made it, nor under which terms."""

    id: str
    args: dict[str, Any]
    filters: dict[str, Any]
    target: str
    capture: list[str]
    on: str
    legacy: LegacyTrigger | UnsetType = UNSET


class FunctionRegistered(Struct, tag="functionregistered"):
    """A function is known, and these are its observers."""

    id: str
    namespace: str
    revision: int
    observers: list[ObserverInfo]
    local_dispatch: bool = False
    """Whether its worker may call it without the hub; it may not, for the hub would not see the call."""


class ObserverAdded(Struct, tag="observeradded"):
    """A function has one more observer, and its owner is asked whether that is all right."""

    function_id: str
    namespace: str
    revision: int
    observer: ObserverInfo


class ObserverRemoved(Struct, tag="observerremoved"):
    """A function has one observer less."""

    function_id: str
    namespace: str
    revision: int
    id: str


class ObserveResult(Struct, tag="observeresult", omit_defaults=True):
    """What became of the wish to observe."""

    id: str
    state: str
    error: Failure | None = None
    warnings: list[str] | None = None


class ObserverStateChanged(Struct, tag="observerstatechanged", omit_defaults=True):
    """An observer stands otherwise than before."""

    id: str
    state: str
    fires: int
    reason: Failure | None = None
