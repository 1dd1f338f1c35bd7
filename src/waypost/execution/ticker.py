"""One clock for everything that has to happen if something else has not: cheaper than a timer for each.

Most calls end long before anybody looks. So they only put themselves down here, and a single timer goes round a few
times a second, while there is anything to look at, and rings those whose time has come.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

TICK: Final = 0.02


class Ringing(Protocol):
    """Something that is due at a time of the loop."""

    due: float

    def ring(self) -> None: ...


class Ticker:
    """The clock of one event loop."""

    __slots__ = ("_is_ticking", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: set[Ringing] = set()
        self._is_ticking = False

    def add(self, item: Ringing, seconds: float) -> None:
        """Ring `item` in so many seconds, give or take a tick, unless it is discarded before."""
        item.due = self._loop.time() + seconds
        self._waiting.add(item)
        if not self._is_ticking:
            self._is_ticking = True
            self._loop.call_later(TICK, self._tick)

    def discard(self, item: Ringing) -> None:
        """Forget about `item`."""
        self._waiting.discard(item)

    def _tick(self) -> None:
        now = self._loop.time()
        for item in [item for item in self._waiting if item.due <= now]:
            self._waiting.discard(item)
            item.ring()
        self._is_ticking = bool(self._waiting)
        if self._is_ticking:
            self._loop.call_later(TICK, self._tick)


_latest: Ticker | None = None
_latest_loop: asyncio.AbstractEventLoop | None = None


def ticker(loop: asyncio.AbstractEventLoop) -> Ticker:
    """The clock of a loop."""
    global _latest, _latest_loop
    if _latest is None or _latest_loop is not loop:
        _latest, _latest_loop = Ticker(loop), loop
    return _latest
