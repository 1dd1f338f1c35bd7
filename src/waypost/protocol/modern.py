"""The stateless era: every request says who asks, in which version, with which capabilities."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, UnsetType

from waypost.capabilities.asking import is_input_needed
from waypost.errors import InvalidParams, MethodNotFound, ProtocolError, UnsupportedVersion
from waypost.protocol import routing
from waypost.protocol.answers import Outcome
from waypost.protocol.dispatch import dispatch
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import SILENT, Exchange, wanted_level
from waypost.protocol.failures import REFUSED, failure
from waypost.protocol.methods import Method
from waypost.protocol.modern_methods import METHODS
from waypost.protocol.rounds import Rounds
from waypost.protocol.sealing import binding
from waypost.wire import params
from waypost.wire.messages import Message, RequestId
from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION, RequestMeta
from waypost.wire.versions import V2026_07_28

_MARK: Final = PROTOCOL_VERSION.encode()


def is_modern_request(message: Message) -> bool:
    """Whether a message carries the stateless envelope."""
    given = b"" if message.params is UNSET else bytes(message.params)
    if _MARK not in given and b"\\" not in given:
        return False
    try:
        meta = params.read(message.params, params.Params).meta
    except InvalidParams:
        return _MARK in given
    return meta is not UNSET and meta.protocol_version is not UNSET


async def answer(
    engine: Engine, message: Message, exchange: Exchange, headers: Mapping[bytes, bytes] | None = None
) -> Outcome | None:
    """The response to a stateless request, error or not; `None` if its client cancelled it."""
    request_id = exchange.request_id
    name: str = message.method  # type: ignore[assignment]  # requests have one
    rounds = None
    try:
        exchange.begin()
        method, given = admit(engine, message, headers)
        meta: RequestMeta = given.meta
        _introduce(engine, exchange, meta)
        if isinstance(given, params.Round) and (meta.client_capabilities or given.request_state is not None):
            exchange.asker = rounds = _rounds(engine, name, given, exchange)
        done = await dispatch(engine, name, method, message.params, given, exchange)
        if exchange.was_cancelled():
            return _stopped(exchange)
        if rounds is not None and rounds.is_asking:
            return _question(engine, rounds, request_id)
        cacheable = method is not None and method.cacheable
        return Outcome(engine.modern_body.response(request_id, done, cacheable=cacheable))
    except asyncio.CancelledError:
        if not exchange.was_cancelled():
            raise
        return _stopped(exchange)
    except Exception as error:
        if exchange.was_cancelled():
            return _stopped(exchange)
        if rounds is not None and rounds.is_asking and not isinstance(error, ProtocolError):
            return _question(engine, rounds, request_id)
        return failure(error, V2026_07_28).outcome(request_id)
    except BaseException as error:
        if rounds is None or not is_input_needed(error):
            raise
        return _stopped(exchange) if exchange.was_cancelled() else _question(engine, rounds, request_id)
    finally:
        exchange.end()


def _stopped(exchange: Exchange) -> Outcome | None:
    """The response to a request that was stopped: none when its client wanted that."""
    return REFUSED.outcome(exchange.request_id) if exchange.refused else None


def _question(engine: Engine, rounds: Rounds, request_id: RequestId) -> Outcome:
    """A handler that asked the client makes the question the answer."""
    try:
        payload = engine.modern_body.response(request_id, rounds.answer(), cacheable=False)
    except Exception as error:
        return failure(error, V2026_07_28).outcome(request_id)
    return Outcome(payload)


def _rounds(engine: Engine, method: str, given: params.Round, exchange: Exchange) -> Rounds:
    """What this request may ask, and what it was answered."""
    about = given.uri if isinstance(given, params.ReadResource) else given.name  # type: ignore[attr-defined]  # a prompt's or a tool's
    bound_to = binding(exchange.principal.id, method, about, getattr(given, "arguments", None) or {})
    return Rounds(engine.seal, bound_to, given.input_responses, given.request_state)


def admit(engine: Engine, message: Message, headers: Mapping[bytes, bytes] | None) -> tuple[Method | None, Any]:
    """The method and its parameters, after every check of the envelope in the order the protocol wants."""
    name: str = message.method  # type: ignore[assignment]  # requests have one
    method = METHODS.get(name)
    given: Any
    problem = None
    try:
        given = params.read(message.params, params.Params if method is None else method.params)
    except InvalidParams as error:
        given, problem = params.read(message.params, params.Params), error
    version = _version(given.meta)
    if headers is not None:
        routing.check(headers, version, name, _about(method, message, given))
    if version not in engine.modern_versions:
        raise UnsupportedVersion(
            f"Protocol version {version} is not supported here.",
            {"supported": list(engine.versions), "requested": version},
        )
    if headers is not None and engine.registry.tools.headed and name == "tools/call" and problem is None:
        tool = engine.registry.find_tool(given.name)
        if tool is not None and tool.headers:
            routing.check_parameters(headers, tool, given.arguments or {})
    if method is not None and not (method.capability is None or engine.offers(method.capability)):
        method = None
    if method is None and engine.hooks("request") is None:
        raise MethodNotFound(f"Method not found: {name}")
    if problem is not None:
        raise problem
    return method, given


def _about(method: Method | None, message: Message, given: Any) -> str | None:
    """What the request is about, as its header must repeat it; found even when other parameters are wrong."""
    if method is None or method.name_field is None:
        return None
    if type(given) is not method.params:
        given = params.read(message.params, params.Subject)
    about = getattr(given, method.name_field)
    return about if isinstance(about, str) else None


def _version(meta: RequestMeta | UnsetType) -> str:
    if meta is UNSET or meta.protocol_version is UNSET:
        raise InvalidParams(f"params._meta must carry {PROTOCOL_VERSION}.")
    if meta.client_capabilities is UNSET:
        raise InvalidParams(f"params._meta must carry {CLIENT_CAPABILITIES}.")
    return meta.protocol_version


def _introduce(engine: Engine, exchange: Exchange, meta: RequestMeta) -> None:
    """Put what the request says about its client on the exchange."""
    exchange.version = meta.protocol_version  # type: ignore[assignment]  # admitted
    exchange.meta = meta
    if meta.log_level is not UNSET:
        level = wanted_level(meta.log_level)
        exchange.log_level = level if engine.offers("logging") else SILENT
