"""Calls of tools as tasks, and the methods about tasks, in the two dialects.

In 2025-11-25 the client asks for a task with `params.task`, and waits for it with `tasks/result`; questions are
requests on the session's streams. In 2026-07-28 tasks are an extension: the server decides (at once for a tool
that only runs as a task, else when the call takes long), the client polls `tasks/get`, and questions are part
of the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

from msgspec import UNSET

from waypost.capabilities.capability import Capability
from waypost.capabilities.questions import InputNeeded, Question, is_declared
from waypost.errors import (
    CapabilityNotSupported,
    InvalidParams,
    MethodNotFound,
    NoAnswer,
    NoHolder,
    StoreUnavailable,
)
from waypost.loops import maybe_await
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import CLOSED_OUTLET, Asker, Exchange
from waypost.protocol.relay import StreamRelay
from waypost.protocol.responses import CALL_FAILED, EMPTY, Answer
from waypost.protocol.rounds import Rounds
from waypost.protocol.session import SESSION_ENDED, HubStopped, LegacySession, SessionOutlet, session_of
from waypost.protocol.streams import Outlet
from waypost.protocol.tasks import (
    CANCELLED,
    MAX_TTL_MS,
    RELATED_TASK,
    TASKS_EXTENSION,
    RunningTask,
    detailed_task,
    legacy_task,
    modern_task,
    status_notification,
)
from waypost.stores.tasks import TaskCall, TaskRecord
from waypost.wire import params, versions
from waypost.wire.messages import encode
from waypost.wire.params import decode_cursor, encode_cursor
from waypost.wire.versions import V2025_11_25

Call = Callable[[Exchange, float], Coroutine[Any, Any, dict[str, Any]]]
"""Makes the call for an exchange, with at most so many seconds to run; returns the result as data."""

_MAX_SECONDS: Final = MAX_TTL_MS / 1000
_MAX_CALL_BYTES: Final = 256 * 1024
"""A larger call is not kept with its task: each change of the task would write it again."""


class TaskAsker:
    """Asks like a plain call until the call has become a task, and through the task from then on."""

    def __init__(self, plain: Asker | None) -> None:
        self._plain = plain
        self.task: RunningTask | None = None

    @property
    def is_asking(self) -> bool:
        """Whether the plain call has a question open; its handler may go on all the same."""
        return isinstance(self._plain, Rounds) and self._plain.is_asking

    async def ask(self, question: Question) -> Any:
        """Ask the client."""
        if self.task is not None:
            return await self.task.ask(question)
        if self._plain is None:
            raise CapabilityNotSupported(question.needs)
        return await self._plain.ask(question)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Run a step that must not be repeated."""
        if self._plain is not None:
            return await self._plain.once(key, function)
        return await maybe_await(function())


class SessionTaskAsker:
    """Asks the client of a session for a task, by requests that name the task."""

    def __init__(self, session: LegacySession, task: RunningTask) -> None:
        self._session = session
        self._task = task

    async def ask(self, question: Question) -> Any:
        """Send the question and wait for the answer."""
        tagged = {**question.params, "_meta": {RELATED_TASK: {"taskId": self._task.record.id}}}
        related = Question(question.method, tagged, question.needs, question.key, question.within)

        calls = self._session.calls
        number = calls.next_id()
        outlet: Outlet | None = None

        async def send(message: bytes) -> None:
            nonlocal outlet
            if outlet is not None:  # the cancellation of the question, which a client that is gone does not need
                with suppress(NoHolder):
                    await outlet.send(message)
            while outlet is None:
                found = await self._find_outlet(number)
                with suppress(NoHolder):  # its client reads there no longer
                    await found.send(message)
                    outlet = found

        try:
            async with self._task.asking(question):
                return await calls.ask(related, self._session.version, send, number)
        except HubStopped:
            # The session goes on elsewhere or after a restart, and so may the task: the tool must not take this for the
            # client's answer.
            self._task.abandon()
            raise asyncio.CancelledError from None

    async def _find_outlet(self, number: str) -> Outlet:
        """The stream of the client's request for the result, else its general stream, once it reads one.

        The client may read either of them at another replica. Raises the error that ends the question before.
        """
        general, relay = self._session.streams.general, self._session.streams.liveness.relay
        while self._task.outlet is None:
            if self._session.is_attached or general.has_reader:
                return SessionOutlet(self._session)
            if self._session.ended:
                raise NoAnswer(SESSION_ENDED)
            elsewhere = None if relay is None else relay.streams.find_reader(self._session.id)
            # A hub that drains has closed it, and its client reads at another replica.
            here = None if general.closed else general.has_reader_or_ended.wait()
            ended = self._session.calls.get_answer(number)
            replica = await _wait_for_any(ended, elsewhere, here, self._task.is_result_awaited.wait())
            if relay is not None and isinstance(replica, str):
                return RemoteOutlet(relay.streams, replica, self._session, self._task.record.id)
        return self._task.outlet

    async def once(self, _key: str, function: Callable[[], Any]) -> Any:
        """Run the step: a task of a session is never run again."""
        return await maybe_await(function())


class RemoteOutlet:
    """The outlet of messages for the client of a session that reads its stream, or waits for a task, elsewhere."""

    def __init__(self, streams: StreamRelay, replica: str, session: LegacySession, task_id: str) -> None:
        self._streams = streams
        self._replica = replica
        self._session = session
        self._task_id = task_id

    async def send(self, message: bytes) -> None:
        """Send a message; raises `NoHolder` if the client does not read there any more."""
        if not await self._streams.send(self._replica, self._session, message, self._task_id):
            raise NoHolder("The client does not read at that replica any more.")

    async def close_early(self) -> None:
        """Nothing to close: the stream belongs to the other replica."""


async def _wait_for_any(*waits: Awaitable[Any] | None) -> Any:
    """The result of the first of several that ends; the others are cancelled."""
    waiting = [asyncio.ensure_future(wait) for wait in waits if wait is not None]
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return next(one for one in waiting if one in done).result()
    finally:
        for one in waiting:
            one.cancel()


def may_be_task(tool: Capability, given: params.CallTool, exchange: Exchange) -> bool:
    """Whether this call may become a task; an error where it has to and cannot, or is asked to and cannot."""
    mode = tool.mcp.task
    if versions.is_modern(exchange.version):
        if mode == "required":
            require_extension(exchange)
        return mode != "forbidden" and _has_extension(exchange)
    # Among the versions with sessions, only 2025-11-25 has tasks.
    if exchange.version != versions.V2025_11_25:
        return False
    is_asked = given.task is not None
    if mode == "required" and not is_asked:
        raise MethodNotFound(f"Tool {given.name} only runs as a task; call it with params.task.")
    if mode == "forbidden" and is_asked:
        raise MethodNotFound(f"Tool {given.name} does not run as a task; call it without params.task.")
    return is_asked


async def call_as_task(
    engine: Engine, tool: Capability, given: params.CallTool, exchange: Exchange, call: Call
) -> Answer:
    """The task that a call has become, or the result of a call that was quick."""
    if not versions.is_modern(exchange.version):
        return await _start_in_session(engine, tool, given, exchange, call)
    asker = TaskAsker(exchange.asker)
    exchange.asker = asker
    again = _to_repeatable(tool, given, exchange)
    if tool.mcp.task == "required":
        asker.task = await engine.tasks.start(exchange.principal, exchange.version, call=again)
    work = asyncio.get_running_loop().create_task(call(exchange, _MAX_SECONDS))
    if asker.task is None:
        try:
            done, _ = await asyncio.wait({work}, timeout=engine.settings.server.task_after_ms / 1000)
            # A question that is open goes to the client as the result of this request, not as a task.
            if not done and asker.is_asking:
                raise InputNeeded
            if not done:
                with suppress(StoreUnavailable):  # the client waits for the result, as for any other call
                    asker.task = await engine.tasks.start(exchange.principal, exchange.version, call=again)
            if asker.task is None:
                result = await work
                meta, _ = result.pop("_meta", None), result.pop("resultType")  # both are added again with the answer
                return Answer(encode(result), meta)
        # The request ends without a task that would own the work.
        except BaseException:
            work.cancel()
            raise
    engine.tasks.follow(asker.task, work)
    return Answer(encode(modern_task(asker.task.record)), result_type="task")


async def _start_in_session(
    engine: Engine, tool: Capability, given: params.CallTool, exchange: Exchange, call: Call
) -> Answer:
    session = session_of(exchange)
    ttl = given.read_task().ttl
    again = _to_repeatable(tool, given, exchange, session.id)
    task = await engine.tasks.start(exchange.principal, exchange.version, ttl, session.id, again)
    # The request is answered now, so the work needs an exchange of its own; the session does not expire meanwhile.
    detached = exchange.detach(SessionOutlet(session))
    detached.asker = SessionTaskAsker(session, task)
    task.on_change = partial(_notify, session)
    task_id = task.record.id
    work = asyncio.get_running_loop().create_task(call(detached, task.record.ttl_ms / 1000))
    session.tasks.add(task_id)
    work.add_done_callback(lambda _: session.tasks.discard(task_id))
    engine.tasks.follow(task, work)
    return Answer(encode({"task": legacy_task(task.record)}), {RELATED_TASK: {"taskId": task_id}})


def _notify(session: LegacySession, record: TaskRecord) -> None:
    """Notify a session of a change of one of its tasks."""
    session.push(status_notification(record))


def _to_repeatable(
    tool: Capability, given: params.CallTool, exchange: Exchange, session_id: str | None = None
) -> TaskCall | None:
    """What another process needs to make a call again, where that is safe and not too large to keep."""
    annotations = getattr(tool.definition, "annotations", UNSET)
    if annotations is UNSET or annotations.get("idempotentHint") is not True:
        return None
    call = TaskCall(
        tool=given.name,
        arguments=given.arguments or {},
        version=exchange.version,
        capabilities=dict(exchange.client_capabilities),
        session=session_id,
    )
    return call if len(encode(call)) <= _MAX_CALL_BYTES else None


def rebuild_exchange(engine: Engine, task: RunningTask, call: TaskCall) -> Exchange:
    """The exchange of a call that is made again for its task; its questions go where those of the first one went."""
    session = None if call.session is None else engine.sessions.get(call.session)
    outlet = CLOSED_OUTLET if session is None else SessionOutlet(session)
    exchange = Exchange(f"task-{task.record.id}", call.version, outlet, session)
    exchange.principal = task.principal
    exchange.meta = params.RequestMeta(client_capabilities=call.capabilities)
    if session is not None:
        exchange.asker = SessionTaskAsker(session, task)
        task.on_change = partial(_notify, session)
    elif call.session is None:
        asker = TaskAsker(None)
        asker.task = task
        exchange.asker = asker
    return exchange


_PAGE_SIZE: Final = 100


def require_extension(exchange: Exchange) -> None:
    """Refuse a client that did not declare the tasks extension."""
    if not _has_extension(exchange):
        raise CapabilityNotSupported({"extensions": {TASKS_EXTENSION: {}}})


def _has_extension(exchange: Exchange) -> bool:
    return is_declared(exchange.client_capabilities, "extensions", TASKS_EXTENSION)


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


def _require_tasks(exchange: Exchange, method: str) -> None:
    """Refuse the session versions before 2025-11-25, which have no tasks."""
    if exchange.version != V2025_11_25:
        raise MethodNotFound(f"Method not found: {method}")


async def get_session_task(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
    """`tasks/get` in a session"""
    _require_tasks(exchange, "tasks/get")
    return Answer(encode(legacy_task(await engine.tasks.find(given.task_id, exchange.principal))))


async def get_session_task_result(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
    """`tasks/result`: waits until the task has ended"""
    _require_tasks(exchange, "tasks/result")
    record = await engine.tasks.find(given.task_id, exchange.principal)
    record = await engine.tasks.result(record, exchange.principal, exchange.session.id, exchange.outlet)
    if record.status == "cancelled":
        raise TaskFailed(CALL_FAILED, record.status_message or CANCELLED)
    if record.error is not None:
        raise TaskFailed(record.error["code"], record.error["message"], record.error.get("data"))
    # A task belongs to a principal: it may have been started by a client of 2026-07-28, whose results have a type.
    body = {key: value for key, value in (record.result or {}).items() if key not in ("resultType", "_meta")}
    meta = {**(record.result or {}).get("_meta", {}), RELATED_TASK: {"taskId": record.id}}
    return Answer(encode(body), meta)


class TaskFailed(InvalidParams):
    """The error with which a task ended, as the response to `tasks/result`."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message, data)
        self.code = code  # type: ignore[misc]  # each task has its own


async def cancel_session_task(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
    """`tasks/cancel` in a session"""
    _require_tasks(exchange, "tasks/cancel")
    record = await engine.tasks.find(given.task_id, exchange.principal)
    if record.is_over:
        raise InvalidParams(f"The task has ended already: {legacy_task(record)['status']}.")
    return Answer(encode(legacy_task(await engine.tasks.cancel(record))))


async def list_session_tasks(engine: Engine, given: params.List, exchange: Exchange) -> Answer:
    """`tasks/list` in a session; callers without a key share one principal and would see each other's tasks"""
    _require_tasks(exchange, "tasks/list")
    if not session_of(exchange).is_identified:
        raise MethodNotFound("Method not found: tasks/list; callers without a key look like one, ask by the task's id.")
    records = await engine.tasks.page(exchange.principal, decode_cursor(given.cursor), _PAGE_SIZE)
    body: dict[str, Any] = {"tasks": [legacy_task(record) for record in records]}
    if len(records) == _PAGE_SIZE:
        body["nextCursor"] = encode_cursor(records[-1].id)
    return Answer(encode(body))
