"""Tasks: calls that go on after their request was answered, asked about later by their id.

A `LiveTask` is work that runs in this process; its record goes to the store at every change, before anybody is told.
`Tasks` starts them, finds them for whoever started them, forgets them when their time is up.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec

from waypost.capabilities.asking import Question
from waypost.capabilities.principals import Principal
from waypost.errors import Busy, InvalidParams, NoAnswer
from waypost.protocol.failures import failure
from waypost.stores.tasks import TaskRecord, TaskStore
from waypost.wire import messages

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"

LONGEST_TTL_MS: Final = 3_600_000
SHORTEST_TTL_MS: Final = 1_000
_DEFAULT_TTL_MS: Final = 3_600_000
_POLL_MS: Final = 500
_MOST_RUNNING: Final = 1_000

_LOST: Final = {"code": -32603, "message": "The server was stopped while the task was running."}

Work = Coroutine[Any, Any, dict[str, Any]]
Watcher = Callable[[TaskRecord], None]


class TaskHost(Protocol):
    """What tasks need of the engine."""

    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...


class LiveTask:
    """Work that runs as a task."""

    def __init__(self, record: TaskRecord, tasks: Tasks, version: str) -> None:
        self.record = record
        self.work: asyncio.Task[dict[str, Any]] | None = None
        self.ended = asyncio.Event()
        self._tasks = tasks
        self._version = version
        self._questions: dict[str, asyncio.Future[Any]] = {}
        self._asked = 0

    async def ask(self, question: Question) -> Any:
        """Put a question to whoever looks at the task, and wait for its answer."""
        if self.record.is_over:
            raise asyncio.CancelledError
        self._asked += 1
        key = f"{question.key or question.method.partition('/')[0]}-{self._asked}"
        future = self._questions[key] = asyncio.get_running_loop().create_future()
        asked = {"method": question.method, "params": question.params}
        await self._change(status="input_required", input_requests={**self.record.input_requests, key: asked})
        try:
            async with asyncio.timeout(question.within):
                return await future
        except TimeoutError:
            await self.answer({key: None})
            raise NoAnswer(f"Nobody answered {question.method} within {question.within:g} s.") from None

    async def answer(self, responses: Mapping[str, Any]) -> None:
        """Take answers; those to nothing that is asked are dropped."""
        taken = [key for key in responses if key in self._questions]
        if not taken or self.record.is_over:
            return
        left = {key: asked for key, asked in self.record.input_requests.items() if key not in taken}
        await self._change(status="input_required" if left else "working", input_requests=left)
        for key in taken:
            future = self._questions.pop(key)
            if not future.done():
                future.set_result(responses[key])

    async def cancel(self) -> None:
        """Stop the work; what it was about to say is not heard any more."""
        if self.record.is_over:
            return
        await self._change(status="cancelled", input_requests={}, status_message="The task was cancelled.")
        if self.work is not None:
            self.work.cancel()

    async def run(self, work: asyncio.Task[dict[str, Any]]) -> None:
        """Follow the work to its end."""
        self.work = work
        try:
            result = await work
        except asyncio.CancelledError:
            if not work.cancelled():
                work.cancel()
                raise
            await self._end(status="cancelled", status_message="The task was cancelled.")
        except Exception as error:
            told = failure(error, self._version)
            problem = {"code": told.code, "message": told.message, **({} if told.data is None else {"data": told.data})}
            await self._end(status="failed", error=problem, status_message=told.message)
        else:
            await self._end(status="completed", result=result)

    async def _end(self, **changes: Any) -> None:
        if not self.record.is_over:
            await self._change(input_requests={}, **changes)
        self.ended.set()

    async def _change(self, **changes: Any) -> None:
        self.record = msgspec.structs.replace(self.record, updated_at=now(), **changes)
        await self._tasks.changed(self.record)


class Tasks:
    """All tasks of one server."""

    def __init__(self, host: TaskHost, store: TaskStore) -> None:
        self._host = host
        self._store = store
        self._live: dict[str, LiveTask] = {}
        self._watchers: list[Watcher] = []

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Have `watcher` called at each change of a task, until the returned function is called."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    async def start(self, principal: Principal, version: str, ttl_ms: int | None = None) -> LiveTask:
        """A task that can be asked about from now on, on its way to be given work; `Busy` when too many run."""
        if len(self._live) >= _MOST_RUNNING:
            raise Busy(f"{_MOST_RUNNING} tasks are running already; try again later.")
        ttl = min(max(_DEFAULT_TTL_MS if ttl_ms is None else ttl_ms, SHORTEST_TTL_MS), LONGEST_TTL_MS)
        created = now()
        record = TaskRecord(
            id=secrets.token_urlsafe(24),
            principal=principal.id,
            status="working",
            created_at=created,
            updated_at=created,
            ttl_ms=ttl,
            poll_ms=_POLL_MS,
        )
        task = self._live[record.id] = LiveTask(record, self, version)
        try:
            await self._store.save(record)
        except BaseException:
            del self._live[record.id]
            raise
        return task

    def follow(self, task: LiveTask, work: asyncio.Task[dict[str, Any]]) -> None:
        """Let a task's work go on by itself."""
        task.work = work
        self._host.background(self._follow(task, work))

    async def _follow(self, task: LiveTask, work: asyncio.Task[dict[str, Any]]) -> None:
        loop = asyncio.get_running_loop()
        expiry = loop.call_later(task.record.ttl_ms / 1000, work.cancel)
        try:
            await task.run(work)
        finally:
            expiry.cancel()
            self._live.pop(task.record.id, None)
            loop.call_later(task.record.ttl_ms / 1000, self._forget, task.record.id)

    def _forget(self, task_id: str) -> None:
        self._host.background(self._store.delete(task_id))

    async def changed(self, record: TaskRecord) -> None:
        """Remember a change, then tell those who watch."""
        await self._store.save(record)
        for watcher in tuple(self._watchers):
            watcher(record)

    async def find(self, task_id: str, principal: Principal) -> TaskRecord:
        """The task as it stands; somebody else's is not there."""
        live = self._live.get(task_id)
        record = live.record if live is not None else await self._store.load(task_id)
        if record is None or record.principal != principal.id:
            raise InvalidParams(f"There is no task {task_id}.")
        if live is None and not record.is_over:
            record = msgspec.structs.replace(record, status="failed", error=_LOST, status_message=_LOST["message"])
            await self.changed(record)
        return record

    def live(self, record: TaskRecord) -> LiveTask | None:
        """The running work behind a record."""
        return self._live.get(record.id)

    async def page(self, principal: Principal, after: str | None, limit: int) -> list[TaskRecord]:
        """Tasks of one principal."""
        return await self._store.page(principal.id, after, limit)

    def stop(self) -> None:
        """Stop all work."""
        for task in tuple(self._live.values()):
            if task.work is not None:
                task.work.cancel()


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
