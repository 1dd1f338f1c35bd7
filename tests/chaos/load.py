"""Load for a store: clients that change every kind of record and report each acknowledged write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final, Literal, NamedTuple

from waypost.errors import StaleVersion, StoreUnavailable
from waypost.stores.instances import InstanceRecord, Reservation
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord

SHARED: Final = 3
SCOPE: Final = "chaos"
_RESERVED: Final = 0.3


class Acknowledgement(NamedTuple):
    """A fact known to a client: a version exists with a mark; a job was added, may be gone, or is gone."""

    what: Literal["instance", "once", "state", "job", "removing", "removed"]
    key: str
    version: int
    mark: str


class Load:
    """Clients of one store; their own names are never reused, those of shared records are."""

    def __init__(self, store: Store, name: str, tell: Callable[[Acknowledgement], None]) -> None:
        self.unknown = 0
        """Writes whose outcome is unknown."""
        self.last_success = 0.0
        self._store = store
        self._name = name
        self._report = tell
        self._marks = count(1)

    async def run(self, clients: int = 4) -> None:
        """Work until cancelled; an impossible answer of the store raises."""
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                own = f"{self._name}-{number}"
                for client in (self._start_and_move, self._move_shared, self._keep_values, self._work_off):
                    group.create_task(self._again(client, own))

    async def _again(self, client: Callable[[str, int], Any], own: str) -> None:
        for number in count():
            try:
                await client(own, number)
            except StaleVersion:
                continue
            except StoreUnavailable:
                self.unknown += 1

    def _note(self, what: Any, key: str, version: int, mark: str) -> None:
        self.last_success = time.monotonic()
        self._report(Acknowledgement(what, key, version, mark))

    def _mark(self) -> str:
        return f"{self._name}/{next(self._marks)}"

    async def _start_and_move(self, own: str, number: int) -> None:
        """Start and move an instance of its own; every other start has a stored request."""
        made, mark = _instance(f"{own}-{number}"), self._mark()
        once = None
        if number % 2:
            once = RequestRecord(SCOPE, made.id, "digest", mark)
        await self._store.instances.start(made, time.time(), mark, once)
        self._note("once" if once else "instance", made.id, 1, mark)
        for version in (1, 2):
            await self._move(_instance(made.id, version))

    async def _move_shared(self, own: str, number: int) -> None:
        """Move a shared instance, with or without a reservation; take over abandoned reservations."""
        key = f"shared-{number % SHARED}"
        found = await self._store.instances.get(key)
        if found is None:
            mark = self._mark()
            await self._store.instances.start(_instance(key), time.time(), mark)
            self._note("instance", key, 1, mark)
            return
        held = found.reservation
        if held is not None and held.until > time.time():
            await asyncio.sleep(0.001)
            return
        if held is None and number % 2:
            await self._move(found)
            return
        mine = Reservation(f"{own}-{number}", time.time() + _RESERVED, own)
        if await self._store.instances.reserve(key, found.version, mine, held.token if held else ""):
            await self._move(found, mine.token)

    async def _move(self, found: InstanceRecord, token: str = "") -> None:
        mark = self._mark()
        version = await self._store.instances.commit(found, time.time(), mark, token)
        self._note("instance", found.id, version, mark)

    async def _keep_values(self, own: str, number: int) -> None:
        key, mark = f"value-{own[-1]}", self._mark()
        found = await self._store.state.get(SCOPE, key)
        entry = await self._store.state.put(SCOPE, key, mark, found.version if found else 0)
        self._note("state", key, entry.version, mark)

    async def _work_off(self, own: str, number: int) -> None:
        """Put two jobs, do one."""
        queue = f"{SCOPE}-{own}"
        for job in (f"{number}-a", f"{number}-b"):
            if await self._store.jobs.add(queue, job, job, time.time()):
                self._note("job", f"{queue}/{job}", 1, job)
        for leased in await self._store.jobs.lease(queue, time.time(), time.time() + 60, 1):
            self._note("removing", f"{queue}/{leased.id}", 0, "")
            await self._store.jobs.remove(leased)
            self._note("removed", f"{queue}/{leased.id}", 0, "")


def _instance(key: str, version: int = 0) -> InstanceRecord:
    return InstanceRecord(id=key, version=version, definition="chaos", principal="load", state="on", status="running")
