"""The methods about tasks, in both dialects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from msgspec import UNSET

from waypost.capabilities.capability import Capability
from waypost.capabilities.questions import InputNeeded, Question
from waypost.errors import CapabilityNotSupported, InvalidParams, MethodNotFound, NoAnswer, StoreUnavailable
from waypost.loops import maybe_await
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Asker, Exchange
from waypost.protocol.responses import EMPTY, Answer
from waypost.protocol.rounds import Rounds
from waypost.protocol.session import SESSION_ENDED, LegacySession, SessionOutlet, session_of
from waypost.protocol.streams import Outlet
from waypost.protocol.tasks import (
    CANCELLED,
    LONGEST_TTL_MS,
    RELATED_TASK,
    TASKS_EXTENSION,
    LiveTask,
    detailed_task,
    legacy_task,
    modern_task,
    status_notification,
)
from waypost.stores.tasks import TaskRecord
from waypost.wire import params, versions
from waypost.wire.messages import encode
from waypost.wire.params import cursor_after, key_before
from waypost.wire.versions import V2025_11_25

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
        return await maybe_await(function())


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
        general = self._session.streams.general
        while self._task.outlet is None:
            if self._session.is_attached or general.has_reader:
                return SessionOutlet(self._session)
            if general.closed:
                raise NoAnswer(SESSION_ENDED)
            await _either(self._task.heard, general.has_reader_or_ended)
        return self._task.outlet

    async def once(self, _key: str, function: Callable[[], Any]) -> Any:
        """Just do it: a task of a session runs once."""
        return await maybe_await(function())


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
    if exchange.version != versions.V2025_11_25 or not engine.profile.has_task_tools:
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


_PAGE: Final = 100
_CALL_FAILED: Final = -32000


def require_extension(exchange: Exchange) -> None:
    """Refuse a client that does not know what a task is, before anything else."""
    if TASKS_EXTENSION not in exchange.client_capabilities.get("extensions", {}):
        raise CapabilityNotSupported({"extensions": {TASKS_EXTENSION: {}}})


async def get_task(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
    """`tasks/get` of stateless clients"""
    require_extension(exchange)
    return Answer(encode(detailed_task(await engine.tasks.find(given.task_id, exchange.principal))))


async def update_task(engine: Engine, given: params.UpdateTask, exchange: Exchange) -> Answer:
    """`tasks/update`"""
    require_extension(exchange)
    record = await engine.tasks.find(given.task_id, exchange.principal)
    if isinstance(given.input_responses, dict):
        await engine.tasks.answer(record, given.input_responses)
    return EMPTY


async def cancel_task(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
    """`tasks/cancel` of stateless clients"""
    require_extension(exchange)
    await engine.tasks.cancel(await engine.tasks.find(given.task_id, exchange.principal))
    return EMPTY


def _known(exchange: Exchange, method: str) -> None:
    """Refuse versions that have no tasks."""
    if exchange.version != V2025_11_25:
        raise MethodNotFound(f"Method not found: {method}")


async def get_session_task(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
    """`tasks/get` in a session"""
    _known(exchange, "tasks/get")
    return Answer(encode(legacy_task(await engine.tasks.find(given.task_id, exchange.principal))))


async def get_session_task_result(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
    """`tasks/result`: waits until the task has ended"""
    _known(exchange, "tasks/result")
    record = await engine.tasks.find(given.task_id, exchange.principal)
    record = await engine.tasks.result(record, exchange.principal, exchange.session.id, exchange.outlet)
    if record.status == "cancelled":
        raise TaskEnded(_CALL_FAILED, record.status_message or CANCELLED)
    if record.error is not None:
        raise TaskEnded(record.error["code"], record.error["message"], record.error.get("data"))
    body = {key: value for key, value in (record.result or {}).items() if key not in ("resultType", "_meta")}
    meta = {**(record.result or {}).get("_meta", {}), RELATED_TASK: {"taskId": record.id}}
    return Answer(encode(body), meta)


class TaskEnded(InvalidParams):
    """The error a task ended with, told again to whoever asks for its result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message, data)
        self.code = code  # type: ignore[misc]  # each task has its own


async def cancel_session_task(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
    """`tasks/cancel` in a session"""
    _known(exchange, "tasks/cancel")
    record = await engine.tasks.find(given.task_id, exchange.principal)
    if record.is_over:
        raise InvalidParams(f"The task has ended already: {legacy_task(record)['status']}.")
    return Answer(encode(legacy_task(await engine.tasks.cancel(record))))


async def list_session_tasks(engine: Engine, given: params.List, exchange: Exchange) -> Answer:
    """`tasks/list` in a session whose client is known from others"""
    _known(exchange, "tasks/list")
    if not session_of(exchange).is_identified:
        raise MethodNotFound("Method not found: tasks/list; callers without a key look like one, ask by the task's id.")
    records = await engine.tasks.page(exchange.principal, key_before(given.cursor), _PAGE)
    body: dict[str, Any] = {"tasks": [legacy_task(record) for record in records]}
    if len(records) == _PAGE:
        body["nextCursor"] = cursor_after(records[-1].id)
    return Answer(encode(body))
