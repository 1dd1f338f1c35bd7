"""The methods about tasks, in both dialects."""

from __future__ import annotations

from typing import Any, Final

from waypost.errors import CapabilityNotSupported, InvalidParams, MethodNotFound
from waypost.protocol.answers import EMPTY, Answer
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange
from waypost.protocol.live_tasks import CANCELLED
from waypost.protocol.methods import Method, session
from waypost.protocol.task_views import RELATED_TASK, TASKS_EXTENSION, detailed_task, legacy_task
from waypost.wire import params
from waypost.wire.cursors import cursor_after, key_before
from waypost.wire.messages import encode
from waypost.wire.versions import V2025_11_25

_PAGE: Final = 100
_CALL_FAILED: Final = -32000


def require_extension(exchange: Exchange) -> None:
    """Refuse a client that does not know what a task is, before anything else."""
    if TASKS_EXTENSION not in exchange.client_capabilities.get("extensions", {}):
        raise CapabilityNotSupported({"extensions": {TASKS_EXTENSION: {}}})


async def get(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
    """`tasks/get` of stateless clients"""
    require_extension(exchange)
    return Answer(encode(detailed_task(await engine.tasks.find(given.task_id, exchange.principal))))


async def update(engine: Engine, given: params.UpdateTask, exchange: Exchange) -> Answer:
    """`tasks/update`"""
    require_extension(exchange)
    record = await engine.tasks.find(given.task_id, exchange.principal)
    if isinstance(given.input_responses, dict):
        await engine.tasks.answer(record, given.input_responses)
    return EMPTY


async def cancel(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
    """`tasks/cancel` of stateless clients"""
    require_extension(exchange)
    await engine.tasks.cancel(await engine.tasks.find(given.task_id, exchange.principal))
    return EMPTY


MODERN: Final[dict[str, Method]] = {
    "tasks/get": Method(params=params.TaskId, run=get, capability="tasks", name_field="task_id"),
    "tasks/update": Method(params=params.UpdateTask, run=update, capability="tasks", name_field="task_id"),
    "tasks/cancel": Method(params=params.TaskId, run=cancel, capability="tasks", name_field="task_id"),
}


def _known(exchange: Exchange, method: str) -> None:
    """Refuse versions that have no tasks."""
    if exchange.version != V2025_11_25:
        raise MethodNotFound(f"Method not found: {method}")


async def legacy_get(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
    """`tasks/get` in a session"""
    _known(exchange, "tasks/get")
    return Answer(encode(legacy_task(await engine.tasks.find(given.task_id, exchange.principal))))


async def legacy_result(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
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


async def legacy_cancel(engine: Engine, given: params.TaskId, exchange: Exchange) -> Answer:
    """`tasks/cancel` in a session"""
    _known(exchange, "tasks/cancel")
    record = await engine.tasks.find(given.task_id, exchange.principal)
    if record.is_over:
        raise InvalidParams(f"The task has ended already: {legacy_task(record)['status']}.")
    return Answer(encode(legacy_task(await engine.tasks.cancel(record))))


async def legacy_list(engine: Engine, given: params.List, exchange: Exchange) -> Answer:
    """`tasks/list` in a session whose client is known from others"""
    _known(exchange, "tasks/list")
    if not session(exchange).is_told_apart:
        raise MethodNotFound("Method not found: tasks/list; callers without a key look like one, ask by the task's id.")
    records = await engine.tasks.page(exchange.principal, key_before(given.cursor), _PAGE)
    body: dict[str, Any] = {"tasks": [legacy_task(record) for record in records]}
    if len(records) == _PAGE:
        body["nextCursor"] = cursor_after(records[-1].id)
    return Answer(encode(body))


LEGACY: Final[dict[str, Method]] = {
    "tasks/get": Method(params=params.TaskId, run=legacy_get, capability="tasks"),
    "tasks/result": Method(params=params.TaskId, run=legacy_result, capability="tasks"),
    "tasks/cancel": Method(params=params.TaskId, run=legacy_cancel, capability="tasks"),
    "tasks/list": Method(params=params.List, run=legacy_list, capability="tasks"),
}
