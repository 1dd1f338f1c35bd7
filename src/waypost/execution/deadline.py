"""Deadlines that really stop the work under them, and the one timer they share.

Most calls end long before their deadline. A timer for each would be a heap operation to set and one to cancel; instead
each is put in a set, and a single timer looks through the set every 20 ms while there is anything in it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Protocol

from waypost.errors import DeadlineExceeded
from waypost.execution.shares import Bulkheads
from waypost.loops import running_loop, running_task

TICK_S: Final = 0.02


class Timed(Protocol):
    """Something to call at a time of the loop's clock."""

    due: float

    def on_due(self) -> None: ...


class Ticker:
    """The shared timer of one event loop."""

    __slots__ = ("_is_ticking", "_waiting", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: set[Timed] = set()
        self._is_ticking = False

    def add(self, item: Timed, seconds: float) -> None:
        """Call `item.on_due` after so many seconds, give or take a tick, unless it is discarded before."""
        item.due = self.loop.time() + seconds
        self._waiting.add(item)
        if not self._is_ticking:
            self._is_ticking = True
            self.loop.call_later(TICK_S, self._tick)

    def discard(self, item: Timed) -> None:
        """Do not call `item`."""
        self._waiting.discard(item)

    def _tick(self) -> None:
        now = self.loop.time()
        for item in sorted((item for item in self._waiting if item.due <= now), key=lambda item: item.due):
            self._waiting.discard(item)
            item.on_due()
        self._is_ticking = bool(self._waiting)
        if self._is_ticking:
            self.loop.call_later(TICK_S, self._tick)


class _ThreadState(threading.local):
    clock: Ticker | None = None


_thread = _ThreadState()


_last: Ticker | None = None
"""The most recently used clock of any thread: nearly always the right one, without a thread-local lookup."""


def ticker() -> Ticker:
    """The shared timer of the loop that runs in this thread."""
    global _last
    clock, loop = _last, running_loop()
    if clock is None or clock.loop is not loop:
        clock = _thread.clock
        if clock is None or clock.loop is not loop:
            clock = _thread.clock = Ticker(loop)
        _last = clock
    return clock


_CANCEL_AGAIN_S: Final = 0.1


class Deadline:
    """Cancels the current task when time is up, again and again if that is ignored, and raises `DeadlineExceeded`."""

    __slots__ = ("_cancels", "_left", "_pauses", "_principal", "_seconds", "_slots", "_task", "_ticker", "due")

    def __init__(self, seconds: float, slots: Bulkheads | None = None, principal: str | None = None) -> None:
        self.due = 0.0
        self._seconds = seconds
        self._slots = slots
        self._principal = principal
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
        """Stop the clock and give the slot back while the call waits for its client; pauses may overlap."""
        if self._pauses == 0:
            self._left = max(0.0, self.due - self._ticker.loop.time())
            self._ticker.discard(self)
            if self._slots is not None and self._principal is not None:
                self._slots.release(self._principal)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._ticker.add(self, self._left)
                if self._slots is not None and self._principal is not None:
                    self._slots.reacquire(self._principal)

    def on_due(self) -> None:
        """Cancel the work, and look again whether it did stop."""
        self._cancels += 1
        self._task.cancel()
        self._ticker.add(self, _CANCEL_AGAIN_S)

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
