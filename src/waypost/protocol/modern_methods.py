"""The methods that only stateless clients have."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from waypost.errors import InvalidParams
from waypost.protocol import skill_methods, task_methods
from waypost.protocol.answers import EMPTY, Answer
from waypost.protocol.broadcast import Subscription
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange
from waypost.protocol.methods import SHARED, Method
from waypost.protocol.streams import EventStream
from waypost.protocol.task_views import detailed_task
from waypost.stores.tasks import TaskRecord
from waypost.wire import messages, params
from waypost.wire.messages import encode
from waypost.wire.params import SUBSCRIPTION_ID
from waypost.wire.versions import V2026_07_28

_LISTEN_BACKLOG: Final = 1024


async def discover(engine: Engine, _given: params.Params, _exchange: Exchange) -> Answer:
    """`server/discover`"""
    body: dict[str, Any] = {
        "supportedVersions": list(engine.versions),
        "capabilities": engine.capabilities(V2026_07_28),
    }
    if engine.instructions is not None:
        body["instructions"] = engine.instructions
    return Answer(encode(body))


async def listen(engine: Engine, given: params.Listen, exchange: Exchange) -> Answer:
    """`subscriptions/listen`"""
    engine.sessions.check_let_in(exchange.principal)
    honoured = await _honoured(engine, given.notifications, exchange)
    stream = EventStream("listen", _LISTEN_BACKLOG)
    subscription = Subscription(exchange.request_id, honoured, stream, exchange.principal)
    tag = {SUBSCRIPTION_ID: exchange.request_id}

    def tell(record: TaskRecord) -> None:
        if record.id in honoured.task_ids:
            subscription.notify("notifications/tasks", **detailed_task(record))

    endings = (engine.broadcast.subscribe(subscription), engine.tasks.watch(tell))
    try:
        acknowledged = {"_meta": tag, "notifications": honoured}
        await exchange.outlet.send(messages.notification("notifications/subscriptions/acknowledged", acknowledged))
        async for event in stream.follow(0):
            if event is not None:
                await exchange.outlet.send(event.message)
    finally:
        for end in endings:
            end()
    return Answer(EMPTY.body, tag)


async def _honoured(engine: Engine, wanted: params.ListenFilter, exchange: Exchange) -> params.ListenFilter:
    """The part of a wish that this server's declared capabilities cover and the caller may see."""
    return params.ListenFilter(
        tools_list_changed=wanted.tools_list_changed and engine.offers_list_changed("tools"),
        prompts_list_changed=wanted.prompts_list_changed and engine.offers_list_changed("prompts"),
        resources_list_changed=wanted.resources_list_changed and engine.offers_list_changed("resources"),
        resource_subscriptions=wanted.resource_subscriptions if engine.offers_subscriptions else [],
        task_ids=await _own_tasks(engine, wanted.task_ids, exchange),
    )


async def _own_tasks(engine: Engine, wanted: list[str], exchange: Exchange) -> list[str]:
    if not wanted:
        return []
    task_methods.require_extension(exchange)
    own = []
    for task_id in wanted:
        with suppress(InvalidParams):
            own.append((await engine.tasks.find(task_id, exchange.principal)).id)
    return own


METHODS: Final[dict[str, Method]] = {
    **SHARED,
    **task_methods.MODERN,
    **skill_methods.METHODS,
    "server/discover": Method(params=params.Params, run=discover, cacheable=True),
    "subscriptions/listen": Method(params=params.Listen, run=listen),
}
