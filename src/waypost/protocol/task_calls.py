"""Calling a tool as a task: at once when the client or the tool says so, or when the call turns out to be long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from msgspec import UNSET

from waypost.capabilities.asking import InputNeeded, Question
from waypost.capabilities.capability import Capability
from waypost.errors import CapabilityNotSupported, MethodNotFound, NoAnswer, StoreUnavailable
from waypost.loops import awaited
from waypost.protocol.answers import Answer
from waypost.protocol.client_calls import GONE
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Asker, Exchange
from waypost.protocol.live_tasks import LiveTask
from waypost.protocol.rounds import Rounds
from waypost.protocol.session import LegacySession, SessionOutlet
from waypost.protocol.streams import Outlet
from waypost.protocol.task_views import (
    RELATED_TASK,
    TASKS_EXTENSION,
    legacy_task,
    modern_task,
    status_notification,
)
from waypost.protocol.tasks import LONGEST_TTL_MS
from waypost.stores.tasks import TaskRecord
from waypost.wire import params, versions
from waypost.wire.messages import encode

Call = Callable[[Exchange, float], Coroutine[Any, Any, dict[str, Any]]]
"""Makes the call for an exchange, with so many seconds to run; gives the result as data."""

_LONGEST: Final = LONGEST_TTL_MS / 1000


class TaskAsker:
    """Asks as a plain call does until the call has become a task, and through the task from then on."""

    def __init__(self, before: Asker | None) -> None:
        self._before = before
        self.task: LiveTask | None = None

    @property
    def is_asking(self) -> bool:
        """Whether the plain call asked something, and its handler went on regardless."""
        return isinstance(self._before, Rounds) and self._before.is_asking

    async def ask(self, question: Question) -> Any:
        """Ask the client."""
        if self.task is not None:
            return await self.task.ask(question)
        if self._before is None:
            raise CapabilityNotSupported(question.needs)
        return await self._before.ask(question)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Do a step that must not be done again."""
        if self._before is not None:
            return await self._before.once(key, function)
        return await awaited(function())


class SessionTaskAsker:
    """Asks a client with a session on behalf of a task, by requests that name the task."""

    def __init__(self, session: LegacySession, task: LiveTask) -> None:
        self._session = session
        self._task = task

    async def ask(self, question: Question) -> Any:
        """Send the question and wait for the answer."""
        tagged = {**question.params, "_meta": {RELATED_TASK: {"taskId": self._task.record.id}}}
        related = Question(question.method, tagged, question.needs, question.key, question.within)

        way: Outlet | None = None

        async def send(message: bytes) -> None:
            nonlocal way
            way = way or await self._way()
            await way.send(message)

        async with self._task.asking(question):
            return await self._session.calls.ask(related, self._session.version, send)

    async def _way(self) -> Outlet:
        """Where the client hears of it: with the result it waits for, else on its general stream, once it has one."""
        general = self._session.general
        while self._task.outlet is None:
            if self._session.is_attached or general.has_reader:
                return SessionOutlet(self._session)
            if general.closed:
                raise NoAnswer(GONE)
            await _either(self._task.heard, general.followed)
        return self._task.outlet

    async def once(self, _key: str, function: Callable[[], Any]) -> Any:
        """Just do it: a task of a session runs once."""
        return await awaited(function())


async def _either(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


def may_be_task(engine: Engine, tool: Capability | None, given: params.CallTool, exchange: Exchange) -> bool:
    """Whether this call may become a task; a call that must and cannot, or cannot and must, is refused."""
    mode = "forbidden" if tool is None else tool.task
    if versions.is_modern(exchange.version):
        declared = TASKS_EXTENSION in exchange.client_capabilities.get("extensions", {})
        if mode == "required" and not declared:
            raise CapabilityNotSupported({"extensions": {TASKS_EXTENSION: {}}})
        return declared and mode != "forbidden"
    if exchange.version != versions.V2025_11_25 or not engine.has_task_tools:
        return False
    if mode == "required" and given.task is UNSET:
        raise MethodNotFound(f"Tool {given.name} only runs as a task; call it with params.task.")
    if mode == "forbidden" and given.task is not UNSET and tool is not None:
        raise MethodNotFound(f"Tool {given.name} does not run as a task; call it without params.task.")
    return given.task is not UNSET


async def call_as_task(
    engine: Engine, tool: Capability, given: params.CallTool, exchange: Exchange, call: Call
) -> Answer:
    """The answer that a call goes on as a task, or its own result when it was quick."""
    if not versions.is_modern(exchange.version):
        return await _start_in_session(engine, given, exchange, call)
    asker = TaskAsker(exchange.asker)
    exchange.asker = asker
    if tool.task == "required":
        asker.task = await engine.tasks.start(exchange.principal, exchange.version)
    work = asyncio.get_running_loop().create_task(call(exchange, _LONGEST))
    if asker.task is None:
        try:
            done, _ = await asyncio.wait({work}, timeout=engine.settings.task_after)
            if not done and asker.is_asking:
                raise InputNeeded
            if not done:
                with suppress(StoreUnavailable):  # the client waits for the answer, as for any other call
                    asker.task = await engine.tasks.start(exchange.principal, exchange.version)
            if asker.task is None:
                return _own_answer(await work)
        except BaseException:
            work.cancel()
            raise
    engine.tasks.follow(asker.task, work)
    return Answer(encode(modern_task(asker.task.record)), result_type="task")


def _own_answer(result: dict[str, Any]) -> Answer:
    meta = result.pop("_meta", None)
    result.pop("resultType", None)
    return Answer(encode(result), meta)


async def _start_in_session(engine: Engine, given: params.CallTool, exchange: Exchange, call: Call) -> Answer:
    session = exchange.session
    assert isinstance(session, LegacySession)
    ttl = None if given.task is UNSET else given.task.ttl
    task = await engine.tasks.start(exchange.principal, exchange.version, ttl, owner=session.id)
    # The request is answered now; its work goes on with an exchange of its own, and the session does not expire before.
    lasting = exchange.lasting(SessionOutlet(session))
    lasting.asker = SessionTaskAsker(session, task)
    task_id = task.record.id

    def tell(record: TaskRecord) -> None:
        if record.id == task_id:
            session.push(status_notification(record))
            if record.is_over:
                stop_telling()

    stop_telling = engine.tasks.watch(tell)
    work = asyncio.get_running_loop().create_task(call(lasting, task.record.ttl_ms / 1000))
    session.tasks.add(task_id)
    work.add_done_callback(lambda _: session.tasks.discard(task_id))
    engine.tasks.follow(task, work)
    return Answer(encode({"task": legacy_task(task.record)}), {RELATED_TASK: {"taskId": task_id}})
