"""Records: JSON values with a version, as documents by id, as state by scope and key, and as jobs.

A job is work that waits in a queue until a process leases it. A lease is a new version and a later `due_at`: a process
that dies needs no clean-up, its jobs become due again. Every later change is conditional on the version of the lease,
so a process whose lease expired cannot finish a job that another one has leased meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from waypost.errors import StaleVersion
from waypost.stores.database import (
    Change,
    Database,
    Query,
    Table,
    check_key,
    count_up,
    delete,
    from_json,
    insert,
    is_key,
    page,
    select,
    to_json,
    update,
)
from waypost.stores.schema import JOBS, REVISIONS, STATE


async def check_fence(write: Awaitable[int], what: str) -> None:
    """Wait for a write that is conditional on a version; `StaleVersion` when the condition did not hold.

    This is the store's optimistic lock: the version in the `WHERE` clause is compared and the row written in one
    statement, so of several writers that read the same version exactly one succeeds, on whichever replica it runs.
    """
    if not await write:
        raise StaleVersion(f"{what} was changed since it was read; read it again.")


class Document(NamedTuple):
    """A JSON value with its version."""

    id: str
    version: int
    value: Any


class Documents:
    """All documents of one kind; every change also increments the revision of the kind, in the same transaction.

    `changed` is called with the kind and the id after each commit.
    """

    def __init__(self, database: Database, table: Table, changed: Callable[[str, str], None]) -> None:
        self._database = database
        self._changed = changed
        self._noun = table.name.removesuffix("s")
        self._kind = (table.name,)
        self._get = select(table, "id = ?")
        self._page = page(table)
        counted = count_up(REVISIONS)
        self._create = Change(insert(table, "skip"), counted)
        self._change = Change(update(table, ["version"], ["body"]), counted)
        self._remove = Change(delete(table, ["version"]), counted)

    async def get(self, document_id: str) -> Document | None:
        """The document with that id, if there is one."""
        rows = await self._database.read(self._get, document_id) if is_key(document_id) else ()
        return _document(rows[0]) if rows else None

    async def page(self, after: str = "", limit: int = 1000) -> list[Document]:
        """Documents sorted by id, starting after `after`."""
        return [_document(row) for row in await self._database.read(self._page, after, limit)]

    async def put(self, document_id: str, value: Any, version: int = 0) -> Document:
        """Create a document (version 0) or replace the given version; `StaleVersion` when it is not the current one."""
        body = to_json(value)
        if version == 0:
            write = self._database.write(self._create, (check_key(document_id), 1, body), self._kind)
        else:
            write = self._database.write(self._change, (document_id, version, body), self._kind)
        await check_fence(write, f"The {self._noun} {document_id}")
        self._changed(self._kind[0], document_id)
        return Document(document_id, version + 1, value)

    async def remove(self, document_id: str, version: int) -> None:
        """Delete the given version of a document; `StaleVersion` when that is not the current one."""
        write = self._database.write(self._remove, (document_id, version), self._kind)
        await check_fence(write, f"The {self._noun} {document_id}")
        self._changed(self._kind[0], document_id)


def _document(row: Any) -> Document:
    return Document(row[0], row[1], from_json(row[2]))


class Entry(NamedTuple):
    """A JSON value under a key of a scope, with its version."""

    scope: str
    key: str
    version: int
    value: Any


_GET: Final = select(STATE, "scope = ? AND key = ?")
_PAGE: Final = page(STATE, "scope")
_SCOPES: Final = Query("SELECT DISTINCT scope FROM state WHERE scope > ? ORDER BY scope LIMIT ?")
_CREATE: Final = Change(insert(STATE, "skip"))
_CHANGE: Final = Change(update(STATE, ["version"], ["value"]))
_COUNTED: Final = (Change(_CREATE.fence, count_up(REVISIONS)), Change(_CHANGE.fence, count_up(REVISIONS)))
_REMOVE: Final = Change(delete(STATE, ["version"]))


class State:
    """JSON values by scope and key; `changed` is called with both after each commit of a counted one."""

    def __init__(self, database: Database, changed: Callable[[str, str], None]) -> None:
        self._database = database
        self._changed = changed

    async def get(self, scope: str, key: str) -> Entry | None:
        """The value under a key, if there is one."""
        rows = await self._database.read(_GET, scope, key) if is_key(scope) and is_key(key) else ()
        return _entry(rows[0]) if rows else None

    async def page(self, scope: str, after: str = "", limit: int = 1000) -> list[Entry]:
        """Values of a scope sorted by key, starting after `after`."""
        rows = await self._database.read(_PAGE, scope, after, limit) if is_key(scope) else ()
        return [_entry(row) for row in rows]

    async def scopes(self, after: str = "", limit: int = 1000) -> list[str]:
        """The scopes with at least one value, sorted, starting after `after`."""
        return [row[0] for row in await self._database.read(_SCOPES, after, limit)]

    async def put(self, scope: str, key: str, value: Any, version: int = 0, *, counted: bool = False) -> Entry:
        """Create a value (version 0) or replace the given version; `StaleVersion` when that is not the current one.

        With `counted`, the revision of the scope is incremented in the same transaction.
        """
        text = to_json(value)
        create, change = _COUNTED if counted else (_CREATE, _CHANGE)
        then = ((scope,),) if counted else ()
        if version == 0:
            write = self._database.write(create, (check_key(scope), check_key(key), 1, text), *then)
        else:
            write = self._database.write(change, (scope, key, version, text), *then)
        await check_fence(write, f"The value {scope}/{key}")
        if counted:
            self._changed(scope, key)
        return Entry(scope, key, version + 1, value)

    async def remove(self, scope: str, key: str, version: int) -> None:
        """Delete the given version of a value; `StaleVersion` when that is not the current one."""
        await check_fence(self._database.write(_REMOVE, (scope, key, version)), f"The value {scope}/{key}")


def _entry(row: Any) -> Entry:
    return Entry(row[0], row[1], row[2], from_json(row[3]))


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


_ADD_JOB: Final = Change(insert(JOBS, "skip"))
_DUE: Final = select(JOBS, "queue = ? AND status = ? AND due_at <= ?", order=["due_at", "id"], limit=True)
_NEXT: Final = Query("SELECT min(due_at) FROM jobs WHERE queue = ? AND status = ?")
_LEASE: Final = Change(update(JOBS, ["version"], ["due_at", "attempts"]))
# The version stays: it is what the holder of the lease knows.
_RENEW: Final = Change(update(JOBS, ["version"], ["due_at"], moves=False))
_PUT_BACK: Final = Change(update(JOBS, ["version"], ["status", "due_at", "reason"]))
_UNDO_LEASE: Final = Change(update(JOBS, ["version"], ["status", "due_at", "reason", "attempts"]))
_REMOVE_JOB: Final = Change(delete(JOBS, ["version"]))
_GET_JOB: Final = select(JOBS, "queue = ? AND id = ?")
_PAGE_OF_JOBS: Final = page(JOBS, "queue")


class Jobs:
    """Jobs by queue and id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.now = database.now

    async def add(self, queue: str, job_id: str, value: Any, due_at: float) -> bool:
        """Add a job; false, and nothing changes, when the id exists."""
        row = (check_key(queue), check_key(job_id), 1, WAITING, due_at, 0, "", to_json(value))
        return bool(await self._database.write(_ADD_JOB, row))

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
            else self._database.write(_UNDO_LEASE, (*row, job.attempts - 1))
        )
        await check_fence(writing, _what(job))

    async def give_up(self, job: Job, now: float, reason: str) -> None:
        """Stop retrying a leased job and keep it for operators; `StaleVersion` when another process has leased it."""
        row = (job.queue, job.id, job.version, GIVEN_UP, now, reason)
        await check_fence(self._database.write(_PUT_BACK, row), _what(job))

    async def remove(self, job: Job) -> None:
        """Delete a job that is done; `StaleVersion` when another process has leased it."""
        await check_fence(self._database.write(_REMOVE_JOB, (job.queue, job.id, job.version)), _what(job))

    async def next_due(self, queue: str) -> float | None:
        """When the next job is due, if there is one."""
        due_at: float | None = (await self._database.read(_NEXT, queue, WAITING))[0][0]
        return due_at

    async def get(self, queue: str, job_id: str) -> Job | None:
        """The job with that id, if there is one."""
        rows = await self._database.read(_GET_JOB, queue, job_id)
        return _job(rows[0]) if rows else None

    async def page(self, queue: str, after: str = "", limit: int = 1000) -> list[Job]:
        """Jobs of a queue sorted by id, starting after `after`."""
        return [_job(row) for row in await self._database.read(_PAGE_OF_JOBS, queue, after, limit)]


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
