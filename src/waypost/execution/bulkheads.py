"""Bulkheads: nobody takes all places; who wants more than their share waits for one of their own to be free."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from waypost.errors import Busy
from waypost.loops import running_loop

AT_ONCE: Final = 64
MOST_WAITING: Final = 10_000


class Bulkheads:
    """So many executions at once for each principal, others wait in line."""

    def __init__(self, at_once: int = AT_ONCE, most_waiting: int = MOST_WAITING) -> None:
        self._at_once = at_once
        self._most_waiting = most_waiting
        self._running: dict[str, int] = {}
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting = 0

    def try_enter(self, who: str) -> bool:
        """Take a place if one is free."""
        running = self._running.get(who, 0)
        if running >= self._at_once:
            return False
        self._running[who] = running + 1
        return True

    async def enter(self, who: str) -> None:
        """Wait for a place; `Busy` when too many wait."""
        if self._waiting >= self._most_waiting:
            raise Busy(f"Busy: {self._most_waiting} executions are waiting already (maxWaiting); try again later.")
        future: asyncio.Future[None] = running_loop().create_future()
        line = self._lines.setdefault(who, deque())
        line.append(future)
        self._waiting += 1
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.leave(who)  # the place came at the same moment
            elif future in line:
                line.remove(future)
            raise
        finally:
            self._waiting -= 1

    def return_to(self, who: str) -> None:
        """Take a place again that was given back while somebody else was to act: nobody waits in line twice."""
        self._running[who] = self._running.get(who, 0) + 1

    def leave(self, who: str) -> None:
        """Give a place back, to the next in line if there is one."""
        if self._lines and self._is_handed_on(who):
            return
        running = self._running[who] - 1
        if running:
            self._running[who] = running
        else:
            del self._running[who]

    def _is_handed_on(self, who: str) -> bool:
        line = self._lines.get(who)
        while line:
            future = line.popleft()
            if not future.done():
                future.set_result(None)
                return True
        self._lines.pop(who, None)
        return False
