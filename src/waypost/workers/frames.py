"""The messages between a worker and the hub as structs, and how an error becomes part of one.

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

_log: Final = logging.getLogger(__name__)
NULL: Final = Raw(b"null")
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
FUNCTION_CONFLICT: Final = "FUNCTION_NAMESPACE_CONFLICT"
"""Why a function is rejected: another worker, or the hub, offers it already."""
INTRODUCTION: Final = "engine::workers::register"
"""The function that a worker calls to say its name, namespace and features."""
CALL_ENTRY: Final = "waypost-call="
"""The entry of a call's baggage by which the calls of its handler are recognised."""
OBSERVE_FEATURE: Final = "observe.v1"
"""The feature of engines and workers that support observers."""

Given: TypeAlias = Raw | UnsetType
Text: TypeAlias = str | None


class Failure(Struct, omit_defaults=True):
    """An error."""

    code: str = "UNKNOWN"
    message: str = ""
    stacktrace: Text = None


class WorkerRegistered(Struct, tag="workerregistered", omit_defaults=True):
    """The hub's first message: the id and token of the worker, and the features of the hub."""

    worker_id: str
    reattach_token: Text = None
    features: list[str] | None = None


class Reattach(Struct, tag="reattach"):
    """A worker was connected before, under another id."""

    previous_worker_id: str
    reattach_token: Text = None


class Observable(Struct, omit_defaults=True):
    """How a function may be observed."""

    delivery: Text = None
    args_format: Any = None
    legacy_trigger_type: Text = None
    allow: bool | None = None


class HttpInvocation(Struct, omit_defaults=True):
    """The URL at which the hub calls a function, and how."""

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
    invocation: HttpInvocation | None = None
    observe: Observable | None = None


class UnregisterFunction(Struct, tag="unregisterfunction"):
    """A worker withdraws a function."""

    id: str


class Action(Struct, omit_defaults=True):
    """How a call is made: `void` without an answer, or `enqueue` later, from a queue."""

    type: str
    queue: Text = None


class Origin(Struct, omit_defaults=True):
    """The worker that made a call, and the call it was made from, as far as they are known."""

    worker_id: Text = None
    worker_name: Text = None
    function_id: Text = None
    invocation_id: Text = None
    parent: Any = None


class Activation(Struct, omit_defaults=True):
    """The observer that a call is made for."""

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

    @property
    def is_void(self) -> bool:
        """Whether the caller does not want an answer."""
        return self.invocation_id is None or (self.action is not None and self.action.type == "void")


class InvocationResult(Struct, tag="invocationresult", omit_defaults=True):
    """The end of a call: a result or an error."""

    invocation_id: Text = None
    function_id: Text = None
    result: Given = UNSET
    error: Given = UNSET
    traceparent: Text = None
    baggage: Text = None


class RegisterTriggerType(Struct, tag="registertriggertype", omit_defaults=True):
    """A worker provides a trigger type."""

    id: str
    description: Text = None
    trigger_request_format: Any = None
    call_request_format: Any = None
    namespace: Text = None


class UnregisterTriggerType(Struct, tag="unregistertriggertype"):
    """A worker withdraws a trigger type."""

    id: str
    namespace: Text = None


class RegisterTrigger(Struct, tag="registertrigger", omit_defaults=True):
    """A function is bound to a trigger type."""

    id: str
    trigger_type: str
    function_id: str
    config: Given = UNSET
    metadata: Given = UNSET
    namespace: Text = None
    trigger_namespace: Text = None


class UnregisterTrigger(Struct, tag="unregistertrigger", omit_defaults=True):
    """A binding is removed."""

    id: str
    trigger_type: Text = None


class TriggerRegistrationResult(Struct, tag="triggerregistrationresult", omit_defaults=True):
    """Whether the provider of a trigger type accepts a binding."""

    id: str
    trigger_type: Text = None
    function_id: Text = None
    error: Given = UNSET


class RegistrationRejected(Struct, tag="registrationrejected", omit_defaults=True):
    """The hub rejects a registration."""

    code: str
    namespace: str
    owner_worker_id: str
    worker_name: Text = None
    function_id: Text = None


class RegisterService(Struct, tag="registerservice"):
    """A group of functions, as old workers describe it; it has no effect."""

    id: str


class Ping(Struct, tag="ping"):
    """Asks for a `Pong`."""


class Pong(Struct, tag="pong"):
    """The answer to a `Ping`."""


class ObserveSource(Struct, omit_defaults=True):
    """The function to observe, and which of its calls."""

    function_id: str
    namespace: Text = None
    args: dict[str, Any] | None = None
    filters: Any = None
    capture: list[str] | None = None
    on: Text = None
    deliver: Text = None


class ObserveTarget(Struct, omit_defaults=True):
    """The function that is called for each event."""

    function_id: str
    namespace: Text = None


class Observe(Struct, tag="observe", omit_defaults=True):
    """A worker registers an observer."""

    id: str
    source: ObserveSource
    target: ObserveTarget
    metadata: Given = UNSET
    max_fires: int | None = None
    expires_in_ms: int | None = None
    max_in_flight: int | None = None


class Unobserve(Struct, tag="unobserve"):
    """A worker removes an observer."""

    id: str


class ObserverAck(Struct, tag="observerack", omit_defaults=True):
    """The owner of a function accepts an observer, or says why not."""

    function_id: str
    id: str
    revision: int = 0
    namespace: Text = None
    error: Failure | None = None


class ObservedEvent(Struct):
    """One event reported by the owner of a function, and the observers that it is for."""

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
    """The owner of functions reports events to their observers."""

    items: list[ObservedEvent] = []


class LocalInvocationStats(Struct, tag="localinvocationstats"):
    """How often a worker called its own functions; it has no effect."""


class ObserverInfo(Struct):
    """An observer as the owner of the function sees it: without its maker and its limits."""

    id: str
    args: dict[str, Any] = {}
    filters: Any = None
    target: str = ""
    capture: list[str] = []
    on: str = "success"
    legacy: dict[str, Any] | UnsetType = UNSET
    """The `trigger_type` and `config` of the binding that it was made from."""


class FunctionRegistered(Struct, tag="functionregistered"):
    """The hub accepted a function; lists all of its observers."""

    id: str
    revision: int
    namespace: Text = None
    observers: list[ObserverInfo] = []
    local_dispatch: bool = False
    """Whether its worker may call it without the hub; never, because the hub would not see the call."""


class ObserverAdded(Struct, tag="observeradded"):
    """A function has a new observer, which its owner may refuse."""

    function_id: str
    revision: int
    observer: ObserverInfo
    namespace: Text = None


class ObserverRemoved(Struct, tag="observerremoved"):
    """An observer of a function was removed."""

    function_id: str
    revision: int
    id: str
    namespace: Text = None


class ObserveResult(Struct, tag="observeresult", omit_defaults=True):
    """The answer to `Observe`."""

    id: str
    state: str
    error: Failure | None = None
    warnings: list[str] | None = None


class ObserverStateChanged(Struct, tag="observerstatechanged", omit_defaults=True):
    """The state of an observer changed."""

    id: str
    state: str
    fires: int
    reason: Failure | None = None


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
_LENIENT: Final = (b"NaN", b"Infinity", b"\\ud", b"\\uD")
_INVOCATION_ID: Final = re.compile(rb'"invocation_id"\s*:\s*"([^"\\]{1,200})"')
_OBSERVE: Final = re.compile(rb'"type"\s*:\s*"observe"')
_ID: Final = re.compile(rb'"id"\s*:\s*"([^"\\]{1,200})"')
_SEARCHED_BYTES: Final = 16 * 1024
"""Bytes at both ends of an undecodable message that are searched for ids of calls and observers."""


def decode_message(data: bytes) -> FromWorker:
    """Decode a message of a worker; `ProtocolError` if it is not valid."""
    try:
        if not data.isascii():
            str(data, "utf-8")  # payloads are passed on undecoded, and must be text to their receivers too
        try:
            return _decode(data)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            if not any(mark in data for mark in _LENIENT):
                raise
            # Python writes NaN, where other languages write null, and lone surrogates, which no other decoder accepts.
            value = json.loads(data, parse_constant=lambda _: None)
            return _decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"it is not a message that the hub knows: {error}") from None


def split_baggage(baggage: Text) -> tuple[Text, str]:
    """The baggage of a call without the hub's own entry, and the id of the call in that."""
    if baggage is None or CALL_ENTRY not in baggage:
        return baggage, ""
    entries = [entry.strip() for entry in baggage.split(",")]
    own = [entry for entry in entries if entry.startswith(CALL_ENTRY)]
    kept = ",".join(entry for entry in entries if not entry.startswith(CALL_ENTRY))
    return kept or None, own[-1].removeprefix(CALL_ENTRY).partition(";")[0].strip() if own else ""


def find_ids(data: bytes) -> tuple[type[Struct] | None, list[str]]:
    """Whether an undecodable message is an answer, a call or an observer, and the ids of those near its ends."""
    near = data if len(data) <= 2 * _SEARCHED_BYTES else data[:_SEARCHED_BYTES] + b" " + data[-_SEARCHED_BYTES:]
    is_observer = _OBSERVE.search(near) is not None
    found = (_ID if is_observer else _INVOCATION_ID).findall(near)
    ids = dict.fromkeys(one.decode(errors="replace") for one in found)
    if is_observer:
        return Observe, list(ids)
    if b'"invocationresult"' in near:
        return InvocationResult, list(ids)
    return InvokeFunction if b'"invokefunction"' in near else None, list(ids)


def read_failure(error: Given) -> Failure | None:
    """The error of a result; one of another shape becomes the message."""
    if error is UNSET or bytes(error) == b"null":
        return None
    try:
        return msgspec.json.decode(error, type=Failure)
    except (msgspec.MsgspecError, RecursionError):
        return Failure(message=bytes(error).decode(errors="replace")[:1000])


def to_exception(answer: InvocationResult) -> InvocationFailed | None:
    """The exception for the caller of a call that failed."""
    failure = read_failure(answer.error)
    return None if failure is None else InvocationFailed(failure.message, failure.code, failure.stacktrace)


UNKNOWN: Final = "function_not_found"
"""The code for a function that no worker offers."""
_CODES: Final = (
    (PolicyDenied, "FORBIDDEN"),
    (InsufficientScope, "FORBIDDEN"),
    (UnknownTool, UNKNOWN),
    (DeadlineExceeded, "TIMEOUT"),
)


class WorkerUnreachable(InvocationFailed):
    """No worker offers the function, or the worker disconnected; the function itself did not fail."""


class NotStarted(WorkerUnreachable):
    """The function was not called; another worker that offers it may be asked."""


def to_failure(error: BaseException) -> Failure:
    """An exception as a worker receives it; one that is not a `WaypostError` is logged."""
    if isinstance(error, InvocationFailed):
        return Failure(error.code, error.message, error.stacktrace)
    if isinstance(error, WaypostError):
        code = next((code for kind, code in _CODES if isinstance(error, kind)), "invocation_error")
        return Failure(code, error.message)
    _log.error("a call of a worker crashed", exc_info=error)
    return Failure("invocation_error", redacted(f"{type(error).__name__}: {error}"))


def to_raw_failure(code: str, message: str) -> Raw:
    """An error as the `error` field of a message."""
    return Raw(encode(Failure(code, message)))


def function_not_found(function_id: str, namespace: str, hint: str = "") -> InvocationFailed:
    """The error for a function that no worker offers."""
    place = f"namespace {shorten(namespace)}{hint or '.'}"
    return WorkerUnreachable(f"Function {shorten(function_id)} not found in {place}", UNKNOWN)
