"""Tasks with the processes that run them, and the recorded answers that make requests idempotent."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waypost.stores.database import (
    REAL,
    Change,
    Database,
    Query,
    check_key,
    delete,
    delete_where,
    from_json,
    insert,
    is_key,
    page,
    select,
    to_json,
    update,
)
from waypost.stores.records import check_fence
from waypost.stores.schema import HOLDERS, REQUESTS, TASKS
from waypost.stores.secrets import StoredSecrets


class TaskCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call of an idempotent tool that runs as a task: what is needed to make it again."""

    tool: str
    arguments: dict[str, Any]
    version: str
    """The version of the protocol that its client speaks."""
    capabilities: dict[str, Any]
    """What the client declared to support."""
    session: str | None = None
    runs: int = 1
    """How often it was made."""


class TaskTimes(msgspec.Struct, frozen=True, kw_only=True):
    """When a task was made and changed, and how long it and its result last."""

    created_at: str
    updated_at: str
    ttl_ms: int
    poll_ms: int
    expires_at: float = 0.0


class TaskRecord(TaskTimes, frozen=True, kw_only=True):
    """The state of one task; `result` and `error` are what `tasks/get` answers once it has ended.

    `holder` is the process that runs it; `answers` are the client's answers that the task has not read yet; `call` is
    there while it may be run again; `version` is 0 until it is saved.
    """

    id: str
    principal: str
    status: str
    holder: str = ""
    status_message: str | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] = {}
    answers: dict[str, Any] = {}
    call: TaskCall | None = None
    version: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the status is final."""
        return self.status in ("completed", "failed", "cancelled")


_ANSWERED: Final = ("status_message", "result", "error", "input_requests")
"""The fields with what a tool said."""
_GET: Final = select(TASKS, "id = ?")
_OWN: Final = select(TASKS, "id = ? AND principal = ?")
_PAGE: Final = page(TASKS, "principal")
_CREATE: Final = Change(insert(TASKS, "skip"))
_SAVE: Final = Change(update(TASKS, ["version"], ["holder", "status", "expires_at", "body"]))
_FIND: Final = select(
    TASKS, "id > ? AND (? = '' OR principal = ?) AND (? = '' OR status = ?)", order=("id",), limit=True
)
# That the holder is not empty is said again, because the index by holder has only those rows.
_HELD: Final = Query("SELECT id, version FROM tasks WHERE holder = ? AND holder <> '' ORDER BY id")
_SWEEP: Final = Change(delete_where(TASKS, "expires_at < ?", [REAL], limit=1000))
_KEEP_HOLDER: Final = Change(insert(HOLDERS, "replace"))
_REMOVE_HOLDER: Final = Change(delete(HOLDERS))
_HOLDER: Final = Query("SELECT 1 FROM holders WHERE id = ? AND expires_at >= ?")
_SWEEP_HOLDERS: Final = Change(delete_where(HOLDERS, "expires_at < ?", [REAL]))

_decoder: Final = msgspec.json.Decoder(TaskRecord)


class TaskStore:
    """Tasks by id, and the processes (holders) that run them."""

    def __init__(self, database: Database, secrets: StoredSecrets) -> None:
        self._database = database
        self.secrets = secrets

    async def load(self, task_id: str) -> TaskRecord | None:
        """The task with that id, if there is one."""
        rows = await self._database.read(_GET, task_id) if is_key(task_id) else ()
        return _record(rows[0]) if rows else None

    async def own(self, task_id: str, principal: str) -> TaskRecord | None:
        """The task with that id, if it belongs to the principal."""
        rows = await self._database.read(_OWN, task_id, principal) if is_key(task_id) else ()
        return _record(rows[0]) if rows else None

    async def save(self, record: TaskRecord) -> TaskRecord:
        """Save a task, without secrets; `StaleVersion` when it was saved since this record was read."""
        body = to_json(record)
        if self.secrets.are_in(body):
            hidden = {name: self.secrets.hide(getattr(record, name)) for name in _ANSWERED}
            # A call without a part of its arguments would be another call: it is not made again.
            call = None if record.call is None or self.secrets.are_in(to_json(record.call)) else record.call
            record = msgspec.structs.replace(record, **hidden, call=call)
            body = to_json(record)
        now = (record.holder, record.status, record.expires_at, body)
        if record.version == 0:
            write = self._database.write(_CREATE, (check_key(record.id), 1, record.principal, *now))
        else:
            write = self._database.write(_SAVE, (record.id, record.version, *now))
        await check_fence(write, f"The task {record.id}")
        return msgspec.structs.replace(record, version=record.version + 1)

    async def page(self, principal: str, after: str | None, limit: int) -> list[TaskRecord]:
        """Tasks of one principal sorted by id, starting after `after`."""
        return [_record(row) for row in await self._database.read(_PAGE, principal, after or "", limit)]

    async def find(self, after: str, principal: str, status: str, limit: int) -> list[TaskRecord]:
        """Tasks sorted by id, starting after `after`; an empty principal or status is any."""
        if not all(not text or is_key(text) for text in (after, principal)):
            return []
        rows = await self._database.read(_FIND, after, principal, principal, status, status, limit)
        return [_record(row) for row in rows]

    async def held(self, holder: str) -> dict[str, int]:
        """The id and version of each task that a process runs."""
        return dict(await self._database.read(_HELD, holder))  # type: ignore[arg-type]  # rows of two

    async def keep_holder(self, holder: str, until: float) -> None:
        """Record that a process that runs tasks is alive until then; it repeats that while it lives."""
        await self._database.write(_KEEP_HOLDER, (holder, until))

    async def remove_holder(self, holder: str) -> None:
        """Record that a process does not run tasks any longer."""
        await self._database.write(_REMOVE_HOLDER, (holder,))

    async def is_holder_alive(self, holder: str, now: float) -> bool:
        """Whether the last sign of life of a process still holds."""
        return bool(await self._database.read(_HOLDER, holder, now))

    async def sweep(self, now: float) -> int:
        """Delete some expired tasks and all expired holders; returns how many."""
        return await self._database.write(_SWEEP, (now,)) + await self._database.write(_SWEEP_HOLDERS, (now,))


def _record(row: Any) -> TaskRecord:
    return msgspec.structs.replace(_decoder.decode(row[6]), version=row[1])


class RequestRecord(msgspec.Struct, frozen=True):
    """The answer to a request, by scope and idempotency key.

    `digest` covers the request, so that another one under the same key is noticed; an `expires_at` of 0 is never.
    """

    scope: str
    key: str
    digest: str
    answer: Any
    expires_at: float = 0.0

    def row(self) -> tuple[Any, ...]:
        """The row of the table."""
        return (check_key(self.scope), check_key(self.key), self.digest, self.expires_at, to_json(self.answer))


ADD_REQUEST: Final = insert(REQUESTS)
_PUT_REQUEST: Final = Change(insert(REQUESTS, "skip"))
_REPLACE_REQUEST: Final = Change(insert(REQUESTS, "replace"))
_GET_REQUEST: Final = select(REQUESTS, "scope = ? AND key = ?")
_SWEEP_REQUESTS: Final = Change(delete_where(REQUESTS, "expires_at > 0 AND expires_at < ?", [REAL], limit=1000))


class Requests:
    """Answers to requests, so that a repeated request is not carried out twice."""

    def __init__(self, database: Database, secrets: StoredSecrets) -> None:
        self._database = database
        self._secrets = secrets

    async def get(self, scope: str, key: str) -> RequestRecord | None:
        """The answer under a key, if there is one."""
        rows = await self._database.read(_GET_REQUEST, scope, key) if is_key(scope) and is_key(key) else ()
        return RequestRecord(rows[0][0], rows[0][1], rows[0][2], from_json(rows[0][4]), rows[0][3]) if rows else None

    async def put(self, record: RequestRecord) -> bool:
        """Add an answer; false, and nothing changes, when the key has one already."""
        return bool(await self._database.write(_PUT_REQUEST, self._row(record)))

    async def replace(self, record: RequestRecord) -> None:
        """Add an answer or replace the one under its key."""
        await self._database.write(_REPLACE_REQUEST, self._row(record))

    def _row(self, record: RequestRecord) -> tuple[Any, ...]:
        row = record.row()
        return (*row[:-1], to_json(self._secrets.hide(record.answer))) if self._secrets.are_in(row[-1]) else row

    async def sweep(self, now: float) -> int:
        """Delete some expired answers; returns how many."""
        return await self._database.write(_SWEEP_REQUESTS, (now,))
