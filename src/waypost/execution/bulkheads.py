"""Bulkheads: nobody takes all places; who wants more than their share waits for one of their own to be free."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from waypost.errors import Busy
from waypost.loops import running_loop

MAX_RUNNING: Final = 64
MAX_WAITING: Final = 10_000


class Bulkheads:
    """So many executions at once for each principal, others wait in queue."""

    def __init__(self, max_running: int = MAX_RUNNING, max_waiting: int = MAX_WAITING) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._running: dict[str, int] = {}
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting = 0

    def try_acquire(self, who: str) -> bool:
        """Take a place if one is free."""
        running = self._running.get(who, 0)
        if running >= self._max_running:
            return False
        self._running[who] = running + 1
        return True

    async def acquire(self, who: str) -> None:
        """Wait for a place; `Busy` when too many wait."""
        if self._waiting >= self._max_waiting:
            raise Busy(f"Busy: {self._max_waiting} executions are waiting already (maxWaiting); try again later.")
        future: asyncio.Future[None] = running_loop().create_future()
        queue = self._queues.setdefault(who, deque())
        queue.append(future)
        self._waiting += 1
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(who)  # the place came at the same moment
            elif future in queue:
                queue.remove(future)
            raise
        finally:
            self._waiting -= 1

    def reacquire(self, who: str) -> None:
        """Take a place again that was given back while somebody else was to act: nobody waits in queue twice."""
        self._running[who] = self._running.get(who, 0) + 1

    def release(self, who: str) -> None:
        """Give a place back, to the next in queue if there is one."""
        if self._queues and self._hand_over(who):
            return
        running = self._running[who] - 1
        if running:
            self._running[who] = running
        else:
            del self._running[who]

    def _hand_over(self, who: str) -> bool:
        queue = self._queues.get(who)
        while queue:
            future = queue.popleft()
            if not future.done():
                future.set_result(None)
                return True
        self._queues.pop(who, None)
        return False
