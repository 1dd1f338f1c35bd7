"""The stateless era: every request says who asks, in which version, with which capabilities."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec import UNSET, UnsetType

from waypost.errors import InvalidParams, MethodNotFound, UnsupportedVersion
from waypost.protocol import routing
from waypost.protocol.answers import EMPTY, Answer, Outcome
from waypost.protocol.broadcast import Subscription
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange, level_number
from waypost.protocol.failures import failure
from waypost.protocol.methods import SHARED, Method
from waypost.protocol.streams import EventStream
from waypost.wire import messages, params
from waypost.wire.messages import Message, encode
from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION, SUBSCRIPTION_ID, RequestMeta
from waypost.wire.versions import MODERN, V2026_07_28

_LISTEN_BACKLOG: Final = 1024


async def discover(engine: Engine, _given: params.Params, _exchange: Exchange) -> Answer:
    """`server/discover`"""
    body: dict[str, Any] = {
        "supportedVersions": list(engine.settings.versions),
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


def is_modern_request(message: Message) -> bool:
    """Whether a message carries the stateless envelope."""
    raw = message.params
    if raw is UNSET or PROTOCOL_VERSION.encode() not in bytes(raw):
        return False
    try:
        meta = params.read(raw, params.Params).meta
    except InvalidParams:
        return True
    return meta is not UNSET and meta.protocol_version is not UNSET


async def answer(
    engine: Engine, message: Message, exchange: Exchange, headers: Mapping[bytes, bytes] | None = None
) -> Outcome | None:
    """The response to a stateless request, error or not; `None` if it was cancelled."""
    request_id = exchange.request_id
    try:
        method, given = admit(engine, message, headers)
        _introduce(exchange, given.meta)
        done = await method.run(engine, given, exchange)
        return Outcome(messages.result(request_id, engine.modern_body(done, cacheable=method.cacheable)))
    except asyncio.CancelledError:
        if not exchange.was_cancelled():
            raise
        return None
    except Exception as error:
        failed = failure(error, V2026_07_28)
        return Outcome(failed.response(request_id), failed.code)


def admit(engine: Engine, message: Message, headers: Mapping[bytes, bytes] | None) -> tuple[Method, Any]:
    """The method and its parameters, after every check of the envelope in the order the protocol wants."""
    name = cast("str", message.method)
    method = METHODS.get(name)
    given: Any
    problem = None
    try:
        given = params.read(message.params, params.Params if method is None else method.params)
    except InvalidParams as error:
        given, problem = params.read(message.params, params.Params), error
    version = _version(given.meta)
    if headers is not None:
        about = None if method is None or method.name_field is None else getattr(given, method.name_field, None)
        routing.check(headers, version, name, about)
    if version not in engine.settings.versions or version not in MODERN:
        raise UnsupportedVersion(
            f"Protocol version {version} is not supported here.",
            {"supported": list(engine.settings.versions), "requested": version},
        )
    if headers is not None and name == "tools/call" and problem is None:
        tool = engine.registry.find_tool(given.name)
        if tool is not None and tool.headers:
            routing.check_parameters(headers, tool, given.arguments or {})
    if method is None or not (method.capability is None or engine.offers(method.capability)):
        raise MethodNotFound(f"Method not found: {name}")
    if problem is not None:
        raise problem
    return method, given


def _version(meta: RequestMeta | UnsetType) -> str:
    if meta is UNSET or meta.protocol_version is UNSET:
        raise InvalidParams(f"params._meta must carry {PROTOCOL_VERSION}.")
    if meta.client_capabilities is UNSET:
        raise InvalidParams(f"params._meta must carry {CLIENT_CAPABILITIES}.")
    return meta.protocol_version


def _introduce(exchange: Exchange, meta: RequestMeta) -> None:
    """Put what the request says about its client on the exchange."""
    exchange.version = cast("str", meta.protocol_version)
    exchange.meta = meta
    if meta.log_level is not UNSET:
        exchange.log_level = level_number(meta.log_level)
    exchange.task = asyncio.current_task()
