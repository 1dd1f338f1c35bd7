"""Replicas: which hub processes share the database, when each was last seen, and what each of them has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from waypost.stores.database import (
    REAL,
    TEXT,
    Change,
    Database,
    Query,
    Statement,
    delete,
    delete_where,
    insert,
    select,
    to_json,
    update,
)
from waypost.stores.schema import BUDGETS, REPLICAS, WORKERS

ReplicaStatus = Literal["starting", "ready", "draining"]


class Replica(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One hub process; times are those of the clock of the database."""

    id: str
    address: str
    version: str
    config_digest: str
    started_at: float
    last_seen_at: float
    status: ReplicaStatus


_REGISTER: Final = Change(insert(REPLICAS, "replace"))
_BEAT: Final = Change(update(REPLICAS, [], ["address", "config_digest", "last_seen_at", "status"], moves=False))
_REMOVE: Final = Change(delete(REPLICAS))
_REMOVE_UNSEEN: Final = Change(delete(REPLICAS, ["last_seen_at"]))
_ALL: Final = select(REPLICAS, "true", order=["started_at", "id"])


class ReplicaStore:
    """Replicas by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, replica: Replica) -> None:
        """Add a replica, or replace the row with its id."""
        await self._database.write(_REGISTER, msgspec.structs.astuple(replica))

    async def beat(self, replica: Replica) -> bool:
        """Record that a replica is alive; false where another one has declared it dead."""
        row = (replica.id, replica.address, replica.config_digest, replica.last_seen_at, replica.status)
        return bool(await self._database.write(_BEAT, row))

    async def remove(self, replica_id: str) -> None:
        """Remove a replica that stops."""
        await self._database.write(_REMOVE, (replica_id,))

    async def declare_dead(self, replica: Replica) -> bool:
        """Remove a replica unless it was seen since its row was read; true for the one caller that removed it."""
        return bool(await self._database.write(_REMOVE_UNSEEN, (replica.id, replica.last_seen_at)))

    async def list(self) -> list[Replica]:
        """All replicas, the oldest first."""
        rows = await self._database.read(_ALL)
        return [Replica(**dict(zip(Replica.__struct_fields__, row, strict=True))) for row in rows]


class WorkerRecord(msgspec.Struct, frozen=True):
    """A worker and what it offers; each write at a replica has a higher version than the one before."""

    replica: str
    id: str
    version: int
    body: str


# A replica that was declared dead writes nothing here until it has registered itself again.
_PUT: Final = Change(
    Statement(
        WORKERS,
        "INSERT INTO workers (replica, id, version, body) SELECT * FROM {given} "
        "WHERE EXISTS (SELECT 1 FROM replicas AS r WHERE r.id = g.column1) "
        "ON CONFLICT (replica, id) DO UPDATE SET version = excluded.version, body = excluded.body",
        WORKERS.types(tuple(WORKERS.columns)),
        "INSERT INTO workers (replica, id, version, body) SELECT ?1, ?2, ?3, ?4 "
        "WHERE EXISTS (SELECT 1 FROM replicas AS r WHERE r.id = ?1) "
        "ON CONFLICT (replica, id) DO UPDATE SET version = excluded.version, body = excluded.body",
    )
)
_REMOVE_WORKER: Final = Change(delete(WORKERS))
_REMOVE_ALL: Final = Change(delete_where(WORKERS, "replica = ?", [TEXT]))
_REMOVE_DEAD: Final = Change(delete_where(WORKERS, "replica NOT IN (SELECT id FROM replicas)", []))
# The rows of a replica that was declared dead may outlive its own row.
_VERSIONS: Final = Query(
    "SELECT w.replica, w.id, w.version FROM workers AS w JOIN replicas AS r ON r.id = w.replica WHERE w.replica <> ?"
)
_NEWER: Final = select(WORKERS, "replica = ? AND version > ?")


class WorkerStore:
    """Workers by replica and id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, record: WorkerRecord) -> bool:
        """Add or replace a worker; false where its replica was declared dead."""
        return bool(await self._database.write(_PUT, msgspec.structs.astuple(record)))

    async def remove(self, replica: str, worker_id: str) -> None:
        """Remove a worker that disconnected."""
        await self._database.write(_REMOVE_WORKER, (replica, worker_id))

    async def remove_all(self, replica: str) -> None:
        """Remove the workers of a replica that stops."""
        await self._database.write(_REMOVE_ALL, (replica,))

    async def remove_dead(self) -> None:
        """Remove the workers of replicas that are gone."""
        await self._database.write(_REMOVE_DEAD, ())

    async def list_versions(self, but_of: str) -> Mapping[tuple[str, str], int]:
        """The version of each worker of all replicas that are alive but one, by replica and id."""
        rows = await self._database.read(_VERSIONS, but_of)
        return {(replica, worker_id): version for replica, worker_id, version in rows}

    async def list_newer(self, replica: str, version: int) -> list[WorkerRecord]:
        """The workers of a replica that were written after a version."""
        return [WorkerRecord(*row) for row in await self._database.read(_NEWER, replica, version)]


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """The units of one replica; other replicas leave them alone until they expire by the clock of the database."""

    units: int
    expires_at: float


class Budget(msgspec.Struct, frozen=True):
    """All holdings of one limit; its version is 0 while there is no row."""

    id: str
    version: int
    holdings: Mapping[str, Holding]


_GET_BUDGET: Final = select(BUDGETS, "id = ?")
_CREATE_BUDGET: Final = Change(insert(BUDGETS, "skip"))
_SAVE_BUDGET: Final = Change(update(BUDGETS, ["version"], ["expires_at", "body"]))
_SWEEP_BUDGETS: Final = Change(delete_where(BUDGETS, "expires_at < ?", [REAL], limit=1000))
_decode_holdings: Final = msgspec.json.Decoder(dict[str, Holding]).decode


class BudgetStore:
    """Budgets by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, budget_id: str) -> Budget:
        """The budget with that id; without a row, an empty one."""
        rows = await self._database.read(_GET_BUDGET, budget_id)
        return Budget(budget_id, rows[0][1], _decode_holdings(rows[0][3])) if rows else Budget(budget_id, 0, {})

    async def replace(self, budget: Budget, holdings: Mapping[str, Holding]) -> Budget | None:
        """The budget with other holdings; `None` where another replica has changed it since it was read."""
        expires_at = max((one.expires_at for one in holdings.values()), default=0.0)
        body = to_json(holdings)
        if budget.version:
            version = budget.version + 1
            written = await self._database.write(_SAVE_BUDGET, (budget.id, budget.version, expires_at, body))
        else:
            # Not 1: a replica that read a row, stood still and saves after the row was swept and made again would
            # find its version there.
            version = int(self._database.now() * 1e6)
            written = await self._database.write(_CREATE_BUDGET, (budget.id, version, expires_at, body))
        return Budget(budget.id, version, holdings) if written else None

    async def sweep(self, now: float) -> int:
        """Delete budgets without a holding that counts, up to 1,000 of them; returns how many."""
        return await self._database.write(_SWEEP_BUDGETS, (now,))
