"""Fair shares: how units of something limited (threads, processes, tasks, streams, places in a queue) are divided.

`Shares` and `FairQueue` divide what all principals use; for executions each principal has slots of its own (`limits`).
The rule is that of switches which share one buffer among ports: a principal may take another unit while it holds less
than nine times what is free. One alone gets nine tenths of the units, two get nearly half each, and however greedy some
are, there is a unit left for the next. Limits below ten are too small to keep a unit back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Generic, TypeVar

from waypost.errors import Busy
from waypost.loops import running_loop

FACTOR: Final = 9
"""How many times the free units a principal may hold."""

T = TypeVar("T")


class Shares:
    """Counts who holds how many of `limit` units."""

    __slots__ = ("held", "limit", "total")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held: dict[str, int] = {}
        self.total = 0

    def try_take(self, principal: str, units: int = 1) -> bool:
        """Take units if a principal may have them."""
        held = self.held.get(principal, 0)
        if held >= FACTOR * (self.limit - self.total):
            return False
        self.held[principal] = held + units
        self.total += units
        return True

    def give_back(self, principal: str, units: int = 1) -> None:
        """Give units back."""
        left = self.held[principal] - units
        self.total -= units
        if left:
            self.held[principal] = left
        else:
            del self.held[principal]


class FairQueue(Generic[T]):
    """Items that each need a unit; those without one wait, and principals take turns when one is free.

    It knows nothing of threads or event loops: its owner starts the items it is handed.
    """

    def __init__(self, limit: int, max_waiting: int, name: str) -> None:
        self.running = Shares(limit)
        self._waiting = Shares(max_waiting)
        self._queues: dict[str, deque[T]] = {}
        self._name = name

    def enter(self, principal: str, item: T) -> bool:
        """Whether an item has a unit now; else it waits, or `Busy` is raised when too many do."""
        if principal not in self._queues and self.running.try_take(principal):
            return True
        if not self._waiting.try_take(principal):
            raise Busy(f"{self._waiting.total} {self._name} already; try again later.")
        self._queues.setdefault(principal, deque()).append(item)
        return False

    def leave(self, principal: str) -> list[T]:
        """Give a unit back; returns the items that have one now."""
        self.running.give_back(principal)
        started = []
        while (next_one := self._find_next()) is not None:
            started.append(self._pop(next_one))
        return started

    def withdraw(self, principal: str, item: T) -> bool:
        """Take an item out of the queue; false where it does not wait there any more."""
        queue = self._queues.get(principal)
        if queue is None or item not in queue:
            return False
        queue.remove(item)
        self._waiting.give_back(principal)
        if not queue:
            del self._queues[principal]
        return True

    def _find_next(self) -> str | None:
        return next((principal for principal in self._queues if self.running.try_take(principal)), None)

    def _pop(self, principal: str) -> T:
        queue = self._queues.pop(principal)
        item = queue.popleft()
        self._waiting.give_back(principal)
        if queue:
            self._queues[principal] = queue  # at the end: the others are next
        return item


class FairSlots:
    """Slots that coroutines wait for; the name ends the sentence that says how many wait."""

    def __init__(self, limit: int, max_waiting: int, name: str) -> None:
        self._queue: FairQueue[tuple[str, asyncio.Future[None]]] = FairQueue(limit, max_waiting, name)

    async def acquire(self, principal: str) -> None:
        """Wait for a slot; `Busy` when too many wait."""
        item = (principal, running_loop().create_future())
        if self._queue.enter(principal, item):
            return
        try:
            await item[1]
        except asyncio.CancelledError:
            if not self._queue.withdraw(principal, item) and not item[1].cancelled():
                self.release(principal)  # the slot came at the same moment
            raise

    def release(self, principal: str) -> None:
        """Give a slot back, to the next in the queue if there is one."""
        left = [principal]
        while left:
            for waiter, future in self._queue.leave(left.pop()):
                if future.done():  # cancelled in this turn of the loop
                    left.append(waiter)
                else:
                    future.set_result(None)
