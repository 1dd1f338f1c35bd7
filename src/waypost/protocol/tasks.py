"""Tasks: calls that continue after their request was answered, and are polled by their id.

A `RunningTask` is work that runs in this process. Each change of its record is written to the store, fenced by the
record's version, before clients are notified; another replica on the same store may cancel it or leave answers there.
`Tasks` starts them, finds them for the principal that started them, and sends heartbeats for this process. A task whose
holder has stopped sending them has failed, or, if its tool is idempotent, is run again by the replica that is asked for
it next, with the rights of the caller that asks.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec

from waypost.capabilities.principals import Principal
from waypost.capabilities.questions import Question
from waypost.errors import Busy, InvalidParams, NoAnswer, StaleVersion, StoreUnavailable, shorten
from waypost.execution.limits import Shares
from waypost.loops import wait_for_event
from waypost.protocol.relay import HEARTBEAT_S, TASK_CHANGED, Liveness
from waypost.protocol.responses import to_failure
from waypost.protocol.streams import Outlet, StreamHost
from waypost.stores.tasks import TaskCall, TaskRecord
from waypost.wire import messages

if TYPE_CHECKING:
    from waypost.identity.keys import KeyChange


TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"


def now() -> str:
    """The time as ISO 8601 in UTC, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def modern_task(record: TaskRecord) -> dict[str, Any]:
    """The fields of a task in every message of 2026-07-28."""
    return {**_task(record, record.status), "ttlMs": record.ttl_ms, "pollIntervalMs": record.poll_ms}


def _task(record: TaskRecord, status: str) -> dict[str, Any]:
    task = {
        "taskId": record.id,
        "status": status,
        "createdAt": record.created_at,
        "lastUpdatedAt": record.updated_at,
    }
    return task if record.status_message is None else {**task, "statusMessage": record.status_message}


def detailed_task(record: TaskRecord) -> dict[str, Any]:
    """A task of 2026-07-28 with its result or error, or the input it requires."""
    task = modern_task(record)
    if record.status == "input_required":
        task["inputRequests"] = record.input_requests
    elif record.status == "completed":
        task["result"] = record.result
    elif record.status == "failed":
        task["error"] = record.error
    return task


def legacy_task(record: TaskRecord) -> dict[str, Any]:
    """A task of 2025-11-25, where a result with `isError` is a failed task; 2026-07-28 calls it completed."""
    failed = record.status == "completed" and bool((record.result or {}).get("isError"))
    status = "failed" if failed else record.status
    return {**_task(record, status), "ttl": record.ttl_ms, "pollInterval": record.poll_ms}


def status_notification(record: TaskRecord) -> bytes:
    """The notification of a session that one of its tasks changed."""
    return messages.notification("notifications/tasks/status", legacy_task(record))


_log: Final = logging.getLogger(__name__)

POLL_INTERVAL_S: Final = 0.25
CANCELLED: Final = "The task was cancelled."
_STOPPED: Final = "The server was stopped while the task was running."
LOST: Final[dict[str, Any]] = {
    "status": "failed",
    "error": {"code": -32603, "message": _STOPPED},
    "status_message": _STOPPED,
}
"""How a task ends whose process has ended."""
_ENDED: Final[dict[str, Any]] = {"input_requests": {}, "answers": {}, "holder": "", "call": None}
"""The fields that are emptied when a task ends."""
_MAX_RETRY_PAUSE_S: Final = 30.0
MAX_RUNS: Final = 3
"""How often the call of a task is made: one that ends its process each time must not end all replicas."""


Watcher = Callable[[TaskRecord], None]


class RunningTask:
    """Work that runs as a task."""

    def __init__(
        self, record: TaskRecord, records: Tasks, version: str, principal: Principal, owner: str | None
    ) -> None:
        self.record = record
        self.principal = principal
        self.owner = owner
        """The id of the session that started it, the only one to which its questions are sent."""
        self.work: asyncio.Task[dict[str, Any]] | None = None
        self.ended = asyncio.Event()
        self.is_taken_over = False
        """Whether another process runs it by now, because this one was taken for dead, or may run it, because this one
        stops; nothing is written then."""
        self.on_change: Watcher | None = None
        """Called with its record after each change that is made here."""
        self._records = records
        self._version = version
        self._questions: dict[str, asyncio.Future[Any]] = {}
        self._question_count = 0
        # Each change starts from the record that the one before wrote; the version in the store fences other replicas.
        self._lock = asyncio.Lock()
        # How the task ends when its work is cancelled; what cancels it sets the reason first.
        self._final_fields: dict[str, Any] = {"status": "cancelled", "status_message": CANCELLED}
        self._outlets: list[Outlet] = []
        self.is_result_awaited = asyncio.Event()
        """Set while its session waits for the result: questions can be sent on the stream of that request."""

    @property
    def outlet(self) -> Outlet | None:
        """The outlet of its session's request for the result, if there is one."""
        return self._outlets[-1] if self._outlets else None

    @contextmanager
    def route_questions_to(self, outlet: Outlet) -> Iterator[None]:
        """Send questions through `outlet` while its session waits for the result."""
        self._outlets.append(outlet)
        self.is_result_awaited.set()
        try:
            yield
        finally:
            self._outlets.remove(outlet)
            if not self._outlets:
                self.is_result_awaited.clear()

    async def ask(self, question: Question) -> Any:
        """Show a question in the task, and wait until a client answers it with `tasks/update`."""
        key = self._question_key(question)
        future = self._questions[key] = asyncio.get_running_loop().create_future()
        # The task is over already, for example cancelled by another replica.
        if not await self._add_question(key, question):
            self._cancel_work()
            raise asyncio.CancelledError
        try:
            async with asyncio.timeout(question.within):
                return await future
        except TimeoutError:
            await self.answer({key: None})
            raise NoAnswer(f"The client did not answer {question.method} within {question.within:g} s.") from None

    @asynccontextmanager
    async def asking(self, question: Question) -> AsyncIterator[None]:
        """Show that the task waits for an answer that comes another way; it waits also where that cannot be written."""
        key = self._question_key(question)
        with suppress(StoreUnavailable):
            await self._add_question(key, question)
        try:
            yield
        finally:
            with suppress(StoreUnavailable):
                await self._remove_questions([key])

    async def answer(self, responses: Mapping[str, Any]) -> None:
        """Take answers; those without a question are dropped."""
        answered = [key for key in responses if key in self._questions]
        if answered and await self._remove_questions(answered):
            for key in answered:
                future = self._questions.pop(key, None)
                if future is not None and not future.done():
                    future.set_result(responses[key])

    def _question_key(self, question: Question) -> str:
        self._question_count += 1
        return f"{question.key or question.method.partition('/')[0]}-{self._question_count}"

    async def _add_question(self, key: str, question: Question) -> bool:
        asked = {"method": question.method, "params": question.params}
        return await self._update(
            lambda record: {"status": "input_required", "input_requests": {**record.input_requests, key: asked}}
        )

    async def _remove_questions(self, keys: list[str]) -> bool:
        def remove(record: TaskRecord) -> dict[str, Any]:
            left = {key: asked for key, asked in record.input_requests.items() if key not in keys}
            return {"status": "input_required" if left else "working", "input_requests": left, "answers": {}}

        return await self._update(remove)

    def stop_because(self, why: str) -> None:
        """Stop the work, because its time to live is over or its key is refused."""
        self._final_fields = {**self._final_fields, "status_message": f"The task was stopped: {why}."}
        self._cancel_work()

    def abandon(self) -> None:
        """Stop the work because the hub stops; one that may be run again is left to the next process that is asked."""
        self.is_taken_over = self._records.may_outlive_process(self.record)
        self._final_fields = LOST
        self._cancel_work()

    async def cancel(self) -> None:
        """End the task as cancelled, and stop the work."""
        # Written first: if the work or another replica ended the task before, there is nothing to cancel.
        if await self._end(status="cancelled", status_message=CANCELLED):
            self._cancel_work()

    async def run(self, work: asyncio.Task[dict[str, Any]]) -> None:
        """Wait for the end of the work, and write it."""
        self.work = work
        try:
            result = await work
        except asyncio.CancelledError:
            # This task was cancelled, not the work that it waits for.
            if not work.cancelled():
                work.cancel()
                raise
            await self._end_with_retries(**self._final_fields)
        except Exception as error:
            failure = to_failure(error, self._version)
            data = {} if failure.data is None else {"data": failure.data}
            problem = {"code": failure.code, "message": failure.message, **data}
            await self._end_with_retries(status="failed", error=problem, status_message=failure.message)
        else:
            await self._end_with_retries(status="completed", result=result)
        self.ended.set()

    async def refresh(self) -> None:
        """Take over what another replica wrote: that the task is over, or answers to its questions."""
        async with self._lock:
            stored = await self._records.load(self.record.id)
            if stored is None:
                stored = msgspec.structs.replace(self.record, status="cancelled", status_message=CANCELLED)
            # A process that stood still longer than its heartbeat holds finds here that another has its task.
            self.is_taken_over = not stored.is_over and stored.holder != self.record.holder
            has_ended = stored.is_over and not self.record.is_over
            if not self.is_taken_over:
                self.record = stored
            if has_ended and self.on_change is not None:
                self.on_change(stored)
        if stored.is_over or self.is_taken_over:
            self._cancel_work()
        elif stored.answers:
            await self.answer(stored.answers)

    def _cancel_work(self) -> None:
        if self.work is not None:
            self.work.cancel()

    async def _end(self, **changes: Any) -> bool:
        expires_at = self._records.time() + self.record.ttl_ms / 1000
        return await self._update(
            lambda _: {**_ENDED, "expires_at": expires_at, **changes},
        )

    async def _end_with_retries(self, **changes: Any) -> None:
        """Write how it ended, and try again while the store is unavailable, until the hub stops."""
        pause = POLL_INTERVAL_S
        while True:
            try:
                await self._end(**changes)
            except StoreUnavailable as error:
                if self._records.is_stopping:
                    _log.error("the end of the task %s was not stored: %s", self.record.id, error)
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_RETRY_PAUSE_S)
            else:
                return

    async def _update(self, changes: Callable[[TaskRecord], dict[str, Any]]) -> bool:
        """Write a change of the current record; false when the task is over."""
        while True:
            async with self._lock:
                if self.record.is_over or self.is_taken_over:
                    return False
                fresh = msgspec.structs.replace(self.record, updated_at=now(), **changes(self.record))
                try:
                    self.record = await self._records.save(fresh)
                except StaleVersion:
                    pass
                else:
                    if self.on_change is not None:
                        self.on_change(self.record)
                    return True
            # Another replica wrote the task. `refresh` takes the lock, so it is called outside of it.
            await self.refresh()


MAX_TTL_MS: Final = 3_600_000
MIN_TTL_MS: Final = 1_000
_DEFAULT_TTL_MS: Final = 3_600_000
_POLL_MS: Final = 500

Work = Coroutine[Any, Any, dict[str, Any]]
RunAgain = Callable[["RunningTask", TaskCall], Work]
"""Makes the call of a task again."""


class Tasks:
    """All tasks of one server."""

    def __init__(self, host: StreamHost, liveness: Liveness, *, limit: int) -> None:
        self.is_stopping = False
        self._host = host
        self._liveness = liveness
        self._shares = Shares(limit)
        self._running: dict[str, RunningTask] = {}
        self._watchers: list[tuple[Watcher, Collection[str] | None]] = []
        self._awaited: list[tuple[str, str, Outlet]] = []
        """Tasks of other processes whose results clients wait for here: task, session, outlet of the request."""
        # Weak: an event goes with the last request that waits for it.
        self._changed_elsewhere: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        """Set when another replica wrote a task whose result a client waits for here."""
        self._heartbeat: asyncio.Task[None] | None = None
        self._no_tasks = asyncio.Event()
        self.run_again: RunAgain | None = None

    def time(self) -> float:
        """The time that all replicas share."""
        return self._host.store.now()

    def watch(self, watcher: Watcher, task_ids: Collection[str] | None = None) -> Callable[[], None]:
        """Call `watcher` at each change of some tasks, until the returned function is called.

        Without ids, at each change that this process makes to any task.
        """
        entry = (watcher, task_ids)
        self._watchers.append(entry)
        return lambda: self._watchers.remove(entry)

    def refresh_watched(self) -> None:
        """Look at watched tasks again, because announcements of other replicas may be lost."""
        for task_id in {task_id for _, task_ids in self._watchers for task_id in task_ids or ()}:
            self._host.background(self.refresh(task_id))

    def is_awaited_by(self, session_id: str) -> bool:
        """Whether the client of a session waits here for the result of a task that runs elsewhere."""
        return any(session == session_id for _, session, _ in self._awaited)

    def find_outlet(self, task_id: str, session_id: str) -> Outlet | None:
        """The outlet of the request with which the client of a session waits here for the result of a task."""
        found = (outlet for *waiting, outlet in self._awaited if waiting == [task_id, session_id])
        return next(found, None)

    async def start(
        self,
        principal: Principal,
        version: str,
        ttl_ms: int | None = None,
        owner: str | None = None,
        call: TaskCall | None = None,
    ) -> RunningTask:
        """A new task in the store, without work yet; `Busy` when too many run."""
        if not self._shares.try_take(principal.id):
            raise Busy(f"{self._shares.total} tasks are running already (maxTasks); try again later.")
        ttl = min(max(_DEFAULT_TTL_MS if ttl_ms is None else ttl_ms, MIN_TTL_MS), MAX_TTL_MS)
        created = now()
        record = TaskRecord(
            id=secrets.token_urlsafe(24),
            principal=principal.id,
            status="working",
            created_at=created,
            updated_at=created,
            ttl_ms=ttl,
            poll_ms=_POLL_MS,
            # Once for the work, and once more for its result to be fetched.
            expires_at=self.time() + 2 * ttl / 1000,
            holder=self._liveness.holder,
            call=call,
        )
        task = RunningTask(record, self, version, principal, owner)
        await self._hold(task, self._host.store.tasks.save)
        return task

    async def _hold(self, task: RunningTask, save: Callable[[TaskRecord], Awaitable[TaskRecord]]) -> None:
        """Write that this process runs a task, for which a share was taken."""
        # Entered first, because the heartbeat ends when nothing runs; saved last, because another replica that finds
        # the record must find its holder alive.
        self._running[task.record.id] = task
        try:
            await self._start_heartbeat()
            task.record = await save(task.record)
        except BaseException:
            self._forget(task)
            raise

    def _forget(self, task: RunningTask) -> None:
        if self._running.get(task.record.id) is task:  # else another replica had it, and lost it to this one again
            del self._running[task.record.id]
        self._shares.give_back(task.record.principal)

    def _get_running(self, task_id: str) -> RunningTask | None:
        task = self._running.get(task_id)
        return None if task is None or task.is_taken_over else task

    def may_outlive_process(self, record: TaskRecord) -> bool:
        """Whether another process on the store, or this one after a restart, may make the call of a task again."""
        may_run_again = record.call is not None and record.call.runs < MAX_RUNS and self.run_again is not None
        return may_run_again and self._host.store.database.is_durable

    async def _take_over(self, record: TaskRecord, principal: Principal) -> TaskRecord:
        """End a task whose holder is gone, or make its call again; `StaleVersion` where another replica was faster."""
        call = record.call
        if call is None or call.runs >= MAX_RUNS or self.run_again is None:
            return await self.save(self._end_record(record, **LOST))
        if self.is_stopping or not self._shares.try_take(principal.id):
            return record  # the next request tries again
        call = msgspec.structs.replace(call, runs=call.runs + 1)
        fresh = msgspec.structs.replace(
            record,
            status="working",
            holder=self._liveness.holder,
            input_requests={},
            answers={},
            call=call,
            updated_at=now(),
        )
        task = RunningTask(fresh, self, call.version, principal, call.session)
        await self._hold(task, self.save)
        _log.info("the task %s of a process that ended is run again", record.id)
        self.follow(task, asyncio.get_running_loop().create_task(self.run_again(task, call)))
        return task.record

    def follow(self, task: RunningTask, work: asyncio.Task[dict[str, Any]]) -> None:
        """Run a task's work in the background, until it ends or its time to live is over."""
        task.work = work
        self._host.background(self._follow(task, work))

    async def _follow(self, task: RunningTask, work: asyncio.Task[dict[str, Any]]) -> None:
        expiry = asyncio.get_running_loop().call_later(
            task.record.ttl_ms / 1000, task.stop_because, f"its time, {task.record.ttl_ms} ms, was over"
        )
        try:
            await task.run(work)
        finally:
            expiry.cancel()
            self._forget(task)
            if not self._running:
                self._no_tasks.set()

    async def load(self, task_id: str) -> TaskRecord | None:
        """The stored record of a task, unless it has expired."""
        return self._unless_expired(await self._host.store.tasks.load(task_id))

    async def save(self, record: TaskRecord) -> TaskRecord:
        """Write a record, then call the watchers, and let other replicas know."""
        saved = await self._host.store.tasks.save(record)
        if self._liveness.relay is not None:
            self._liveness.relay.announce(TASK_CHANGED, saved.id)
        # A copy: a watcher may remove itself when it is called.
        for watcher, task_ids in tuple(self._watchers):
            if task_ids is None or saved.id in task_ids:
                watcher(saved)
        return saved

    async def find(self, task_id: str, principal: Principal) -> TaskRecord:
        """The current record of a principal's task; one whose holder is gone has failed, or is run again here.

        An unknown id and another principal's task are answered alike, after one query each, so that a caller cannot
        distinguish them by the time it takes.
        """
        while True:
            running = self._get_running(task_id)
            if running is not None and running.record.principal == principal.id:
                return running.record
            record = self._unless_expired(await self._host.store.tasks.own(task_id, principal.id))
            if record is None:
                raise InvalidParams(f"There is no task {shorten(task_id)}.")
            if record.is_over or await self._is_held_elsewhere(record):
                return record
            try:
                # In the background: a client that gives up must not leave a task here that does not run.
                return await asyncio.shield(self._host.background(self._take_over(record, principal)))
            except StaleVersion:
                continue

    async def cancel(self, record: TaskRecord) -> TaskRecord:
        """Stop a task, on whichever replica it runs; returns its record after that."""
        running = self._get_running(record.id)
        if running is not None:
            await running.cancel()
            return running.record
        return await self._update_remote(
            record, lambda found: self._end_record(found, status="cancelled", status_message=CANCELLED)
        )

    async def answer(self, record: TaskRecord, responses: Mapping[str, Any]) -> None:
        """Give answers to a task, on whichever replica it runs."""
        running = self._get_running(record.id)
        if running is not None:
            await running.answer(responses)
            return
        await self._update_remote(
            record, lambda found: msgspec.structs.replace(found, answers={**found.answers, **responses})
        )

    async def result(self, record: TaskRecord, principal: Principal, session_id: str, outlet: Outlet) -> TaskRecord:
        """Wait until a task has ended; its questions go to its own session through `outlet` meanwhile."""
        running = self._get_running(record.id)
        if running is not None:
            with running.route_questions_to(outlet) if session_id == running.owner else nullcontext():
                await running.ended.wait()
            record = running.record  # of a task that was taken over, another replica writes the end
        if record.is_over:
            return record
        changed = self._changed_elsewhere.setdefault(record.id, asyncio.Event())
        with self._take_questions(record.id, session_id, outlet):
            while not record.is_over:
                # Not for ever: the bus may lose the announcement, and a dead holder sends none.
                await wait_for_event(changed, POLL_INTERVAL_S)
                changed.clear()
                record = await self.find(record.id, principal)
        return record

    @contextmanager
    def _take_questions(self, task_id: str, session_id: str, outlet: Outlet) -> Iterator[None]:
        """Send questions that a task of another replica asks its own session through `outlet`."""
        waiting = (task_id, session_id, outlet)
        self._awaited.append(waiting)
        if self._liveness.relay is not None:
            self._liveness.relay.streams.announce_reader(session_id)
        try:
            yield
        finally:
            self._awaited.remove(waiting)

    async def refresh(self, task_id: str) -> None:
        """Take over what another replica wrote for a task that runs here, or whose result a client waits for here."""
        changed = self._changed_elsewhere.get(task_id)
        if changed is not None:
            changed.set()
        task = self._get_running(task_id)
        with suppress(StoreUnavailable):  # the next heartbeat looks again, and clients can ask for the task
            if task is not None and not task.record.is_over:
                await task.refresh()
            watchers = [watcher for watcher, task_ids in self._watchers if task_ids is not None and task_id in task_ids]
            record = await self.load(task_id) if watchers else None
            if record is not None:
                for watcher in watchers:
                    watcher(record)

    async def page(self, principal: Principal, after: str | None, limit: int) -> list[TaskRecord]:
        """Tasks of one principal."""
        return await self._host.store.tasks.page(principal.id, after, limit)

    @property
    def running(self) -> int:
        """How many tasks this process runs."""
        return len(self._running)

    async def leave(self) -> None:
        """Remove this process from the holders of tasks."""
        # The hub may be started again.
        self.is_stopping = False
        await self._liveness.leave()

    def apply_key_changes(self, changes: Mapping[int, KeyChange]) -> None:
        """Stop the tasks of revoked keys; principals with another key, or other rights, continue with those."""
        for task in tuple(self._running.values()):
            change = changes.get(id(task.principal))
            if change is not None and change.now is None:
                task.stop_because("its key is refused by now")
            elif change is not None and change.now is not None:
                task.principal = change.now

    def principals(self) -> list[Principal]:
        """The principals of the tasks that this process runs."""
        return [task.principal for task in self._running.values()]

    def stop(self) -> None:
        """Stop all work; how it ended is still written."""
        self.is_stopping = True
        self._no_tasks.set()
        for task in tuple(self._running.values()):
            task.abandon()

    async def _update_remote(self, record: TaskRecord, change: Callable[[TaskRecord], TaskRecord]) -> TaskRecord:
        found: TaskRecord | None = record
        while found is not None and not found.is_over:
            try:
                # Fenced by the version that was read: the change is made again on top of what another replica wrote.
                return await self.save(change(found))
            except StaleVersion:
                found = await self.load(record.id)
        return found or record

    async def _is_held_elsewhere(self, record: TaskRecord) -> bool:
        return record.holder != self._liveness.holder and await self._liveness.is_alive(record.holder)

    async def _start_heartbeat(self) -> None:
        if self._heartbeat is None or self._heartbeat.done():
            await self._liveness.send()
            self._no_tasks.clear()
            self._heartbeat = self._host.background(self._run_heartbeat())

    async def _run_heartbeat(self) -> None:
        """While tasks run here, send heartbeats and look for changes by other replicas."""
        while self._running and not self.is_stopping:
            if await wait_for_event(self._no_tasks, HEARTBEAT_S):
                return
            try:
                await self._liveness.send()
                if self._host.store.database.is_shared:
                    await self._refresh_changed()
            except StoreUnavailable as error:
                _log.warning("heartbeat failed; running tasks may be declared lost: %s", error)

    async def _refresh_changed(self) -> None:
        # One query for the versions of all tasks; only a record that differs is read.
        held = await self._host.store.tasks.held(self._liveness.holder)
        for task in tuple(self._running.values()):
            is_mine = not task.record.is_over and not task.is_taken_over
            if is_mine and held.get(task.record.id) != task.record.version:
                await task.refresh()

    def _unless_expired(self, record: TaskRecord | None) -> TaskRecord | None:
        return None if record is None or record.expires_at < self.time() else record

    def _end_record(self, record: TaskRecord, **changes: Any) -> TaskRecord:
        expires_at = self.time() + record.ttl_ms / 1000
        return msgspec.structs.replace(record, **{**_ENDED, **changes, "expires_at": expires_at, "updated_at": now()})
