"""How tasks are shown, in both dialects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from waypost.stores.tasks import TaskRecord
from waypost.wire import messages

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"


def now() -> str:
    """The time as tasks tell it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def modern_task(record: TaskRecord) -> dict[str, Any]:
    """The fields every view of a task has for stateless clients."""
    task = {
        "taskId": record.id,
        "status": record.status,
        "createdAt": record.created_at,
        "lastUpdatedAt": record.updated_at,
        "ttlMs": record.ttl_ms,
        "pollIntervalMs": record.poll_ms,
    }
    return task if record.status_message is None else {**task, "statusMessage": record.status_message}


def detailed_task(record: TaskRecord) -> dict[str, Any]:
    """A task with what it came to, or what it asks."""
    task = modern_task(record)
    if record.status == "input_required":
        task["inputRequests"] = record.input_requests
    elif record.status == "completed":
        task["result"] = record.result
    elif record.status == "failed":
        task["error"] = record.error
    return task


def legacy_task(record: TaskRecord) -> dict[str, Any]:
    """A task as clients with sessions see it: a result that says it failed is a failed task."""
    failed = record.status == "completed" and bool((record.result or {}).get("isError"))
    task = {
        "taskId": record.id,
        "status": "failed" if failed else record.status,
        "createdAt": record.created_at,
        "lastUpdatedAt": record.updated_at,
        "ttl": record.ttl_ms,
        "pollInterval": record.poll_ms,
    }
    return task if record.status_message is None else {**task, "statusMessage": record.status_message}


def status_notification(record: TaskRecord) -> bytes:
    """What a session is told when one of its tasks changes."""
    return messages.notification("notifications/tasks/status", legacy_task(record))
