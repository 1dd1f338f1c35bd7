"""The functions that a worker offers: how each is described to the engine, and how it is run."""

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

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.results import encode_json
from waypost.errors import DefinitionError, InvocationFailed
from waypost.loops import maybe_await, running_loop
from waypost.worker.formats import Read, known_types, reader, request_format, response_format
from waypost.worker.invocations import Send, answering
from waypost.worker.observed_functions import Observer, Owned
from waypost.workers.frames import Failure, Given, InvocationResult, InvokeFunction, RegisterFunction, encode

Function: TypeAlias = Callable[..., Any]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MOST = 2


@dataclass(frozen=True, slots=True)
class Handler:
    """A function of the worker's program: plain or asynchronous, with the payload and perhaps its metadata."""

    frame: RegisterFunction
    function: Function
    takes: int
    read: Read | None
    is_async: bool

    async def run(self, payload: Any, metadata: Any, threads: Executor) -> Any:
        """What the function answers; a plain one is run in a thread."""
        given = (payload if self.read is None else self.read(payload), metadata)[: self.takes]
        if self.is_async:
            return await self.function(*given)
        call = contextvars.copy_context().run
        return await maybe_await(
            await asyncio.get_running_loop().run_in_executor(threads, call, self.function, *given),
        )


class FunctionRef:
    """A function that is offered; it can be called as before."""

    def __init__(self, function: Function, owned: Owned, unregister: Callable[[], None]) -> None:
        self.id = owned.function_id
        self.unregister = unregister
        self._function = function
        self._owned = owned

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the function itself, without the engine."""
        return self._function(*given, **named)

    def is_observed(self) -> bool:
        """Whether anybody observes it."""
        return bool(self._owned.active)

    def observers(self) -> list[Observer]:
        """Those who observe it."""
        return list(self._owned.active)


def handler_of(function_id: str, function: Function, told: RegisterFunction) -> Handler:
    """The handler that a function makes; what is not told about it is taken from the function itself."""
    if not function_id.strip():
        raise DefinitionError("A function needs an id, such as demo::greet.")
    takes = _takes(function_id, function)
    types = known_types(function)
    first = next(iter(inspect.signature(function).parameters), "") if takes else ""
    hinted = types.get(first, Any)
    if told.request_format is None:
        told.request_format = request_format(hinted)
    if told.response_format is None:
        told.response_format = response_format(types.get("return", Any))
    if told.description is None:
        told.description = _described(function)
    return Handler(told, function, takes, reader(hinted), _is_async(function))


def _takes(function_id: str, function: Function) -> int:
    if not callable(function):
        raise DefinitionError(f"The handler of {function_id} is {function!r}, which cannot be called.")
    parameters = list(inspect.signature(function).parameters.values())
    required = [one for one in parameters if one.default is one.empty and one.kind in _POSITIONAL]
    named = [one for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if len(required) > _MOST or named:
        raise DefinitionError(f"The handler of {function_id} takes (payload) or (payload, metadata).")
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return _MOST
    return min(sum(one.kind in _POSITIONAL for one in parameters), _MOST)


def _described(function: Function) -> str | None:
    lines = (inspect.getdoc(function) or "").strip().splitlines() if inspect.isroutine(function) else []
    return lines[0] if lines else None


def _is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


_log: Final = logging.getLogger(__name__)
_MOST_WAITING: Final = 10_000
_THREADS: Final = 32
_LONGEST_TRACE: Final = 10_000
_CHANNEL: Final = b'"access_key"'
"""What stands in every reference of a channel, so that other payloads need not be looked through."""


class Serving:
    """The functions of one worker, and the calls of them that are not answered yet.

    At most so many run at once; a function that waits for another of the same worker holds its place meanwhile.
    """

    def __init__(self, send: Send, most: int, resolve: Callable[[Any], Any]) -> None:
        self.handlers: dict[str, Handler] = {}
        self._send = send
        self._resolve = resolve
        self._places = asyncio.Semaphore(most)
        self._threads = ThreadPoolExecutor(min(most, _THREADS), thread_name_prefix="waypost-worker")
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, call: InvokeFunction) -> None:
        """Begin to answer a call."""
        task = running_loop().create_task(self._serve(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Stop what runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _serve(self, call: InvokeFunction) -> None:
        answer = InvocationResult(
            call.invocation_id, call.function_id, traceparent=call.traceparent, baggage=call.baggage
        )
        try:
            answer.result = await self._answered(call)
            await self._reply(answer)
        except Exception as error:
            answer.result, answer.error = UNSET, Raw(encode(_failure(error, call.function_id)))
            await self._reply(answer)

    async def _reply(self, answer: InvocationResult) -> None:
        if answer.invocation_id is not None:
            await self._send(answer)

    async def _answered(self, call: InvokeFunction) -> Raw:
        handler = self.handlers.get(call.function_id)
        if handler is None:
            raise InvocationFailed(f"Function {call.function_id} not found.", "function_not_found")
        if len(self._tasks) > _MOST_WAITING:
            raise InvocationFailed(f"{_MOST_WAITING} calls wait here already; try again later.", "busy")
        async with self._places:
            payload = _value(call.data)
            if call.data is not UNSET and _CHANNEL in bytes(call.data):
                payload = self._resolve(payload)
            with answering(call):
                return Raw(encode_json(await handler.run(payload, _value(call.metadata), self._threads)))


def _value(given: Given) -> Any:
    return None if given is UNSET else msgspec.json.decode(given)


def _failure(error: Exception, function_id: str) -> Failure:
    """What the caller is told of an error."""
    if isinstance(error, InvocationFailed):
        return Failure(error.code, error.message, error.stacktrace)
    _log.error("%s failed", function_id, exc_info=error)
    trace = "".join(traceback.format_exception(error))[-_LONGEST_TRACE:]
    return Failure("invocation_failed", str(error) or type(error).__name__, trace)
