"""Answering the engine's calls: a few at a time, each in a task of its own."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.results import encode_json
from waypost.errors import InvocationFailed
from waypost.loops import running_loop
from waypost.worker.calls import Send
from waypost.worker.handlers import Handler
from waypost.worker.invocations import answering
from waypost.workers.frames import Failure, Given, InvocationResult, InvokeFunction, encode

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
