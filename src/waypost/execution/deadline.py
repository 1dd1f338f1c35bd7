"""A deadline that really stops the work under it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Protocol

from waypost.errors import DeadlineExceeded
from waypost.execution.bulkheads import Bulkheads
from waypost.loops import running_loop, running_task

TICK: Final = 0.02


class Ringing(Protocol):
    """Something that is due at a time of the loop."""

    due: float

    def ring(self) -> None: ...


class Ticker:
    """The clock of one event loop."""

    __slots__ = ("_is_ticking", "_waiting", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: set[Ringing] = set()
        self._is_ticking = False

    def add(self, item: Ringing, seconds: float) -> None:
        """Ring `item` in so many seconds, give or take a tick, unless it is discarded before."""
        item.due = self.loop.time() + seconds
        self._waiting.add(item)
        if not self._is_ticking:
            self._is_ticking = True
            self.loop.call_later(TICK, self._tick)

    def discard(self, item: Ringing) -> None:
        """Forget about `item`."""
        self._waiting.discard(item)

    def _tick(self) -> None:
        now = self.loop.time()
        for item in sorted((item for item in self._waiting if item.due <= now), key=lambda item: item.due):
            self._waiting.discard(item)
            item.ring()
        self._is_ticking = bool(self._waiting)
        if self._is_ticking:
            self.loop.call_later(TICK, self._tick)


class _Here(threading.local):
    clock: Ticker | None = None


_here = _Here()


_last: Ticker | None = None
"""The clock that was asked for last, in whichever thread."""


def ticker() -> Ticker:
    """The clock of the loop that runs in this thread."""
    global _last
    clock, loop = _last, running_loop()
    if clock is None or clock.loop is not loop:
        clock = _here.clock
        if clock is None or clock.loop is not loop:
            clock = _here.clock = Ticker(loop)
        _last = clock
    return clock


_INSIST_AFTER: Final = 0.1


class Deadline:
    """Cancels the current task when time is up, again and again if it does not listen, and says so."""

    __slots__ = ("_cancels", "_left", "_pauses", "_seconds", "_slots", "_task", "_ticker", "_who", "due")

    def __init__(self, seconds: float, slots: Bulkheads | None = None, who: str | None = None) -> None:
        self.due = 0.0
        self._seconds = seconds
        self._slots = slots
        self._who = who
        self._cancels = 0
        self._pauses = 0

    def __enter__(self) -> Deadline:
        self._task = running_task()
        self._ticker = ticker()
        self._ticker.add(self, self._seconds)
        return self

    @property
    def expired(self) -> bool:
        """Whether time is up."""
        return self._cancels > 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stand still, and leave the place to others, while somebody else is to act; pauses may overlap."""
        if self._pauses == 0:
            self._left = max(0.0, self.due - self._ticker.loop.time())
            self._ticker.discard(self)
            if self._slots is not None and self._who is not None:
                self._slots.release(self._who)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._ticker.add(self, self._left)
                if self._slots is not None and self._who is not None:
                    self._slots.reacquire(self._who)

    def ring(self) -> None:
        """Time is up: stop the work, and look again whether it did stop."""
        self._cancels += 1
        self._task.cancel()
        self._ticker.add(self, _INSIST_AFTER)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticker.discard(self)
        if not self._cancels:
            return
        for _ in range(self._cancels):
            remaining = self._task.uncancel()
        if kind is asyncio.CancelledError and remaining:
            return
        raise DeadlineExceeded from error
