"""The messages between a worker and the hub as structs, and how an error becomes part of one.

Payloads stay raw bytes: the hub decodes them only where it needs a value.
"""

from __future__ import annotations

import codecs
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
    """A worker offers a function; in a large message, its formats and metadata stay `Raw`."""

    id: str
    description: Text = None
    request_format: Any = None
    response_format: Any = None
    metadata: Any = None
    invocation: HttpInvocation | None = None
    observe: Observable | None = None


class LargeRegisterFunction(Struct, tag="registerfunction"):
    """A worker offers a function, in a large message."""

    id: str
    description: Text = None
    request_format: Given = UNSET
    response_format: Given = UNSET
    metadata: Given = UNSET
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


_Others: TypeAlias = Union[  # noqa: UP007  # one union of messages, not of types
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
FromWorker: TypeAlias = RegisterFunction | _Others

encode: Final = msgspec.json.Encoder().encode
_decode: Final[Callable[[bytes], FromWorker]] = msgspec.json.Decoder(FromWorker).decode
_decode_large: Final = msgspec.json.Decoder(LargeRegisterFunction | _Others).decode
_LENIENT: Final = (b"NaN", b"Infinity", b"\\ud", b"\\uD")
_INVOCATION_ID: Final = re.compile(rb'"invocation_id"\s*:\s*"([^"\\]{1,200})"')
_OBSERVE: Final = re.compile(rb'"type"\s*:\s*"observe"')
_ID: Final = re.compile(rb'"id"\s*:\s*"([^"\\]{1,200})"')
_SEARCHED_BYTES: Final = 16 * 1024
"""Bytes at both ends of an undecodable message that are searched for ids of calls and observers."""
_SPARE_DEPTH: Final = 300
"""Levels that a message must be less deep than Python could decode: its parts are decoded and encoded again inside of
other messages, and where the stack is higher."""
_skip: Final = msgspec.json.Decoder(Raw).decode
LARGE_MESSAGE_BYTES: Final = 32 * 1024
_PIECE_BYTES: Final = 64 * 1024


def decode_message(data: bytes) -> FromWorker:
    """Decode a message of a worker; `ProtocolError` if it is not valid."""
    try:
        # ASCII, which most messages are, is valid UTF-8.
        if not data.isascii():
            _check_text(data)
        try:
            return _decode_shallow(data)
        except msgspec.ValidationError:
            # Valid JSON of another shape, which a lenient reading would not change.
            raise
        except msgspec.DecodeError:
            if not any(mark in data for mark in _LENIENT):
                raise
            # Python writes NaN, where other languages write null, and lone surrogates, which no other decoder accepts.
            value = json.loads(data, parse_constant=lambda _: None)
            return _decode_shallow(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"it is not a message that the hub knows: {error}") from None


def _check_text(data: bytes) -> None:
    """Raise `UnicodeDecodeError` for bytes that are not UTF-8: payloads are passed on undecoded, as text."""
    if len(data) < LARGE_MESSAGE_BYTES:
        str(data, "utf-8")
        return
    # In pieces, because the text may take four times the room of the message.
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(data)
    for start in range(0, len(data), _PIECE_BYTES):
        decoder.decode(view[start : start + _PIECE_BYTES])
    decoder.decode(b"", final=True)


def _decode_shallow(data: bytes) -> FromWorker:
    if len(data) <= _SPARE_DEPTH:
        return _decode(data)
    if len(data) < LARGE_MESSAGE_BYTES:
        frame = _decode(data)
        # Brackets are counted first, which is cheap: most messages have far fewer.
        is_shallow = data.count(b"[") + data.count(b"{") <= _SPARE_DEPTH
    else:
        frame, is_shallow = _read_large(data), _has_few_brackets(data)
    if not is_shallow:
        _skip(b"[" * _SPARE_DEPTH + data + b"]" * _SPARE_DEPTH)
    return frame


def _read_large(data: bytes) -> FromWorker:
    """Decode a large message; the schemas of a function stay raw, which takes a tenth of the time and of the room."""
    frame: LargeRegisterFunction | _Others = _decode_large(data)
    if not isinstance(frame, LargeRegisterFunction):
        return frame
    # Copies, because a raw part keeps the message that it is a part of, with all that the hub does not know in it.
    request, response, metadata = (
        None if part is UNSET or part == NULL else part.copy()
        for part in (frame.request_format, frame.response_format, frame.metadata)
    )
    return RegisterFunction(frame.id, frame.description, request, response, metadata, frame.invocation, frame.observe)


def _has_few_brackets(data: bytes) -> bool:
    # A search for the next one takes a tenth of the time that counting takes, and ends early where there are many.
    left = _SPARE_DEPTH
    for bracket in (b"[", b"{"):
        at = data.find(bracket)
        while at >= 0:
            left -= 1
            if left < 0:
                return False
            at = data.find(bracket, at + 1)
    return True


_PARTS: Final = ("request_format", "response_format", "metadata")


class _Marks(Struct):
    """What the hub reads of the metadata of a function."""

    internal: Any = None


def read_parts(frame: RegisterFunction) -> tuple[Any, Any, Any]:
    """The formats and the metadata of a function as values; one that cannot be decoded is removed from the message.

    Decoding as `Raw` does not find numbers out of range, which not every worker that lists the function could read.
    """
    values = []
    for name in _PARTS:
        part = getattr(frame, name)
        if type(part) is Raw:
            try:
                part = msgspec.json.decode(part)
            except (msgspec.MsgspecError, RecursionError):
                part = None
                setattr(frame, name, None)
        values.append(part)
    return values[0], values[1], values[2]


def is_marked_internal(frame: RegisterFunction) -> bool:
    """Whether the metadata of a function says that clients do not see it."""
    metadata = frame.metadata
    if type(metadata) is Raw:
        try:
            return msgspec.json.decode(metadata, type=_Marks).internal is True
        except (msgspec.MsgspecError, RecursionError):
            return False
    return isinstance(metadata, dict) and metadata.get("internal") is True


def decode_part(part: Given, what: str) -> Any:
    """A raw part of a message as a value, `None` if it is not set; `InvocationFailed` if it cannot be decoded."""
    try:
        return None if part is UNSET else msgspec.json.decode(part)
    except (msgspec.MsgspecError, RecursionError) as error:  # decoding as `Raw` does not find numbers out of range
        raise InvocationFailed(f"The {what} cannot be read: {error}.") from None


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
    # The sender of such a message would otherwise wait for its timeout: an id is enough to answer it with an error.
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
