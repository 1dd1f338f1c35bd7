"""How observers come to hear of something: their functions are called, so many at once and so deep as is allowed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec import Raw

from waypost.errors import InvocationFailed, WaypostError
from waypost.loops import running_loop
from waypost.workers.calling import Calling, caller_of
from waypost.workers.failures import failure_of
from waypost.workers.frames import Activation
from waypost.workers.functions import Call
from waypost.workers.listeners import Listener
from waypost.workers.observing.events import Event
from waypost.workers.observing.observers import Observer
from waypost.workers.worker import invocation_id

_log: Final = logging.getLogger(__name__)
DEEPEST: Final = 8
"""Observers that may hear of each other in a row."""
MOST_WAITING: Final = 10_000
"""Activations of one observer that wait for their turn."""
MOST_OF_ONE: Final = 20_000
"""Activations of all observers of one worker."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes that wait for one observer."""


class Delivering:
    """Calls the functions of observers."""

    def __init__(self, calling: Calling, used_up: Callable[[Observer], None]) -> None:
        self._calling = calling
        self._used_up = used_up
        self._tasks: set[asyncio.Task[None]] = set()
        self._of: Counter[Listener] = Counter()

    @property
    def running(self) -> int:
        """How many activations run or wait that nobody asked for an answer."""
        return len(self._tasks)

    async def close(self) -> None:
        """Stop them all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def fire(self, observer: Observer, event: Event) -> None:
        """Let an observer hear of something, if it can."""
        if event.depth >= DEEPEST:
            _miss(observer, f"{event.depth} observers stand before it already")
            return
        if self._is_full(observer):
            _miss(observer, "too much waits to be delivered already")
            return
        activation = invocation_id()
        call = Call(
            observer.target[1],
            event.told(observer, activation),
            observer.metadata,
            event.traceparent,
            event.baggage,
            event.origin,
            observer.maker.id,
            event.depth + 1,
            activation=Activation(observer.id, activation),
        )
        self._start(observer, call)
        self._count(observer)

    async def call(self, observer: Observer, call: Call) -> Raw:
        """Make the call of an owner to an observer's function, and wait for what it answers."""
        if call.observe_depth >= DEEPEST:
            why = f"{call.observe_depth} observers stand before this one already."
            raise InvocationFailed(why, "OBSERVE_DEPTH_EXCEEDED")
        call.function_id = observer.target[1]
        call.metadata = observer.metadata
        call.sender = observer.maker.id
        call.observe_depth += 1
        call.activation = Activation(observer.id, invocation_id())
        observer.unfinished += 1
        self._count(observer)
        try:
            return await self._made(observer, call)
        finally:
            observer.unfinished -= 1

    def _is_full(self, observer: Observer) -> bool:
        return (
            observer.unfinished >= observer.max_in_flight + MOST_WAITING
            or observer.held >= MOST_BYTES
            or self._of[observer.maker] >= MOST_OF_ONE
        )

    def _start(self, observer: Observer, call: Call) -> None:
        task = running_loop().create_task(self._deliver(observer, call))
        self._tasks.add(task)
        self._of[observer.maker] += 1
        observer.unfinished += 1
        observer.held += len(call.data)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            observer.held -= len(call.data)
            observer.unfinished -= 1
            self._of[observer.maker] -= 1
            if not self._of[observer.maker]:
                del self._of[observer.maker]

        task.add_done_callback(done)

    def _count(self, observer: Observer) -> None:
        observer.fires += 1
        if observer.max_fires is not None and observer.fires >= observer.max_fires:
            self._used_up(observer)

    async def _deliver(self, observer: Observer, call: Call) -> None:
        try:
            await self._made(observer, call)
        except WaypostError as error:
            _log.debug("the observer %s could not be told: %s", observer.id, error.message)
        except Exception as error:
            failure_of(error)

    async def _made(self, observer: Observer, call: Call) -> Raw:
        namespace, function_id = observer.target
        async with observer.places:
            if observer.is_dropped:
                raise InvocationFailed(f"The observer {observer.id} is not active.", "OBSERVER_NOT_ACTIVE")
            return await self._calling.invoke(function_id, call, caller_of(observer.maker), namespace=namespace)


def _miss(observer: Observer, why: str) -> None:
    observer.missed += 1
    if observer.missed % 1000 == 1:
        _log.warning("the observer %s missed %d events so far: %s", observer.id, observer.missed, why)
