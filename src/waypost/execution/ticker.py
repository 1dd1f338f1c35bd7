"""One clock for everything that has to happen if something else has not: cheaper than a timer for each.

Most calls end long before anybody looks. So they only put themselves down here, and a single timer goes round a few
times a second, while there is anything to look at, and rings those whose time has come.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final, Protocol

from waypost.loops import running_loop

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
