"""Limits that hold for all replicas together: each leases units of a limit from the store, and counts by itself.

A lease is a part of a limit, not a number of calls: a replica with 4 of the 10 calls a minute may make 4 in any minute.
It takes a round trip to get one, and none to use it. A replica that needs more asks the store; if nothing is free it
asks the others over the bus to return what they do not use. Leases of a replica that dies expire by the clock of the
database, when it can no longer use them and what it used no longer counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import msgspec

from waypost.buses import Bus, LocalBus
from waypost.errors import PolicyDenied, StaleVersion, StoreError, StoreUnavailable
from waypost.loops import cancel_tasks, wait_for_event
from waypost.stores.replicas import Budget, BudgetStore, Holding
from waypost.stores.store import Store

_log: Final = logging.getLogger(__name__)
LEASE_S: Final = 15.0
"""How long a lease may be used after it was last renewed; so long the units of a replica that was killed are lost."""
ROUND_S: Final = 5.0
"""How often leases in use are renewed, and others returned."""
GRACE_S: Final = 1.0
"""What two replicas may disagree about the time of the database."""
RETRY_S: Final = 0.25
"""How long a replica that got nothing refuses without asking again."""
ANSWER_S: Final = 1.0
"""How long to wait for other replicas to return what they do not use."""
MAX_LEASES: Final = 100_000
MAX_ATTEMPTS: Final = 20
"""How often a lease is asked for again because other calls, or other replicas, were faster."""
_BATCH: Final = 200
_WANTED: Final = "budget.wanted"
_RETURNED: Final = "budget.returned"


class _Notice(msgspec.Struct, frozen=True, array_like=True):
    """A replica wants units of a budget, or has returned those that it does not use."""

    replica: str
    budget: str


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Notice).decode


class Lease(ABC):
    """The units of one limit that this replica holds; a subclass counts what is in use."""

    __slots__ = (
        "asking",
        "budget",
        "limit",
        "lock",
        "refused_until",
        "returning",
        "units",
        "until",
        "window",
    )

    def __init__(self, budget_id: str, limit: int, window: float) -> None:
        self.limit = limit
        self.window = window
        """How many seconds a unit counts after its use has begun."""
        self.units = 0
        self.until = 0.0
        """Until when they may be used, by the monotonic clock."""
        self.refused_until = 0.0
        """Until when there is no use in asking for more, by the monotonic clock."""
        self.budget = Budget(budget_id, 0, {})
        """As it was last seen; the store refuses a change of any other version."""
        self.lock = asyncio.Lock()
        self.asking: asyncio.Task[None] | None = None
        self.returning: asyncio.Task[bool] | None = None

    async def wait(self) -> None:
        """Wait until it is known whether there is more; one that was asked for knows at most seconds later."""
        if self.asking is not None:
            await asyncio.wait({self.asking})

    @abstractmethod
    def count_used(self) -> int:
        """How many units are in use."""

    @abstractmethod
    def is_used_since(self, moment: float) -> bool:
        """Whether a unit was in use after a time of the monotonic clock, other than by counting on."""


class LeaseNeeded(PolicyDenied):
    """A limit may admit the call, but this replica has no unit left; those that can wait get one and ask again."""

    def __init__(self, message: str, rule_type: str, lease: Lease, rule: str = "") -> None:
        super().__init__(message, rule_type, rule)
        self.lease = lease


L = TypeVar("L", bound=Lease)


class Budgets:
    """The leases of one replica."""

    def __init__(self, store: Store, bus: Bus, replica: str) -> None:
        self.wanted: set[Lease] = set()
        """Those of which another replica waits for the next unit that is released."""
        self.others: Collection[str] = ()
        """The ids of the other replicas that are alive."""
        self._store = store
        self._rows = BudgetStore(store.database)
        self._bus = bus
        self._replica = replica
        self._leases: dict[str, tuple[Lease, dict[Any, Any], Any]] = {}
        """By the id of the budget, each with the table of its owner and the key there."""
        self._awaited: dict[str, tuple[set[str], asyncio.Event]] = {}
        """The replicas that have not returned units of a budget yet, although they were asked to."""
        self._failing_since: float | None = None
        self._rounds: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return what other replicas ask for, renew what is used, and return the rest."""
        # Locks and tasks of leases belong to the loop that ran before.
        for budget_id in tuple(self._leases):
            self._forget(budget_id)
        if not isinstance(self._bus, LocalBus):
            await self._bus.subscribe(_WANTED, self._return_to)
            await self._bus.subscribe(_RETURNED, self._note_return)
        self._rounds = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Return everything that is not in use."""
        await cancel_tasks([] if self._rounds is None else [self._rounds])
        leases = [lease for lease, _, _ in self._leases.values()]
        await cancel_tasks([lease.asking for lease in leases if lease.asking is not None])
        with suppress(StoreError):
            await _run_batched([self._shrink(lease) for lease in leases])

    def add(self, lease: L, table: dict[Any, L], key: Any) -> L | None:
        """Put a lease into the table of its owner until nothing uses it, or the one that there is of the same budget.

        `None` where there are too many.
        """
        budget_id = lease.budget.id
        if budget_id in self._leases:  # of the same rule, before it was compiled again
            lease = cast(L, self._leases[budget_id][0])
        elif len(self._leases) >= MAX_LEASES:
            return None
        self._leases[budget_id] = lease, table, key
        table[key] = lease
        return lease

    def _forget(self, budget_id: str) -> None:
        lease, table, key = self._leases.pop(budget_id)
        table.pop(key, None)
        self.wanted.discard(lease)

    @property
    def is_cut_off(self) -> bool:
        """Whether the store has been out of reach for so long that no lease of any replica can be valid."""
        return self._failing_since is not None and time.monotonic() - self._failing_since > LEASE_S + GRACE_S

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to lease or return anything failed."""
        return self._failing_since is not None

    def ask(self, lease: Lease) -> asyncio.Task[None]:
        """Get more of a limit in the background; all callers share one attempt, and then look at the lease again."""
        if lease.asking is None or lease.asking.done():
            lease.asking = asyncio.get_running_loop().create_task(self._ask(lease))
        return lease.asking

    def give_up(self, lease: Lease) -> None:
        """Return what is not in use, in the background."""
        self.wanted.discard(lease)
        if lease.returning is None or lease.returning.done():
            lease.returning = asyncio.get_running_loop().create_task(self._give_up(lease))

    async def _give_up(self, lease: Lease) -> bool:
        try:
            return await self._shrink(lease)
        except StoreError as error:
            self._note_failure(error)
            return True

    async def _ask(self, lease: Lease) -> None:
        try:
            if await self._enlarge(lease):
                return
            await self._ask_others(lease)
            if await self._enlarge(lease):
                return
        except StoreError as error:
            self._note_failure(error)
        except Exception:
            _log.exception("a part of a limit was not leased")
        lease.refused_until = time.monotonic() + RETRY_S

    async def _enlarge(self, lease: Lease) -> bool:
        """Lease a fair part of what is free; true where a unit can be used now."""
        replicas = 1 + len(self.others)
        async with lease.lock:
            # Rounded up: the last free unit goes to the replica that asks for it.
            await self._change(lease, lambda mine, free: mine + -(-free // replicas), renews=True)
        return lease.units > lease.count_used()

    async def _shrink(self, lease: Lease) -> bool:
        """Return what is not in use; false where there is nothing."""
        async with lease.lock:
            used = lease.count_used()
            if lease.units <= used:
                return False
            lease.units = used  # before the store knows: another replica may use the rest from then on
            await self._change(lease, lambda mine, free: min(mine, used), renews=False)
            return True

    async def _change(self, lease: Lease, decide: Callable[[int, int], int], *, renews: bool) -> None:
        """Hold as many units as `decide` returns for what is held here and what is free."""
        if self.is_failing and not self._store.database.is_responding:  # the first attempt has waited long enough
            raise StoreUnavailable(f"{self._store.database.name} does not answer.")
        # Starts from the budget as last seen: while no other replica changes it, a lease takes one write and no read.
        for _ in range(MAX_ATTEMPTS):
            began, now, budget = time.monotonic(), self._store.now(), lease.budget
            holdings = {id: one for id, one in budget.holdings.items() if one.expires_at > now}
            mine = holdings.pop(self._replica, Holding(0, now))
            free = lease.limit - mine.units - sum(one.units for one in holdings.values())
            units = decide(mine.units, max(0, free))
            # Units that are used at the last moment count for a window more, and must not be leased again before that.
            expires_at = now + LEASE_S + lease.window + GRACE_S if renews else mine.expires_at
            if units:
                holdings[self._replica] = Holding(units, expires_at)
            replaced = await self._rows.replace(budget, holdings)
            if replaced is not None:
                lease.budget, self._failing_since = replaced, None
                if renews:
                    # Counted from before the store was asked, and shorter than the row says: this replica stops using
                    # units before another can lease them, however long the answer took.
                    lease.units, lease.until = units, began + LEASE_S
                return
            lease.budget = await self._rows.load(budget.id)
        raise StaleVersion(f"{MAX_ATTEMPTS} attempts to lease a part of a limit met those of other replicas.")

    def _note_failure(self, error: StoreError) -> None:
        if isinstance(error, StoreUnavailable) and self._failing_since is None:
            self._failing_since = time.monotonic()
            _log.warning("limits of all replicas cannot be leased: %s", error)

    async def _ask_others(self, lease: Lease) -> None:
        """Have the other replicas return what they do not use, and wait for them, though not for long."""
        waiting = {one for one in lease.budget.holdings if one in self.others}
        if not waiting or isinstance(self._bus, LocalBus):
            return
        answered = asyncio.Event()
        self._awaited[lease.budget.id] = waiting, answered
        try:
            await self._bus.publish(_WANTED, _encode(_Notice(self._replica, lease.budget.id)))
            await wait_for_event(answered, ANSWER_S)
        finally:
            del self._awaited[lease.budget.id]

    async def _return_to(self, _subject: str, message: bytes) -> None:
        notice = _decode(message)
        if notice.replica == self._replica:
            return
        if notice.budget in self._leases:
            lease = self._leases[notice.budget][0]
            # Units of a window are free when it ends; slots when a call ends, and the next one here would have it.
            if not await self._give_up(lease) and not lease.window:
                self.wanted.add(lease)
        # In any case, because the replica that asked waits for each holder that it knows of.
        await self._bus.publish(_RETURNED, _encode(_Notice(self._replica, notice.budget)))

    def _note_return(self, _subject: str, message: bytes) -> None:
        notice = _decode(message)
        if notice.budget in self._awaited:
            waiting, answered = self._awaited[notice.budget]
            waiting.discard(notice.replica)
            if not waiting:
                answered.set()

    async def _keep(self) -> None:
        while True:
            since = time.monotonic()
            await asyncio.sleep(ROUND_S)
            try:
                await _run_batched([self._look_after(lease, since) for lease, _, _ in self._leases.values()])
                if self._leases or self._failing_since is not None:
                    await self._rows.sweep(self._store.now())
                    self._failing_since = None
            except StoreError as error:
                self._note_failure(error)
            except Exception:
                _log.exception("leases of limits were not renewed")

    async def _look_after(self, lease: Lease, since: float) -> None:
        """Renew a lease that is used; return what is left of another, and forget it once nothing of it counts."""
        if lease.is_used_since(since):
            async with lease.lock:
                await self._change(lease, lambda mine, free: mine, renews=True)
            return
        await self._shrink(lease)
        if not lease.units and not lease.count_used() and (lease.asking is None or lease.asking.done()):
            self._forget(lease.budget.id)


async def _run_batched(calls: list[Coroutine[Any, Any, Any]]) -> None:
    """Run calls, many at once so that the store writes them together; a failure of one is raised after all."""
    failed: list[BaseException] = []
    for start in range(0, len(calls), _BATCH):
        results = await asyncio.gather(*calls[start : start + _BATCH], return_exceptions=True)
        failed += (one for one in results if isinstance(one, BaseException))
    if failed:
        raise failed[0]
