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
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from waypost.capabilities.asking import Question
from waypost.capabilities.principals import Principal
from waypost.errors import Busy, InvalidParams, NoAnswer, StaleVersion, StoreUnavailable
from waypost.protocol.failures import failure
from waypost.protocol.task_views import now
from waypost.stores.store import Store
from waypost.stores.tasks import TaskRecord

_log: Final = logging.getLogger(__name__)

LONGEST_TTL_MS: Final = 3_600_000
SHORTEST_TTL_MS: Final = 1_000
_DEFAULT_TTL_MS: Final = 3_600_000
_POLL_MS: Final = 500
_MOST_RUNNING: Final = 1_000
_BEAT: Final = 1.0
_SILENCE: Final = 5.0
_LOOK_AGAIN: Final = 0.25
_LONGEST_PAUSE: Final = 30.0

_LOST: Final = {"code": -32603, "message": "The server was stopped while the task was running."}
_CANCELLED: Final = "The task was cancelled."

Work = Coroutine[Any, Any, dict[str, Any]]
Watcher = Callable[[TaskRecord], None]


class TaskHost(Protocol):
    """What tasks need of the engine."""

    @property
    def store(self) -> Store: ...
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
        self._turn = asyncio.Lock()

    async def ask(self, question: Question) -> Any:
        """Put a question to whoever looks at the task, and wait for its answer."""
        self._asked += 1
        key = f"{question.key or question.method.partition('/')[0]}-{self._asked}"
        future = self._questions[key] = asyncio.get_running_loop().create_future()
        asked = {"method": question.method, "params": question.params}

        def add(record: TaskRecord) -> dict[str, Any]:
            return {"status": "input_required", "input_requests": {**record.input_requests, key: asked}}

        if not await self._change(add):
            raise asyncio.CancelledError
        try:
            async with asyncio.timeout(question.within):
                return await future
        except TimeoutError:
            await self.answer({key: None})
            raise NoAnswer(f"Nobody answered {question.method} within {question.within:g} s.") from None

    async def answer(self, responses: Mapping[str, Any]) -> None:
        """Take answers; those to nothing that is asked are dropped."""
        taken = [key for key in responses if key in self._questions]

        def answered(record: TaskRecord) -> dict[str, Any]:
            left = {key: asked for key, asked in record.input_requests.items() if key not in taken}
            return {"status": "input_required" if left else "working", "input_requests": left, "answers": {}}

        if taken and await self._change(answered):
            for key in taken:
                future = self._questions.pop(key, None)
                if future is not None and not future.done():
                    future.set_result(responses[key])

    async def cancel(self) -> None:
        """Stop the work; what it was about to say is not heard any more."""
        if await self._end(status="cancelled", status_message=_CANCELLED):
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
            await self._end_surely(status="cancelled", status_message=_CANCELLED)
        except Exception as error:
            told = failure(error, self._version)
            problem = {"code": told.code, "message": told.message, **({} if told.data is None else {"data": told.data})}
            await self._end_surely(status="failed", error=problem, status_message=told.message)
        else:
            await self._end_surely(status="completed", result=result)
        self.ended.set()

    async def catch_up(self) -> None:
        """Look at what another hub wrote about this task: that it is over, or answers to its questions."""
        async with self._turn:
            stored = await self._tasks.load(self.record.id)
            if stored is None:
                stored = msgspec.structs.replace(self.record, status="cancelled", status_message=_CANCELLED)
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
        pause = _LOOK_AGAIN
        while True:
            try:
                await self._end(**changes)
            except StoreUnavailable as error:
                if self._tasks.is_stopping:
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
                    self.record = await self._tasks.save(fresh)
                except StaleVersion:
                    pass
                else:
                    return True
            await self.catch_up()


class Tasks:
    """All tasks of one server."""

    def __init__(self, host: TaskHost) -> None:
        self.is_stopping = False
        self._host = host
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
            expires_at=time.time() + 2 * ttl / 1000,
            holder=self._holder,
        )
        task = self._live[record.id] = LiveTask(record, self, version)
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
        expiry = asyncio.get_running_loop().call_later(task.record.ttl_ms / 1000, work.cancel)
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
                raise InvalidParams(f"There is no task {task_id}.")
            if record.is_over or await self._is_held(record):
                return record
            try:
                return await self.save(_ended(record, status="failed", error=_LOST, status_message=_LOST["message"]))
            except StaleVersion:
                continue

    async def cancel(self, record: TaskRecord) -> TaskRecord:
        """Stop a task wherever it runs; as it stands after that."""
        live = self._live.get(record.id)
        if live is not None:
            await live.cancel()
            return live.record
        return await self._change_elsewhere(
            record, lambda found: _ended(found, status="cancelled", status_message=_CANCELLED)
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

    async def result(self, record: TaskRecord, principal: Principal) -> TaskRecord:
        """Wait until a task has ended, wherever it runs."""
        live = self._live.get(record.id)
        if live is not None:
            await live.ended.wait()
            return live.record
        while not record.is_over:
            await asyncio.sleep(_LOOK_AGAIN)
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
                await self._host.store.holders.leave(self._holder)

    def stop(self) -> None:
        """Stop all work; what it comes to is still written."""
        self.is_stopping = True
        self._idle.set()
        for task in tuple(self._live.values()):
            if task.work is not None:
                task.work.cancel()

    async def _change_elsewhere(self, record: TaskRecord, change: Callable[[TaskRecord], TaskRecord]) -> TaskRecord:
        found: TaskRecord | None = record
        while found is not None and not found.is_over:
            try:
                return await self.save(change(found))
            except StaleVersion:
                found = await self.load(record.id)
        return found or record

    async def _is_held(self, record: TaskRecord) -> bool:
        return record.holder != self._holder and await self._host.store.holders.is_alive(record.holder, time.time())

    async def _begin_to_beat(self) -> None:
        if self._beating is None or self._beating.done():
            await self._beat()
            self._idle.clear()
            self._beating = self._host.background(self._keep_beating())

    async def _beat(self) -> None:
        if time.monotonic() - self._beaten > _BEAT / 2:
            await self._host.store.holders.beat(self._holder, time.time() + _SILENCE)
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
