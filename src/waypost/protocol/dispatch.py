"""All MCP methods of both eras in one table, and the way from a method's name to its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from waypost.capabilities.capability import Kind
from waypost.capabilities.context import Context
from waypost.errors import MethodNotFound, shorten
from waypost.execution import tracing
from waypost.loops import maybe_await
from waypost.protocol import methods, skill_methods, task_methods
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange
from waypost.protocol.profile import Hook
from waypost.protocol.responses import Answer
from waypost.wire import params
from waypost.wire.messages import decode, encode
from waypost.wire.versions import is_modern


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method: its parameters, the function that answers it, the server capability it belongs to."""

    params: type[params.Params]
    run: Callable[[Engine, Any, Exchange], Awaitable[Answer]]
    capability: str | None = None
    cacheable: bool = False
    name_field: str | None = None
    """The parameter that the header `Mcp-Name` repeats."""


_SHARED: Final[dict[str, Method]] = {
    "tools/call": Method(params=params.CallTool, run=methods.call_tool, capability="tools", name_field="name"),
    "tools/list": Method(params=params.List, run=methods.list_method(Kind.TOOL), capability="tools", cacheable=True),
    "prompts/list": Method(
        params=params.List, run=methods.list_method(Kind.PROMPT), capability="prompts", cacheable=True
    ),
    "prompts/get": Method(params=params.GetPrompt, run=methods.get_prompt, capability="prompts", name_field="name"),
    "resources/list": Method(
        params=params.List, run=methods.list_method(Kind.RESOURCE), capability="resources", cacheable=True
    ),
    "resources/templates/list": Method(
        params=params.List, run=methods.list_method(Kind.TEMPLATE), capability="resources", cacheable=True
    ),
    "resources/read": Method(params=params.ReadResource, run=methods.read_resource, cacheable=True, name_field="uri"),
    "completion/complete": Method(params=params.Complete, run=methods.complete, capability="completions"),
    "skills/list": Method(params=params.List, run=skill_methods.list_skills, capability="skills", cacheable=True),
    "skills/get": Method(params=params.SkillUri, run=skill_methods.get_skill, capability="skills", cacheable=True),
    "resources/directory/read": Method(
        params=params.ReadDirectory, run=skill_methods.read_directory, capability="skills", cacheable=True
    ),
}

# Sessions begin with `initialize`, have state on the server (log level, subscriptions) and wait for tasks.
LEGACY: Final[dict[str, Method]] = {
    **_SHARED,
    "ping": Method(params=params.Params, run=methods.ping),
    "logging/setLevel": Method(params=params.SetLevel, run=methods.set_level, capability="logging"),
    "resources/subscribe": Method(params=params.Subscribe, run=methods.subscribe, capability="resources"),
    "resources/unsubscribe": Method(params=params.Subscribe, run=methods.unsubscribe, capability="resources"),
    "tasks/get": Method(params=params.TaskId, run=task_methods.get_session_task, capability="tasks"),
    "tasks/result": Method(params=params.TaskId, run=task_methods.get_session_task_result, capability="tasks"),
    "tasks/cancel": Method(params=params.TaskId, run=task_methods.cancel_session_task, capability="tasks"),
    "tasks/list": Method(params=params.List, run=task_methods.list_session_tasks, capability="tasks"),
}

# 2026-07-28 has no sessions: one listen stream replaces subscriptions, and clients poll their tasks.
MODERN: Final[dict[str, Method]] = {
    **_SHARED,
    "server/discover": Method(params=params.Params, run=methods.discover, cacheable=True),
    "subscriptions/listen": Method(params=params.Listen, run=methods.listen),
    "tasks/get": Method(params=params.TaskId, run=task_methods.get_task, capability="tasks", name_field="task_id"),
    "tasks/update": Method(
        params=params.UpdateTask, run=task_methods.update_task, capability="tasks", name_field="task_id"
    ),
    "tasks/cancel": Method(
        params=params.TaskId, run=task_methods.cancel_task, capability="tasks", name_field="task_id"
    ),
}


def find_method(engine: Engine, name: str, version: str) -> Method | None:
    """The method of that name, if this server has it in that version."""
    method = (MODERN if is_modern(version) else LEGACY).get(name)
    if method is None or not (method.capability is None or engine.profile.offers(method.capability)):
        return None
    return method


def dispatch(
    engine: Engine, name: str, method: Method | None, raw: Raw | UnsetType, given: Any, exchange: Exchange
) -> Awaitable[Answer]:
    """Run a method, or the hook `on_request` in its place."""
    hook = engine.hooks("request")
    if hook is not None:
        work: Awaitable[Answer] = _call_hook(hook, name, {} if raw is UNSET else decode(raw), engine.context(exchange))
    elif method is None:
        raise MethodNotFound(f"Method not found: {shorten(name)}")
    else:
        work = method.run(engine, given, exchange)
    return _trace(name, work, exchange) if tracing.is_on() else work


async def _trace(name: str, work: Awaitable[Answer], exchange: Exchange) -> Answer:
    with tracing.span(name, {"rpc.system": "mcp", "rpc.method": name}, exchange.meta.trace_context):
        return await work


async def _call_hook(hook: Hook, name: str, given: dict[str, Any], context: Context) -> Answer:
    result = await maybe_await(hook(name, given, context))
    body: dict[str, Any] = msgspec.to_builtins(result) if result is not None else {}
    meta = body.pop("_meta", None)
    return Answer(encode(body), meta, private=True)


async def route(engine: Engine, name: str, given: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    """The result of a method as data, for a hook that calls `super().on_request`."""
    method = find_method(engine, name, exchange.version)
    if method is None:
        raise MethodNotFound(f"Method not found: {shorten(name)}")
    answer = await method.run(engine, params.read(Raw(encode(given)), method.params), exchange)
    result: dict[str, Any] = decode(answer.body)
    return result if answer.meta is None else {**result, "_meta": answer.meta}
