"""Calls that are watched: run as any other, and told to observers when they end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from msgspec import UNSET, Raw

from waypost.errors import InvocationFailed, WaypostError
from waypost.workers.failures import failure_of
from waypost.workers.frames import Failure, encode
from waypost.workers.functions import Call, Function
from waypost.workers.observing.events import Event, parts_of
from waypost.workers.observing.observers import Observer
from waypost.workers.worker import invocation_id

MOST_FOLLOWED: Final = 1_000
"""Calls of one function that nobody but observers waits for; of more the end is not seen."""
_STOPPED: Final = Failure("invocation_stopped", "Invocation stopped: nobody waits for it any more.")


class Watch:
    """The observers of a function, and how it is run for them."""

    __slots__ = ("_fire", "_followed", "_function", "observers")

    def __init__(self, function: Function, fire: Callable[[Observer, Event], None]) -> None:
        self._function = function
        self._fire = fire
        self._followed = 0
        self.observers: dict[Observer, None] = {}

    async def run(self, call: Call) -> Raw:
        """Run the function, and tell whoever wants to know how it ended."""
        if not call.is_void:
            return await self._run(call)
        if self._followed >= MOST_FOLLOWED:
            return await self._function.run(call)
        call.is_void = False  # nobody waits for it, but observers want to know how it ends
        self._followed += 1
        try:
            return await self._run(call)
        finally:
            self._followed -= 1

    async def _run(self, call: Call) -> Raw:
        call.invocation = invocation_id()
        observers = tuple(self.observers)  # who comes later has not seen it begin
        started, began = time.time(), time.perf_counter()
        try:
            answer = await self._function.run(call)
        except BaseException as error:
            failure = _failure(error)
            if failure is not None:
                self._tell(observers, call, started, began, error=Raw(encode(failure)))
            raise
        self._tell(observers, call, started, began, output=answer)
        return answer

    def _tell(self, observers: tuple[Observer, ...], call: Call, started: float, began: float, **end: Raw) -> None:
        event = Event(
            function=self._function,
            invocation_id=call.invocation,
            status="error" if "error" in end else "success",
            parts=parts_of(
                input=call.data,
                caller=UNSET if call.origin is None else Raw(encode(call.origin)),
                metadata=call.metadata,
                **end,
            ),
            started_at_ms=int(started * 1000),
            duration_ms=round((time.perf_counter() - began) * 1000, 3),
            depth=call.observe_depth,
            traceparent=call.traceparent,
            baggage=call.baggage,
        )
        for observer in observers:
            if observer.wants(event.status) and event.matches(observer.filter):
                self._fire(observer, event)


def _failure(error: BaseException) -> Failure | None:
    """What observers hear of an error; nothing of what ends the process."""
    if isinstance(error, InvocationFailed):
        return Failure(error.code, error.message)
    if isinstance(error, WaypostError):
        return failure_of(error)
    if isinstance(error, asyncio.CancelledError):
        return _STOPPED
    if isinstance(error, Exception):
        return Failure("invocation_error", f"{type(error).__name__}: {error}")
    return None
