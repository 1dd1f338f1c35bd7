"""Jobs: work that waits in a queue until a process leases it.

A lease is a new version and a later `due_at`: a process that dies needs no clean-up, its jobs become due again. Every
later change is conditional on the version of the lease, so a process whose lease expired cannot finish a job that
another one has leased meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from waypost.stores.database import (
    Change,
    Database,
    Query,
    check_key,
    delete,
    from_json,
    insert,
    page,
    select,
    to_json,
    update,
)
from waypost.stores.records import check_fence
from waypost.stores.schema import JOBS

WAITING: Final = "waiting"
"""Until it is due, or leased until then."""
GIVEN_UP: Final = "given up"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job; `due_at` is when it may be leased next, `attempts` how often it was."""

    queue: str
    id: str
    version: int
    status: str
    due_at: float
    attempts: int
    reason: str
    value: Any


_ADD: Final = Change(insert(JOBS, "skip"))
_DUE: Final = select(JOBS, "queue = ? AND status = ? AND due_at <= ?", order=["due_at", "id"], limit=True)
_NEXT: Final = Query("SELECT min(due_at) FROM jobs WHERE queue = ? AND status = ?")
_LEASE: Final = Change(update(JOBS, ["version"], ["due_at", "attempts"]))
_RENEW: Final = Change(update(JOBS, ["version"], ["due_at"], moves=False))
_PUT_BACK: Final = Change(update(JOBS, ["version"], ["status", "due_at", "reason"]))
_UNDO: Final = Change(update(JOBS, ["version"], ["status", "due_at", "reason", "attempts"]))
_REMOVE: Final = Change(delete(JOBS, ["version"]))
_GET: Final = select(JOBS, "queue = ? AND id = ?")
_PAGE: Final = page(JOBS, "queue")


class Jobs:
    """Jobs by queue and id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.now = database.now

    async def add(self, queue: str, job_id: str, value: Any, due_at: float) -> bool:
        """Add a job; false, and nothing changes, when the id exists."""
        row = (check_key(queue), check_key(job_id), 1, WAITING, due_at, 0, "", to_json(value))
        return bool(await self._database.write(_ADD, row))

    async def lease(self, queue: str, now: float, until: float, limit: int) -> list[Job]:
        """Lease jobs that are due; until then no other process gets them."""
        found = [_job(row) for row in await self._database.read(_DUE, queue, WAITING, now, limit)]
        rows = [(queue, job.id, job.version, until, job.attempts + 1) for job in found]
        # Several processes may read the same jobs: the version in each write lets one of them have each. Written
        # together, the leases share one commit.
        held = await asyncio.gather(*(self._database.write(_LEASE, row) for row in rows))
        return [
            msgspec.structs.replace(job, version=job.version + 1, due_at=until, attempts=job.attempts + 1)
            for job, mine in zip(found, held, strict=True)
            if mine
        ]

    async def renew(self, job: Job, until: float) -> None:
        """Extend a lease; `StaleVersion` when another process has leased the job."""
        await check_fence(self._database.write(_RENEW, (job.queue, job.id, job.version, until)), _what(job))

    async def put_back(self, job: Job, due_at: float, reason: str, *, is_counted: bool = True) -> None:
        """Return a leased job to its queue; `StaleVersion` when another process has leased it.

        Unless the attempt `is_counted`, it is as if the job had not been leased.
        """
        row = (job.queue, job.id, job.version, WAITING, due_at, reason)
        writing = (
            self._database.write(_PUT_BACK, row)
            if is_counted
            else self._database.write(_UNDO, (*row, job.attempts - 1))
        )
        await check_fence(writing, _what(job))

    async def give_up(self, job: Job, now: float, reason: str) -> None:
        """Stop retrying a leased job and keep it for operators; `StaleVersion` when another process has leased it."""
        row = (job.queue, job.id, job.version, GIVEN_UP, now, reason)
        await check_fence(self._database.write(_PUT_BACK, row), _what(job))

    async def remove(self, job: Job) -> None:
        """Delete a job that is done; `StaleVersion` when another process has leased it."""
        await check_fence(self._database.write(_REMOVE, (job.queue, job.id, job.version)), _what(job))

    async def next_due(self, queue: str) -> float | None:
        """When the next job is due, if there is one."""
        due_at: float | None = (await self._database.read(_NEXT, queue, WAITING))[0][0]
        return due_at

    async def get(self, queue: str, job_id: str) -> Job | None:
        """The job with that id, if there is one."""
        rows = await self._database.read(_GET, queue, job_id)
        return _job(rows[0]) if rows else None

    async def page(self, queue: str, after: str = "", limit: int = 1000) -> list[Job]:
        """Jobs of a queue sorted by id, starting after `after`."""
        return [_job(row) for row in await self._database.read(_PAGE, queue, after, limit)]


def _what(job: Job) -> str:
    return f"The job {job.id}"


def _job(row: Any) -> Job:
    return Job(
        queue=row[0],
        id=row[1],
        version=row[2],
        status=row[3],
        due_at=row[4],
        attempts=row[5],
        reason=row[6],
        value=from_json(row[7]),
    )
