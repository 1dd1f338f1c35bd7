"""The era of sessions: a client says `initialize` once, and is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from waypost.errors import InvalidParams, InvalidRequest, MethodNotFound
from waypost.protocol.answers import Outcome, legacy_body
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange
from waypost.protocol.failures import failure
from waypost.protocol.methods import LEGACY
from waypost.protocol.sessions import LegacySession
from waypost.protocol.streams import Outlet
from waypost.wire import messages, params
from waypost.wire.definitions import Implementation
from waypost.wire.messages import Message, RequestId
from waypost.wire.versions import LATEST_LEGACY, V2025_03_26, V2025_11_25, at_least, negotiate

NOT_INITIALIZED = "Server not initialized"


def initialize(
    engine: Engine, message: Message, push: Callable[[bytes], None] | None = None
) -> tuple[LegacySession | None, Outcome]:
    """Open a session for a client; with `push`, messages outside of requests go there."""
    request_id: RequestId = message.id  # type: ignore[assignment]  # requests have one
    try:
        if not engine.legacy_versions:
            raise MethodNotFound(f"Method not found: initialize; use one of {', '.join(engine.settings.versions)}.")
        given = params.read(message.params, params.Initialize)
        version = negotiate(given.protocol_version, engine.legacy_versions)
        session = engine.sessions.create(version, given.client_info, given.capabilities)
    except Exception as error:
        return None, failed(error, request_id, LATEST_LEGACY)
    if push is not None:
        session.attach(push)
    return session, Outcome(messages.result(request_id, messages.encode(_welcome(engine, version))))


def _welcome(engine: Engine, version: str) -> dict[str, Any]:
    capabilities = engine.capabilities()
    if not at_least(version, V2025_03_26):
        capabilities = {name: value for name, value in capabilities.items() if name != "completions"}
    info = engine.info if at_least(version, V2025_11_25) else Implementation(engine.info.name, engine.info.version)
    welcome: dict[str, Any] = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
    if engine.instructions is not None:
        welcome["instructions"] = engine.instructions
    return welcome


async def answer(engine: Engine, session: LegacySession, message: Message, exchange: Exchange) -> Outcome | None:
    """The response to a request of a session, error or not; `None` if it was cancelled."""
    request_id = exchange.request_id
    exchange.task = asyncio.current_task()
    session.running[request_id] = exchange
    try:
        method = LEGACY.get(message.method)  # type: ignore[arg-type]  # requests have one
        if method is None or not (method.capability is None or engine.offers(method.capability)):
            raise MethodNotFound(f"Method not found: {message.method}")
        given = params.read(message.params, method.params)
        if given.meta is not UNSET:
            exchange.meta = given.meta
        done = await method.run(engine, given, exchange)
        return Outcome(messages.result(request_id, legacy_body(done)))
    except asyncio.CancelledError:
        if not exchange.was_cancelled():
            raise
        return None
    except Exception as error:
        return failed(error, request_id, session.version)
    finally:
        if session.running.get(request_id) is exchange:
            del session.running[request_id]


def failed(error: Exception, request_id: RequestId | None, version: str) -> Outcome:
    """The error response for what went wrong."""
    told = failure(error, version)
    return Outcome(told.response(request_id), told.code)


async def answer_outside(message: Message) -> Outcome:
    """The response to a request that comes before `initialize`: only `ping` has one."""
    request_id: RequestId = message.id  # type: ignore[assignment]  # requests have one
    if message.method == "ping":
        return Outcome(messages.result(request_id, b"{}"))
    return failed(InvalidRequest(NOT_INITIALIZED), request_id, LATEST_LEGACY)


def notify(session: LegacySession, message: Message) -> None:
    """Take a one-way message of a session; unknown ones are nobody's business."""
    if message.method != "notifications/cancelled":
        return
    try:
        given = params.read(message.params, params.Cancelled)
    except InvalidParams:
        return
    exchange = None if given.request_id is UNSET else session.running.get(given.request_id)
    if exchange is not None:
        exchange.cancel()


def exchange_for(session: LegacySession, message: Message, outlet: Outlet) -> Exchange:
    """The exchange of a request in a session."""
    exchange = Exchange(message.id, session.version, outlet, session)  # type: ignore[arg-type]  # requests have one
    exchange.log_level = session.log_level
    exchange.principal = session.principal
    return exchange


async def answer_batch(engine: Engine, session: LegacySession, requests: list[Message], outlet: Outlet) -> bytes:
    """The responses to a batch as one array; empty if all of them were cancelled."""
    outcomes = await asyncio.gather(
        *(answer(engine, session, message, exchange_for(session, message, outlet)) for message in requests)
    )
    answered = [outcome.payload for outcome in outcomes if outcome is not None]
    return b"[" + b",".join(answered) + b"]" if answered else b""
