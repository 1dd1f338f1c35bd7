"""What a worker offers: functions, with formats by type hints, and types of triggers; and how calls are answered."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import traceback
import typing
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, get_origin

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.results import encode_json
from waypost.capabilities.schemas import signatures
from waypost.capabilities.schemas.forms import with_defaults
from waypost.capabilities.schemas.signatures import returns
from waypost.errors import DefinitionError, InvocationFailed, WaypostError
from waypost.loops import KeyLocks, cancel_tasks, maybe_await, start_task
from waypost.worker.channels import ChannelReader, ChannelWriter
from waypost.worker.connection import Send, run_as_handler
from waypost.worker.observers import ObservedFunction, ObserveHooks, Observer, ObserverMessage
from waypost.workers import frames
from waypost.workers.frames import (
    Failure,
    InvocationResult,
    InvokeFunction,
    Observable,
    RegisterFunction,
    RegisterTrigger,
    TriggerRegistrationResult,
    encode,
)

Convert: TypeAlias = Callable[[Any], Any]
_OPEN: Final = (Any, object, dict, Mapping)


def read_type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of a function; none where they cannot be resolved."""
    try:
        return typing.get_type_hints(signatures.underlying(function), include_extras=True)
    except (NameError, TypeError, SyntaxError):
        return {}


def request_format(annotation: Any) -> dict[str, Any] | None:
    """The schema of a payload, if its type says more than that it is an object."""
    if _is_open(annotation):
        return None
    if signatures.needs_pydantic([annotation]):
        from waypost.capabilities.schemas import models

        return models.describe(annotation, mode="validation")
    found = returns(annotation)
    if found is None:
        return _channel_schema(annotation)
    return None if found.wrapped else found.schema


def to_observable(hooks: ObserveHooks) -> Observable | None:
    """The part of the hooks that the engine has to know, if any."""
    wanted = hooks.args_format
    if isinstance(wanted, type):
        wanted = request_format(wanted)
    terms = Observable(hooks.delivery, wanted, hooks.legacy_trigger_type, hooks.allow)
    return None if terms == Observable() else terms


def response_format(annotation: Any) -> dict[str, Any] | None:
    """The schema of an answer, if its type says one."""
    if _is_open(annotation) or annotation is type(None):
        return None
    found = returns(annotation)
    if found is None or not found.wrapped:
        return None if found is None else found.schema
    definitions = {key: found.schema[key] for key in ("$defs",) if key in found.schema}
    return {**found.schema["properties"]["result"], **definitions}


def build_converter(annotation: Any) -> Convert | None:
    """Converts a payload to its type; `None` where the payload is used as it is."""
    if _is_open(annotation):
        return None
    if signatures.needs_pydantic([annotation]):
        import pydantic

        validate = pydantic.TypeAdapter(annotation).validate_python
        return _checked(validate, pydantic.ValidationError)
    if returns(annotation) is None and _channel_schema(annotation) is None:
        return None
    return _checked(lambda payload: with_defaults(msgspec.convert(payload, annotation)), msgspec.ValidationError)


def _channel_schema(annotation: Any) -> dict[str, Any] | None:
    """The schema of a payload that has ends of channels in it; `None` for any other."""
    ends: list[type] = []

    def describe(kind: type) -> dict[str, Any]:
        if not issubclass(kind, ChannelReader | ChannelWriter):
            raise NotImplementedError
        ends.append(kind)
        return kind.schema()

    try:
        schema = msgspec.json.schema(annotation, schema_hook=describe)
    except (TypeError, ValueError, NameError, AttributeError, RuntimeError):
        return None
    return schema if ends else None


def _checked(convert: Convert, wrong: type[Exception]) -> Convert:
    def converted(payload: Any) -> Any:
        try:
            return convert({} if payload is None else payload)
        except wrong as error:
            raise InvocationFailed(f"The payload does not fit: {error}") from None

    return converted


def _is_open(annotation: Any) -> bool:
    return annotation in _OPEN or get_origin(annotation) in _OPEN


_log: Final = logging.getLogger(__name__)
_MAX_WAITING_CALLS: Final = 10_000
_MAX_THREADS: Final = 32
_MAX_TRACE_LENGTH: Final = 10_000
_CHANNEL_KEY: Final = b'"access_key"'
"""Part of every reference to a channel, so that other payloads need not be searched for one."""

Function: TypeAlias = Callable[..., Any]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MAX_ARGUMENTS = 2


@dataclass(frozen=True, slots=True)
class Handler:
    """A function of the worker's program: plain or asynchronous, with the payload and perhaps its metadata."""

    frame: RegisterFunction
    function: Function
    takes: int
    convert: Convert | None
    is_async: bool
    observed: ObservedFunction

    async def run(self, payload: Any, metadata: Any, threads: Executor) -> Any:
        """The function's result; a plain function runs in a thread."""
        given = (payload if self.convert is None else self.convert(payload), metadata)[: self.takes]
        if self.is_async:
            return await self.function(*given)
        # With the context, so that `current_invocation` works in the thread too.
        call = contextvars.copy_context().run
        return await maybe_await(
            await asyncio.get_running_loop().run_in_executor(threads, call, self.function, *given),
        )


class FunctionRef:
    """A function that is offered; calling it calls the function itself, without the engine."""

    def __init__(self, handler: Handler, unregister: Callable[[], None]) -> None:
        self.id = handler.frame.id
        self.unregister = unregister
        self._function = handler.function
        self._observed = handler.observed

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the function itself, without the engine."""
        return self._function(*given, **named)

    def is_observed(self) -> bool:
        """Whether it has observers."""
        return bool(self._observed.active)

    def observers(self) -> list[Observer]:
        """Its observers."""
        return list(self._observed.active)


def build_handler(function: Function, frame: RegisterFunction, observed: ObservedFunction) -> Handler:
    """The handler of a function; what `frame` does not say is taken from its docstring and type hints."""
    if not frame.id.strip():
        raise DefinitionError("A function needs an id, such as demo::greet.")
    takes = _count_arguments(frame.id, function)
    types = read_type_hints(function)
    first = next(iter(inspect.signature(function).parameters), "") if takes else ""
    hinted = types.get(first, Any)
    if frame.request_format is None:
        frame.request_format = request_format(hinted)
    if frame.response_format is None:
        frame.response_format = response_format(types.get("return", Any))
    if frame.description is None:
        frame.description = _describe(function)
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    return Handler(frame, function, takes, build_converter(hinted), is_async, observed)


def _count_arguments(function_id: str, function: Function) -> int:
    if not callable(function):
        raise DefinitionError(f"The handler of {function_id} is {function!r}, which cannot be called.")
    parameters = list(inspect.signature(function).parameters.values())
    required = [one for one in parameters if one.default is one.empty and one.kind in _POSITIONAL]
    named = [one for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if len(required) > _MAX_ARGUMENTS or named:
        raise DefinitionError(f"The handler of {function_id} takes (payload) or (payload, metadata).")
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return _MAX_ARGUMENTS
    return min(sum(one.kind in _POSITIONAL for one in parameters), _MAX_ARGUMENTS)


def _describe(function: Function) -> str | None:
    lines = (inspect.getdoc(function) or "").strip().splitlines() if inspect.isroutine(function) else []
    return lines[0] if lines else None


class Functions:
    """The functions of one worker, and the calls of them that have no answer yet.

    At most `max_running` run at once; a function that waits for another of the same worker counts meanwhile.
    """

    def __init__(self, send: Send, max_running: int, resolve: Callable[[Any], Any]) -> None:
        self.handlers: dict[str, Handler] = {}
        self._send = send
        self._resolve = resolve
        self._slots = asyncio.Semaphore(max_running)
        self._threads = ThreadPoolExecutor(min(max_running, _MAX_THREADS), thread_name_prefix="waypost-worker")
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, handler: Handler) -> None:
        """Offer a function, in place of another with its id."""
        self.remove(handler.frame.id)
        self.handlers[handler.frame.id] = handler

    def remove(self, function_id: str) -> bool:
        """Offer a function no longer; whether it was offered."""
        self.release(function_id)
        return self.handlers.pop(function_id, None) is not None

    def release(self, function_id: str) -> None:
        """The engine does not accept a function from this worker, so nothing observes it here."""
        if function_id in self.handlers:
            self.handlers[function_id].observed.release()

    def connected(self, is_supported: bool) -> None:
        """The engine has said whether it supports observers."""
        unused = [function_id for function_id, one in self.handlers.items() if one.observed.hooks.is_active]
        if unused and not is_supported:
            _log.warning(
                "the engine does not support observers, so the hooks of %s are never called", ", ".join(unused)
            )

    def disconnected(self) -> None:
        """The connection is lost; events for observers wait."""
        for handler in self.handlers.values():
            handler.observed.is_known = False

    def report_observers(self, function_id: str, frame: ObserverMessage) -> None:
        """The engine reports observers of a function."""
        if function_id in self.handlers:
            self.handlers[function_id].observed.on_message(frame)

    def answer(self, call: InvokeFunction) -> None:
        """Start to answer a call."""
        start_task(self._answer(call), self._tasks)

    async def stop(self) -> None:
        """Cancel all calls."""
        await cancel_tasks(self._tasks)
        # A running thread cannot be stopped, and must not hold up the shutdown.
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, call: InvokeFunction) -> None:
        answer = InvocationResult(
            call.invocation_id, call.function_id, traceparent=call.traceparent, baggage=call.baggage
        )
        try:
            answer.result = await self._run(call)
            await self._reply(answer)
        # An answer that is too large to be sent ends here too.
        except Exception as error:
            answer.result, answer.error = UNSET, Raw(encode(_failure(error, call.function_id)))
            await self._reply(answer)

    async def _reply(self, answer: InvocationResult) -> None:
        if answer.invocation_id is not None:
            await self._send(answer)

    async def _run(self, call: InvokeFunction) -> Raw:
        handler = self.handlers.get(call.function_id)
        if handler is None:
            raise InvocationFailed(f"Function {call.function_id} not found.", "function_not_found")
        if len(self._tasks) > _MAX_WAITING_CALLS:
            raise InvocationFailed(f"{_MAX_WAITING_CALLS} calls wait here already; try again later.", "busy")
        async with self._slots:
            # Decoded only now: calls that wait for a slot are kept as bytes.
            payload, metadata = frames.decode_part(call.data, "payload"), frames.decode_part(call.metadata, "metadata")
            if call.data is not UNSET and _CHANNEL_KEY in bytes(call.data):
                payload = self._resolve(payload)
            with run_as_handler(call):
                return Raw(encode_json(await handler.run(payload, metadata, self._threads)))


def _failure(error: Exception, function_id: str) -> Failure:
    """An error as the caller gets it."""
    if isinstance(error, InvocationFailed):
        return Failure(error.code, error.message, error.stacktrace)
    _log.error("%s failed", function_id, exc_info=error)
    trace = "".join(traceback.format_exception(error))[-_MAX_TRACE_LENGTH:]
    return Failure("invocation_failed", str(error) or type(error).__name__, trace)


class Bound(NamedTuple):
    """A function that is to be called when a trigger fires."""

    id: str
    function_id: str
    config: Any = None
    metadata: Any = None
    namespace: str | None = None


BindingHook: TypeAlias = Callable[[Bound], Awaitable[None] | None]
Fire: TypeAlias = Callable[[Bound, Any], None]


@dataclass(eq=False, slots=True)
class TriggerType:
    """A type of trigger that this worker provides."""

    frame: frames.RegisterTriggerType
    call: Fire
    on_bind: BindingHook | None = None
    on_unbind: BindingHook | None = None
    bound: dict[str, Bound] = field(default_factory=dict)

    def fire(self, payload: Any) -> None:
        """Call every function that is bound to it, without waiting; from any thread."""
        for one in list(self.bound.values()):
            self.call(one, payload)


class Triggers:
    """The trigger types and the bindings of one worker."""

    def __init__(self) -> None:
        self.types: dict[str, TriggerType] = {}
        """Those that it provides."""
        self.bindings: dict[str, RegisterTrigger] = {}
        """Those of its functions to triggers, its own or of others."""
        self._locks = KeyLocks()
        """By binding: the hooks for one are called one after the other."""

    async def bind(self, frame: RegisterTrigger) -> TriggerRegistrationResult | None:
        """A function was bound; the reply to the engine, unless the connection was lost meanwhile."""
        kind = self.types.get(frame.trigger_type)
        reply = TriggerRegistrationResult(frame.id, frame.trigger_type, frame.function_id)
        if kind is None:
            reply.error = frames.to_raw_failure(
                "trigger_type_not_found", f"Trigger type {frame.trigger_type} is not provided here."
            )
            return reply
        try:
            config = frames.decode_part(frame.config, "config")
            metadata = frames.decode_part(frame.metadata, "metadata")
        except InvocationFailed as error:
            reply.error = frames.to_raw_failure("trigger_registration_failed", error.message)
            return reply
        one = Bound(frame.id, frame.function_id, config, metadata, frame.namespace)
        bound = kind.bound
        async with self._locks[one.id]:
            try:
                if kind.on_bind is not None:
                    await maybe_await(kind.on_bind(one))
                bound[one.id] = one
            except Exception as error:
                if not isinstance(error, WaypostError):
                    _log.exception("a function could not be bound to %s", frame.trigger_type)
                reply.error = frames.to_raw_failure("trigger_registration_failed", str(error))
        # Another dict means that the worker has connected again: the engine that asked is gone.
        return reply if kind.bound is bound else None

    async def unbind(self, frame: frames.UnregisterTrigger) -> None:
        """A binding ended."""
        async with self._locks[frame.id]:
            for kind in list(self.types.values()):
                one = kind.bound.pop(frame.id, None)
                if one is None or kind.on_unbind is None:
                    continue
                try:
                    await maybe_await(kind.on_unbind(one))
                except Exception:
                    _log.exception("a function could not be unbound from %s", kind.frame.id)
