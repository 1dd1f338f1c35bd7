"""From a method's name to its answer, past the hook that may answer everything."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from waypost.capabilities.context import Context
from waypost.errors import MethodNotFound
from waypost.execution import tracing
from waypost.loops import awaited
from waypost.protocol import methods, modern_methods, skill_methods, task_methods
from waypost.protocol.answers import Answer
from waypost.protocol.engine import Engine, Hook
from waypost.protocol.exchange import Exchange
from waypost.protocol.methods import Method
from waypost.wire import params
from waypost.wire.messages import decode, encode
from waypost.wire.versions import is_modern

LEGACY: Final = {**methods.LEGACY, **task_methods.LEGACY, **skill_methods.METHODS}


def find(engine: Engine, name: str, version: str) -> Method | None:
    """The method of that name, if this server has it in that version."""
    method = (modern_methods.METHODS if is_modern(version) else LEGACY).get(name)
    if method is None or not (method.capability is None or engine.offers(method.capability)):
        return None
    return method


def dispatch(
    engine: Engine, name: str, method: Method | None, raw: Raw | UnsetType, given: Any, exchange: Exchange
) -> Awaitable[Answer]:
    """Run a method, or the hook that answers in its place."""
    hook = engine.hooks("request")
    if hook is not None:
        work: Awaitable[Answer] = _hooked(hook, name, {} if raw is UNSET else decode(raw), engine.context(exchange))
    elif method is None:
        raise MethodNotFound(f"Method not found: {name}")
    else:
        work = method.run(engine, given, exchange)
    return _traced(name, work, exchange) if tracing.is_on() else work


async def _traced(name: str, work: Awaitable[Answer], exchange: Exchange) -> Answer:
    with tracing.span(name, {"rpc.system": "mcp", "rpc.method": name}, exchange.meta.trace_context):
        return await work


async def _hooked(hook: Hook, name: str, given: dict[str, Any], context: Context) -> Answer:
    return _as_answer(await awaited(hook(name, given, context)))


async def route(engine: Engine, name: str, given: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    """The result of a method as data, for a hook that hands on."""
    method = find(engine, name, exchange.version)
    if method is None:
        raise MethodNotFound(f"Method not found: {name}")
    answer = await method.run(engine, params.read(Raw(encode(given)), method.params), exchange)
    result: dict[str, Any] = decode(answer.body)
    return result if answer.meta is None else {**result, "_meta": answer.meta}


def _as_answer(result: Any) -> Answer:
    body: dict[str, Any] = msgspec.to_builtins(result) if result is not None else {}
    meta = body.pop("_meta", None)
    return Answer(encode(body), meta, private=True)
