"""The methods that only stateless clients have."""

from __future__ import annotations

from typing import Any, Final

from waypost.protocol.answers import EMPTY, Answer
from waypost.protocol.broadcast import Subscription
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange
from waypost.protocol.methods import SHARED, Method
from waypost.protocol.streams import EventStream
from waypost.wire import messages, params
from waypost.wire.messages import encode
from waypost.wire.params import SUBSCRIPTION_ID

_LISTEN_BACKLOG: Final = 1024


async def discover(engine: Engine, _given: params.Params, _exchange: Exchange) -> Answer:
    """`server/discover`"""
    body: dict[str, Any] = {
        "supportedVersions": list(engine.versions),
        "capabilities": engine.capabilities(),
    }
    if engine.instructions is not None:
        body["instructions"] = engine.instructions
    return Answer(encode(body))


async def listen(engine: Engine, given: params.Listen, exchange: Exchange) -> Answer:
    """`subscriptions/listen`"""
    honoured = _honoured(engine, given.notifications)
    stream = EventStream("listen", _LISTEN_BACKLOG)
    subscription = Subscription(exchange.request_id, honoured, stream)
    end = engine.broadcast.subscribe(subscription)
    tag = {SUBSCRIPTION_ID: exchange.request_id}
    try:
        acknowledged = {"_meta": tag, "notifications": honoured}
        await exchange.outlet.send(messages.notification("notifications/subscriptions/acknowledged", acknowledged))
        async for event in stream.follow(0):
            if event is not None:
                await exchange.outlet.send(event.message)
    finally:
        end()
    return Answer(EMPTY.body, tag)


def _honoured(engine: Engine, wanted: params.ListenFilter) -> params.ListenFilter:
    """The part of a wish that this server's declared capabilities cover."""
    uris = wanted.resource_subscriptions if engine.offers_subscriptions else []
    return params.ListenFilter(
        tools_list_changed=wanted.tools_list_changed and engine.offers_list_changed("tools"),
        prompts_list_changed=wanted.prompts_list_changed and engine.offers_list_changed("prompts"),
        resources_list_changed=wanted.resources_list_changed and engine.offers_list_changed("resources"),
        resource_subscriptions=uris,
    )


METHODS: Final[dict[str, Method]] = {
    **SHARED,
    "server/discover": Method(params=params.Params, run=discover, cacheable=True),
    "subscriptions/listen": Method(params=params.Listen, run=listen),
}
