"""Bulkheads: each principal has a limited number of slots for executions, so that none can take all of the hub."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from waypost.errors import Busy
from waypost.execution.shares import Shares
from waypost.loops import running_loop
from waypost.settings import Server

_DEFAULTS: Final = Server()


class Bulkheads:
    """The slots of all principals; executions without a free one wait in a queue per principal."""

    def __init__(self, max_running: int = _DEFAULTS.max_running, max_waiting: int = _DEFAULTS.max_waiting) -> None:
        self._max_running = max_running
        self._running: dict[str, int] = {}
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting = Shares(max_waiting)

    def try_acquire(self, principal: str) -> bool:
        """Take a slot if one is free."""
        running = self._running.get(principal, 0)
        if running >= self._max_running:
            return False
        self._running[principal] = running + 1
        return True

    async def acquire(self, principal: str) -> None:
        """Wait for a slot; `Busy` when too many wait."""
        if not self._waiting.try_take(principal):
            raise Busy(f"Busy: {self._waiting.total} executions are waiting already (maxWaiting); try again later.")
        future: asyncio.Future[None] = running_loop().create_future()
        queue = self._queues.setdefault(principal, deque())
        queue.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(principal)  # the slot came at the same moment
            elif future in queue:
                queue.remove(future)
            raise
        finally:
            self._waiting.give_back(principal)

    def reacquire(self, principal: str) -> None:
        """Take a slot again after a pause, over the limit if need be: a call waits in the queue only once."""
        self._running[principal] = self._running.get(principal, 0) + 1

    def release(self, principal: str) -> None:
        """Give a slot back, to the next in the queue if there is one."""
        if self._queues and self._hand_over(principal):
            return
        running = self._running[principal] - 1
        if running:
            self._running[principal] = running
        else:
            del self._running[principal]

    def _hand_over(self, principal: str) -> bool:
        queue = self._queues.get(principal)
        while queue:
            future = queue.popleft()
            if not future.done():
                future.set_result(None)
                return True
        self._queues.pop(principal, None)
        return False
