"""The limits of executions: a deadline that really stops the work under it, slots, and fair shares of what is limited.

A deadline gives the slot back while its call waits for the client. Where replicas share a store, `SharedBulkheads` has
the slots of a principal at all of them. Most calls end long before their deadline. A timer for each would be a heap
operation to set and one to cancel; instead each is put in a set, and a single timer looks through the set every 20 ms
while there is anything in it.

Fair shares: how units of something limited (threads, processes, tasks, streams, places in a queue) are divided.

`Shares` and `FairQueue` divide what all principals use; for executions each principal has slots of its own.
The rule is that of switches which share one buffer among ports: a principal may take another unit while it holds less
than nine times what is free. One alone gets nine tenths of the units, two get nearly half each, and however greedy some
are, there is a unit left for the next. Limits below ten are too small to keep a unit back.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from time import monotonic
from types import TracebackType
from typing import Final, Generic, Protocol, TypeVar

from waypost.errors import Busy, DeadlineExceeded
from waypost.execution.budgets import RETRY_S, Budgets, Lease
from waypost.loops import running_loop, running_task
from waypost.settings import Server

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
        if self.held.get(principal, 0) >= FACTOR * (self.limit - self.total):
            return False
        self.take(principal, units)
        return True

    def take(self, principal: str, units: int) -> None:
        """Count units that a principal has already."""
        self.held[principal] = self.held.get(principal, 0) + units
        self.total += units

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
        # A principal with items in the queue gets in line: a new item must not overtake them.
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


TICK_S: Final = 0.02
_DEFAULTS: Final = Server()


class Timed(Protocol):
    """Something to call at a time of the loop's clock."""

    due: float

    def on_due(self) -> None: ...


class Ticker:
    """The shared timer of one event loop."""

    __slots__ = ("_is_ticking", "loop", "thread", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread = threading.get_ident()
        self.waiting: set[Timed] = set()
        """What has not been called yet; an item that is removed is not called."""
        self._is_ticking = False

    def add(self, item: Timed, seconds: float) -> None:
        """Call `item.on_due` after so many seconds, give or take a tick, unless it leaves `waiting` before."""
        item.due = self.loop.time() + seconds
        self.waiting.add(item)
        if not self._is_ticking:
            self._is_ticking = True
            self.loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now = self.loop.time()
        for item in sorted((item for item in self.waiting if item.due <= now), key=lambda item: item.due):
            self.waiting.discard(item)
            item.on_due()
        self._is_ticking = bool(self.waiting)
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
    clock = _last
    # A new thread may get the identifier of one that ended, so the loop has to be running as well.
    if clock is None or clock.thread != threading.get_ident() or not clock.loop.is_running():
        clock, loop = _thread.clock, running_loop()
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
        self._task: asyncio.Task[object] | None = None
        self._cancels = 0
        self._pauses = 0

    def __enter__(self) -> Deadline:
        self._ticker = clock = ticker()
        self._task = running_task(clock.loop)
        clock.add(self, self._seconds)
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
            self._ticker.waiting.discard(self)
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
        if self._task is not None:
            self._task.cancel()
        # A handler may swallow the cancellation, or wait for something else in a `finally`.
        self._ticker.add(self, _CANCEL_AGAIN_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticker.waiting.discard(self)
        if not self._cancels:
            if kind is asyncio.CancelledError:
                # The task keeps this error, and the error by its traceback this deadline: with the task in it, only
                # the garbage collector could free what the call refers to.
                self._task = None
            return
        for _ in range(self._cancels):
            remaining = self._task.uncancel() if self._task is not None else 0
        # The task was cancelled from elsewhere too, and that cancellation goes on.
        if kind is asyncio.CancelledError and remaining:
            return
        # Even where the work came to an end: it ignored its cancellation and is late.
        raise DeadlineExceeded from error


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

    async def acquire(self, principal: str, within: float) -> None:
        """Wait for a slot; `Busy` when too many wait, or when there is none within so many seconds."""
        if not self._waiting.try_take(principal):
            raise Busy(f"Busy: {self._waiting.total} executions are waiting already (maxWaiting); try again later.")
        future: asyncio.Future[None] = running_loop().create_future()
        queue = self._queues.setdefault(principal, deque())
        queue.append(future)
        try:
            with Deadline(within):
                await future
        except (asyncio.CancelledError, DeadlineExceeded) as error:
            if future.done() and not future.cancelled():
                if future.exception() is None:
                    self.release(principal)  # the slot came at the same moment
            elif future in queue:
                queue.remove(future)
                # Not left to a release: one may never come, where the slots of the principal are at another replica.
                if not queue and self._queues.get(principal) is queue:
                    del self._queues[principal]
            if isinstance(error, asyncio.CancelledError):
                raise
            raise Busy(
                f"Busy: {self._max_running} executions of this principal run already (maxRunning), and none ended "
                f"within {within:g} s; try again later."
            ) from None
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


class _SlotLease(Lease):
    """The slots of one principal at this replica."""

    __slots__ = ("_principal", "_running")

    def __init__(self, principal: str, limit: int, running: dict[str, int]) -> None:
        # The id of a principal may be too long for a key of the store.
        digest = sha256(principal.encode(errors="backslashreplace")).hexdigest()
        super().__init__(f"running:{digest}", limit, 0.0)
        self._principal = principal
        self._running = running

    def count_used(self) -> int:
        return self._running.get(self._principal, 0)

    def is_used_since(self, moment: float) -> bool:
        return self._principal in self._running


class SharedBulkheads(Bulkheads):
    """The slots of all principals at all replicas together; each replica leases some of each principal's.

    A call that waits gets a slot that is free here, or one that another replica returns. While the store is out of
    reach a replica uses what it has leased; when no lease of any replica can be valid any longer, each has an equal
    share.
    """

    def __init__(self, max_running: int, max_waiting: int, budgets: Budgets) -> None:
        super().__init__(max_running, max_waiting)
        self._budgets = budgets
        self._leases: dict[str, _SlotLease] = {}
        self._filling: dict[str, asyncio.Task[None]] = {}

    def try_acquire(self, principal: str) -> bool:
        """Take a slot if one is free here."""
        lease = self._leases.get(principal)
        running = self._running.get(principal, 0)
        if lease is None or running >= lease.units or monotonic() >= lease.until:
            return False
        self._running[principal] = running + 1
        return True

    async def acquire(self, principal: str, within: float) -> None:
        """Wait for a slot; `Busy` also when the store is out of reach and nothing is leased."""
        if principal not in self._filling:
            filling = running_loop().create_task(self._fill(principal))
            self._filling[principal] = filling
            filling.add_done_callback(lambda _: self._filling.pop(principal))
        await super().acquire(principal, within)

    def release(self, principal: str) -> None:
        """Give a slot back: to a replica that waits for one, else to the next in the queue if there is one."""
        self._lower(principal)
        wanted = self._budgets.wanted
        if wanted and (lease := self._leases.get(principal)) in wanted:
            self._budgets.give_up(lease)
        elif self._queues:
            self._grant(principal)

    def _lower(self, principal: str) -> None:
        # `Bulkheads.release` has these lines in place: it runs with every call of hubs that share nothing.
        running = self._running[principal] - 1
        if running:
            self._running[principal] = running
        else:
            del self._running[principal]

    async def _fill(self, principal: str) -> None:
        """Get slots for those that wait, until none does."""
        while self._queues.get(principal):
            if self._grant(principal):
                continue
            lease = self._leases.get(principal) or self._budgets.add(
                _SlotLease(principal, self._max_running, self._running), self._leases, principal
            )
            now = monotonic()
            if lease is not None and now >= lease.refused_until:
                await asyncio.wait({self._budgets.ask(lease)})
                continue
            if lease is None or (now >= lease.until and self._budgets.is_failing and not self._budgets.is_cut_off):
                self._refuse(principal)
            else:
                await asyncio.sleep(RETRY_S)

    def _grant(self, principal: str) -> bool:
        """Give a free slot to the next in the queue; false where there is no slot, or nothing waits."""
        if not self.try_acquire(principal):
            running = self._running.get(principal, 0)
            if not self._budgets.is_cut_off or running >= self._max_running // (1 + len(self._budgets.others)):
                return False
            self._running[principal] = running + 1
        if self._hand_over(principal):
            return True
        self._lower(principal)
        return False

    def _refuse(self, principal: str) -> None:
        for future in self._queues.pop(principal):
            if not future.done():
                future.set_exception(
                    Busy("Busy: the store cannot be reached, and this replica has no slots leased; try again later.")
                )
