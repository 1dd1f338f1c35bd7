"""Tasks: calls that go on after their request was answered, asked about later by their id.

A `LiveTask` is work that runs in this process. Its record goes to the store at every change, fenced by its version,
before anybody is told; another hub on the same store may cancel it or leave answers there. `Tasks` starts them, finds
them for whoever started them, and says again and again that this process is alive: a task whose holder fell silent is
lost.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from waypost.capabilities.principals import Principal
from waypost.capabilities.questions import Question
from waypost.errors import Busy, InvalidParams, NoAnswer, StaleVersion, StoreUnavailable, shorten
from waypost.protocol.responses import to_failure
from waypost.protocol.streams import Outlet
from waypost.stores.store import Store
from waypost.stores.tasks import TaskRecord
from waypost.wire import messages

if TYPE_CHECKING:
    from waypost.policy.keys import KeyChange


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


_log: Final = logging.getLogger(__name__)

LOOK_AGAIN: Final = 0.25
CANCELLED: Final = "The task was cancelled."
_STOPPED: Final = "The server was stopped while the task was running."
LOST: Final[dict[str, Any]] = {
    "status": "failed",
    "error": {"code": -32603, "message": _STOPPED},
    "status_message": _STOPPED,
}
"""How a task ends that was still running when its hub ended."""
_LONGEST_PAUSE: Final = 30.0


class Keeper(Protocol):
    """Where the records of tasks are kept."""

    @property
    def is_stopping(self) -> bool: ...
    async def load(self, task_id: str) -> TaskRecord | None: ...
    async def save(self, record: TaskRecord) -> TaskRecord: ...


class LiveTask:
    """Work that runs as a task."""

    def __init__(
        self, record: TaskRecord, keeper: Keeper, version: str, principal: Principal, owner: str | None = None
    ) -> None:
        self.record = record
        self.principal = principal
        self.owner = owner
        """The session that started it, the only one that is sent what it asks."""
        self.work: asyncio.Task[dict[str, Any]] | None = None
        self.ended = asyncio.Event()
        self._keeper = keeper
        self._version = version
        self._questions: dict[str, asyncio.Future[Any]] = {}
        self._asked = 0
        self._turn = asyncio.Lock()
        self._ends_as: dict[str, Any] = {"status": "cancelled", "status_message": CANCELLED}
        self._outlets: list[Outlet] = []
        self.heard = asyncio.Event()
        """Set while its session waits for the result, which questions can be sent with."""

    @property
    def outlet(self) -> Outlet | None:
        """The way to its session where that waits for the result."""
        return self._outlets[-1] if self._outlets else None

    @contextmanager
    def heard_through(self, outlet: Outlet) -> Iterator[None]:
        """Let questions reach its session through `outlet` for as long as that waits for the result."""
        self._outlets.append(outlet)
        self.heard.set()
        try:
            yield
        finally:
            self._outlets.remove(outlet)
            if not self._outlets:
                self.heard.clear()

    async def ask(self, question: Question) -> Any:
        """Put a question to whoever looks at the task, and wait for its answer."""
        key = self._key(question)
        future = self._questions[key] = asyncio.get_running_loop().create_future()
        if not await self._show(key, question):
            self._stop_work()
            raise asyncio.CancelledError
        try:
            async with asyncio.timeout(question.within):
                return await future
        except TimeoutError:
            await self.answer({key: None})
            raise NoAnswer(f"Nobody answered {question.method} within {question.within:g} s.") from None

    @asynccontextmanager
    async def asking(self, question: Question) -> AsyncIterator[None]:
        """Show that the task waits for an answer that comes some other way; while that cannot be written, it waits."""
        key = self._key(question)
        with suppress(StoreUnavailable):
            await self._show(key, question)
        try:
            yield
        finally:
            with suppress(StoreUnavailable):
                await self._hide([key])

    async def answer(self, responses: Mapping[str, Any]) -> None:
        """Take answers; those to nothing that is asked are dropped."""
        taken = [key for key in responses if key in self._questions]
        if taken and await self._hide(taken):
            for key in taken:
                future = self._questions.pop(key, None)
                if future is not None and not future.done():
                    future.set_result(responses[key])

    def _key(self, question: Question) -> str:
        self._asked += 1
        return f"{question.key or question.method.partition('/')[0]}-{self._asked}"

    async def _show(self, key: str, question: Question) -> bool:
        asked = {"method": question.method, "params": question.params}
        return await self._change(
            lambda record: {"status": "input_required", "input_requests": {**record.input_requests, key: asked}}
        )

    async def _hide(self, taken: list[str]) -> bool:
        def answered(record: TaskRecord) -> dict[str, Any]:
            left = {key: asked for key, asked in record.input_requests.items() if key not in taken}
            return {"status": "input_required" if left else "working", "input_requests": left, "answers": {}}

        return await self._change(answered)

    def expire(self) -> None:
        """Stop the work because its time is over."""
        self._end_because(f"its time, {self.record.ttl_ms} ms, was over")

    def refuse(self) -> None:
        """Stop the work because who started it is let in no more."""
        self._end_because("its key is refused by now")

    def _end_because(self, why: str) -> None:
        self._ends_as = {**self._ends_as, "status_message": f"The task was stopped: {why}."}
        self._stop_work()

    def lose(self) -> None:
        """Stop the work because the hub stops."""
        self._ends_as = LOST
        self._stop_work()

    async def cancel(self) -> None:
        """Stop the work; what it was about to say is not heard any more."""
        if await self._end(status="cancelled", status_message=CANCELLED):
            self._stop_work()

    async def run(self, work: asyncio.Task[dict[str, Any]]) -> None:
        """Follow the work to its end."""
        self.work = work
        try:
            result = await work
        except asyncio.CancelledError:
            if not work.cancelled():
                work.cancel()
                raise
            await self._end_surely(**self._ends_as)
        except Exception as error:
            told = to_failure(error, self._version)
            problem = {"code": told.code, "message": told.message, **({} if told.data is None else {"data": told.data})}
            await self._end_surely(status="failed", error=problem, status_message=told.message)
        else:
            await self._end_surely(status="completed", result=result)
        self.ended.set()

    async def catch_up(self) -> None:
        """Look at what another hub wrote about this task: that it is over, or answers to its questions."""
        async with self._turn:
            stored = await self._keeper.load(self.record.id)
            if stored is None:
                stored = msgspec.structs.replace(self.record, status="cancelled", status_message=CANCELLED)
            self.record = stored
        if stored.is_over:
            self._stop_work()
        elif stored.answers:
            await self.answer(stored.answers)

    def _stop_work(self) -> None:
        if self.work is not None:
            self.work.cancel()

    async def _end(self, **changes: Any) -> bool:
        expires_at = time.time() + self.record.ttl_ms / 1000
        return await self._change(
            lambda _: {"input_requests": {}, "answers": {}, "holder": "", "expires_at": expires_at, **changes}
        )

    async def _end_surely(self, **changes: Any) -> None:
        """Write how it ended, however long the store takes to come back, until the hub stops."""
        pause = LOOK_AGAIN
        while True:
            try:
                await self._end(**changes)
            except StoreUnavailable as error:
                if self._keeper.is_stopping:
                    _log.error("the end of the task %s is not in the store: %s", self.record.id, error.message)
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                return

    async def _change(self, changes: Callable[[TaskRecord], dict[str, Any]]) -> bool:
        """Write a change of the record as it is then; false when the task is over by then."""
        while True:
            async with self._turn:
                if self.record.is_over:
                    return False
                fresh = msgspec.structs.replace(self.record, updated_at=now(), **changes(self.record))
                try:
                    self.record = await self._keeper.save(fresh)
                except StaleVersion:
                    pass
                else:
                    return True
            await self.catch_up()


LONGEST_TTL_MS: Final = 3_600_000
SHORTEST_TTL_MS: Final = 1_000
_DEFAULT_TTL_MS: Final = 3_600_000
_POLL_MS: Final = 500
_BEAT: Final = 1.0
_SILENCE: Final = 5.0

Work = Coroutine[Any, Any, dict[str, Any]]
Watcher = Callable[[TaskRecord], None]


class TaskHost(Protocol):
    """What tasks need of the engine."""

    @property
    def store(self) -> Store: ...
    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...


class Tasks:
    """All tasks of one server."""

    def __init__(self, host: TaskHost, *, limit: int) -> None:
        self.is_stopping = False
        self._host = host
        self._limit = limit
        self._holder = secrets.token_hex(12)
        self._live: dict[str, LiveTask] = {}
        self._watchers: list[Watcher] = []
        self._beating: asyncio.Task[None] | None = None
        self._beaten = float("-inf")
        self._idle = asyncio.Event()

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Have `watcher` called at each change of a task here, until the returned function is called."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    async def start(
        self, principal: Principal, version: str, ttl_ms: int | None = None, owner: str | None = None
    ) -> LiveTask:
        """A task that can be asked about from now on, on its way to be given work; `Busy` when too many run."""
        if len(self._live) >= self._limit:
            raise Busy(f"{self._limit} tasks are running already (maxTasks); try again later.")
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
            expires_at=time.time() + 2 * ttl / 1000,
            holder=self._holder,
        )
        task = self._live[record.id] = LiveTask(record, self, version, principal, owner)
        try:
            await self._begin_to_beat()
            task.record = await self._host.store.tasks.save(record)
        except BaseException:
            del self._live[record.id]
            raise
        return task

    def follow(self, task: LiveTask, work: asyncio.Task[dict[str, Any]]) -> None:
        """Let a task's work go on by itself."""
        task.work = work
        self._host.background(self._follow(task, work))

    async def _follow(self, task: LiveTask, work: asyncio.Task[dict[str, Any]]) -> None:
        expiry = asyncio.get_running_loop().call_later(task.record.ttl_ms / 1000, task.expire)
        try:
            await task.run(work)
        finally:
            expiry.cancel()
            self._live.pop(task.record.id, None)
            if not self._live:
                self._idle.set()

    async def load(self, task_id: str) -> TaskRecord | None:
        """A task as the store knows it, unless its time is over."""
        return _in_time(await self._host.store.tasks.load(task_id))

    async def save(self, record: TaskRecord) -> TaskRecord:
        """Remember a change, then tell those who watch."""
        saved = await self._host.store.tasks.save(record)
        for watcher in tuple(self._watchers):
            watcher(saved)
        return saved

    async def find(self, task_id: str, principal: Principal) -> TaskRecord:
        """The task as it stands; somebody else's is not there, and one whose holder fell silent has failed.

        For one that is not there the store is asked once, whether there is such a task or not.
        """
        while True:
            live = self._live.get(task_id)
            if live is not None and live.record.principal == principal.id:
                return live.record
            record = _in_time(await self._host.store.tasks.own(task_id, principal.id))
            if record is None:
                raise InvalidParams(f"There is no task {shorten(task_id)}.")
            if record.is_over or await self._is_held(record):
                return record
            try:
                return await self.save(_ended(record, **LOST))
            except StaleVersion:
                continue

    async def cancel(self, record: TaskRecord) -> TaskRecord:
        """Stop a task wherever it runs; as it stands after that."""
        live = self._live.get(record.id)
        if live is not None:
            await live.cancel()
            return live.record
        return await self._change_elsewhere(
            record, lambda found: _ended(found, status="cancelled", status_message=CANCELLED)
        )

    async def answer(self, record: TaskRecord, responses: Mapping[str, Any]) -> None:
        """Give a task answers wherever it runs."""
        live = self._live.get(record.id)
        if live is not None:
            await live.answer(responses)
            return
        await self._change_elsewhere(
            record, lambda found: msgspec.structs.replace(found, answers={**found.answers, **responses})
        )

    async def result(self, record: TaskRecord, principal: Principal, session_id: str, outlet: Outlet) -> TaskRecord:
        """Wait until a task has ended, wherever it runs; its own session is asked through `outlet` meanwhile."""
        live = self._live.get(record.id)
        if live is not None:
            with live.heard_through(outlet) if session_id == live.owner else nullcontext():
                await live.ended.wait()
            return live.record
        while not record.is_over:
            await asyncio.sleep(LOOK_AGAIN)
            record = await self.find(record.id, principal)
        return record

    async def page(self, principal: Principal, after: str | None, limit: int) -> list[TaskRecord]:
        """Tasks of one principal."""
        return await self._host.store.tasks.page(principal.id, after, limit)

    async def leave(self) -> None:
        """Hold nothing any more."""
        self.is_stopping = False
        if self._beaten > float("-inf"):
            self._beaten = float("-inf")
            with suppress(StoreUnavailable):
                await self._host.store.tasks.remove_holder(self._holder)

    def apply_key_changes(self, changes: Mapping[int, KeyChange]) -> None:
        """Stop the work of who is let in no more; that of who has another key, or other rights, goes on."""
        for task in tuple(self._live.values()):
            change = changes.get(id(task.principal))
            if change is not None and change.now is None:
                task.refuse()
            elif change is not None and change.now is not None:
                task.principal = change.now

    def stop(self) -> None:
        """Stop all work; what it comes to is still written."""
        self.is_stopping = True
        self._idle.set()
        for task in tuple(self._live.values()):
            task.lose()

    async def _change_elsewhere(self, record: TaskRecord, change: Callable[[TaskRecord], TaskRecord]) -> TaskRecord:
        found: TaskRecord | None = record
        while found is not None and not found.is_over:
            try:
                return await self.save(change(found))
            except StaleVersion:
                found = await self.load(record.id)
        return found or record

    async def _is_held(self, record: TaskRecord) -> bool:
        return record.holder != self._holder and await self._host.store.tasks.is_holder_alive(
            record.holder, time.time()
        )

    async def _begin_to_beat(self) -> None:
        if self._beating is None or self._beating.done():
            await self._beat()
            self._idle.clear()
            self._beating = self._host.background(self._keep_beating())

    async def _beat(self) -> None:
        if time.monotonic() - self._beaten > _BEAT / 2:
            await self._host.store.tasks.keep_holder(self._holder, time.time() + _SILENCE)
            self._beaten = time.monotonic()

    async def _keep_beating(self) -> None:
        """While tasks run here, say so, and look whether others changed them."""
        while self._live and not self.is_stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT):
                    await self._idle.wait()
                    return
            try:
                await self._beat()
                if self._host.store.database.is_shared:
                    await self._catch_up()
            except StoreUnavailable as error:
                _log.warning("tasks of this hub may be taken for lost: %s", error.message)

    async def _catch_up(self) -> None:
        held = await self._host.store.tasks.held(self._holder)
        for task in tuple(self._live.values()):
            if not task.record.is_over and held.get(task.record.id) != task.record.version:
                await task.catch_up()


def _in_time(record: TaskRecord | None) -> TaskRecord | None:
    return None if record is None or record.expires_at < time.time() else record


def _ended(record: TaskRecord, **changes: Any) -> TaskRecord:
    expires_at = time.time() + record.ttl_ms / 1000
    changes |= {"holder": "", "input_requests": {}, "answers": {}, "expires_at": expires_at, "updated_at": now()}
    return msgspec.structs.replace(record, **changes)
