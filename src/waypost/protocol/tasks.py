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
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from waypost.capabilities.principals import Principal
from waypost.errors import Busy, InvalidParams, StaleVersion, StoreUnavailable
from waypost.protocol.live_tasks import CANCELLED, LOOK_AGAIN, LOST, LiveTask
from waypost.protocol.streams import Outlet
from waypost.protocol.task_views import now
from waypost.stores.store import Store
from waypost.stores.tasks import TaskRecord

if TYPE_CHECKING:
    from waypost.policy.keys import KeyChange

_log: Final = logging.getLogger(__name__)

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
                raise InvalidParams(f"There is no task {task_id}.")
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
                await self._host.store.holders.leave(self._holder)

    def recognise(self, changes: Mapping[int, KeyChange]) -> None:
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
