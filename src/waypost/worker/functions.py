"""The functions that a worker offers: how each is described to the engine, and how its calls are answered."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Raw

from waypost.capabilities.results import encode_json
from waypost.errors import DefinitionError, InvocationFailed
from waypost.loops import maybe_await, running_loop
from waypost.worker.formats import Convert, build_converter, read_type_hints, request_format, response_format
from waypost.worker.invocations import Send, from_raw, run_as_handler
from waypost.worker.observed_functions import ObservedFunction, Observer
from waypost.workers.frames import Failure, InvocationResult, InvokeFunction, RegisterFunction, encode

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

    async def run(self, payload: Any, metadata: Any, threads: Executor) -> Any:
        """The function's result; a plain function runs in a thread."""
        given = (payload if self.convert is None else self.convert(payload), metadata)[: self.takes]
        if self.is_async:
            return await self.function(*given)
        call = contextvars.copy_context().run
        return await maybe_await(
            await asyncio.get_running_loop().run_in_executor(threads, call, self.function, *given),
        )


class FunctionRef:
    """A function that is offered; calling it calls the function itself, without the engine."""

    def __init__(self, function: Function, observed: ObservedFunction, unregister: Callable[[], None]) -> None:
        self.id = observed.function_id
        self.unregister = unregister
        self._function = function
        self._observed = observed

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the function itself, without the engine."""
        return self._function(*given, **named)

    def is_observed(self) -> bool:
        """Whether it has observers."""
        return bool(self._observed.active)

    def observers(self) -> list[Observer]:
        """Its observers."""
        return list(self._observed.active)


def build_handler(function_id: str, function: Function, frame: RegisterFunction) -> Handler:
    """The handler of a function; what `frame` does not say is taken from its docstring and type hints."""
    if not function_id.strip():
        raise DefinitionError("A function needs an id, such as demo::greet.")
    takes = _count_arguments(function_id, function)
    types = read_type_hints(function)
    first = next(iter(inspect.signature(function).parameters), "") if takes else ""
    hinted = types.get(first, Any)
    if frame.request_format is None:
        frame.request_format = request_format(hinted)
    if frame.response_format is None:
        frame.response_format = response_format(types.get("return", Any))
    if frame.description is None:
        frame.description = _describe(function)
    return Handler(frame, function, takes, build_converter(hinted), _is_async(function))


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


def _is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


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

    def answer(self, call: InvokeFunction) -> None:
        """Start to answer a call."""
        task = running_loop().create_task(self._answer(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel all calls."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, call: InvokeFunction) -> None:
        answer = InvocationResult(
            call.invocation_id, call.function_id, traceparent=call.traceparent, baggage=call.baggage
        )
        try:
            answer.result = await self._run(call)
            await self._reply(answer)
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
            payload = from_raw(call.data)
            if call.data is not UNSET and _CHANNEL_KEY in bytes(call.data):
                payload = self._resolve(payload)
            with run_as_handler(call):
                return Raw(encode_json(await handler.run(payload, from_raw(call.metadata), self._threads)))


def _failure(error: Exception, function_id: str) -> Failure:
    """An error as the caller gets it."""
    if isinstance(error, InvocationFailed):
        return Failure(error.code, error.message, error.stacktrace)
    _log.error("%s failed", function_id, exc_info=error)
    trace = "".join(traceback.format_exception(error))[-_MAX_TRACE_LENGTH:]
    return Failure("invocation_failed", str(error) or type(error).__name__, trace)
