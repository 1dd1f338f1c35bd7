"""Bulkheads: nobody takes all places; who wants more than their share waits for one of their own to be free."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from waypost.errors import Busy
from waypost.loops import running_loop

AT_ONCE: Final = 64
MOST_WAITING: Final = 10_000


class _Share:
    __slots__ = ("running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class Bulkheads:
    """So many executions at once for each principal, others wait in line."""

    def __init__(self, at_once: int = AT_ONCE, most_waiting: int = MOST_WAITING) -> None:
        self._at_once = at_once
        self._most_waiting = most_waiting
        self._waiting = 0
        self._shares: dict[str, _Share] = {}

    def try_enter(self, who: str) -> bool:
        """Take a place if one is free."""
        share = self._shares.get(who)
        if share is None:
            share = self._shares[who] = _Share()
        elif share.running >= self._at_once:
            return False
        share.running += 1
        return True

    async def enter(self, who: str) -> None:
        """Wait for a place; `Busy` when too many wait."""
        if self._waiting >= self._most_waiting:
            raise Busy(f"{self._most_waiting} executions are waiting already (maxWaiting); try again later.")
        future: asyncio.Future[None] = running_loop().create_future()
        waiting = self._shares[who].waiting
        waiting.append(future)
        self._waiting += 1
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.leave(who)  # the place came at the same moment
            elif future in waiting:
                waiting.remove(future)
            raise
        finally:
            self._waiting -= 1

    def leave(self, who: str) -> None:
        """Give a place back, to the next in line if there is one."""
        share = self._shares[who]
        while share.waiting:
            future = share.waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        share.running -= 1
        if not share.running:
            del self._shares[who]
