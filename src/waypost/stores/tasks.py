"""Where tasks are remembered: what was started, how it stands, and what came of it."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One task as it stands; `result` and `error` are what `tasks/get` shows when it has ended."""

    id: str
    principal: str
    status: str
    created_at: str
    updated_at: str
    ttl_ms: int
    poll_ms: int
    status_message: str | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] = {}

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in ("completed", "failed", "cancelled")


class TaskStore(Protocol):
    """The port: one record per task id; the last save wins."""

    async def save(self, record: TaskRecord) -> None: ...
    async def load(self, task_id: str) -> TaskRecord | None: ...
    async def delete(self, task_id: str) -> None: ...
    async def page(self, principal: str, after: str | None, limit: int) -> list[TaskRecord]: ...


class MemoryTasks:
    """Tasks of this process."""

    def __init__(self) -> None:
        self._records: dict[str, TaskRecord] = {}

    async def save(self, record: TaskRecord) -> None:
        """Remember how a task stands."""
        self._records[record.id] = record

    async def load(self, task_id: str) -> TaskRecord | None:
        """The task, if it is remembered."""
        return self._records.get(task_id)

    async def delete(self, task_id: str) -> None:
        """Forget a task."""
        self._records.pop(task_id, None)

    async def page(self, principal: str, after: str | None, limit: int) -> list[TaskRecord]:
        """Tasks of one principal in the order of their ids, behind `after`."""
        mine = (key for key, record in self._records.items() if record.principal == principal)
        return [self._records[key] for key in sorted(key for key in mine if after is None or key > after)[:limit]]
