"""Requests of the versions before 2026-07-28: a client sends `initialize`, and has a session from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import UNSET

from waypost.capabilities.context import Context
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.capabilities.questions import Question
from waypost.errors import InvalidRequest, MethodNotFound, ProtocolError
from waypost.loops import maybe_await
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import CLOSED_OUTLET, SILENT, Exchange, cancel
from waypost.protocol.methods import dispatch, find_method
from waypost.protocol.responses import (
    INTERNAL_ERROR,
    STOPPING,
    Failure,
    Response,
    to_failure,
    to_legacy_result,
)
from waypost.protocol.session import DEFAULT_LOG_LEVEL, LegacySession
from waypost.protocol.streams import Outlet
from waypost.wire import messages, params
from waypost.wire.definitions import Implementation
from waypost.wire.messages import Message, RequestId, decode
from waypost.wire.versions import LATEST_LEGACY, V2025_03_26, V2025_06_18, V2025_11_25, at_least, negotiate

NOT_INITIALIZED: Final = "Server not initialized"
SESSION_ENDED: Final = Failure(INTERNAL_ERROR, "Session terminating")


async def initialize(
    engine: Engine, message: Message, principal: Principal = ANONYMOUS, attached: Callable[[bytes], None] | None = None
) -> tuple[LegacySession | None, Response]:
    """Open a session for a client, attached to its connection where one is given."""
    request_id: RequestId = message.id  # type: ignore[assignment]  # requests have one
    try:
        if not engine.profile.legacy_versions:
            raise MethodNotFound(f"Method not found: initialize; use one of {', '.join(engine.profile.versions)}.")
        given = message.read(params.Initialize)
        version = negotiate(given.protocol_version, engine.profile.legacy_versions)
        log_level = DEFAULT_LOG_LEVEL if engine.profile.offers("logging") else SILENT
        session = await engine.sessions.create(
            version, given.client_info, given.capabilities, principal, attached, log_level
        )
    except Exception as error:
        # No version is agreed on yet.
        return None, error_response(error, request_id, LATEST_LEGACY)
    return session, Response(messages.result(request_id, messages.encode(_initialize_result(engine, session))))


def _initialize_result(engine: Engine, session: LegacySession) -> dict[str, Any]:
    result: dict[str, Any] = {
        "protocolVersion": session.version,
        "capabilities": _capabilities(engine, session),
        "serverInfo": _downgrade_info(engine.profile.info, session.version),
    }
    if engine.profile.instructions is not None:
        result["instructions"] = engine.profile.instructions
    return result


def _capabilities(engine: Engine, session: LegacySession) -> dict[str, Any]:
    """The declared capabilities; without `tasks/list` for callers that share the anonymous principal."""
    declared = engine.profile.capabilities(session.version)
    tasks = declared.get("tasks")
    if session.is_identified or not tasks:
        return declared
    return {**declared, "tasks": {name: value for name, value in tasks.items() if name != "list"}}


def _downgrade_info(info: Implementation, version: str) -> Implementation:
    if at_least(version, V2025_11_25):
        return info
    return Implementation(info.name, info.version, title=info.title if at_least(version, V2025_06_18) else UNSET)


async def answer(engine: Engine, session: LegacySession, message: Message, exchange: Exchange) -> Response | None:
    """The response to a request of a session, error or not; `None` if its client cancelled it."""
    request_id = exchange.request_id
    running = session.running
    if running.setdefault(request_id, exchange) is not exchange:
        running.enter_again(exchange)
    try:
        exchange.begin()
        name: str = message.method  # type: ignore[assignment]  # requests have one
        method = find_method(engine, name, session.version)
        given = message.read(params.Params if method is None else method.params)
        if given.meta is not UNSET:
            exchange.meta = given.meta
        done = await dispatch(engine, name, method, message.params, given, exchange)
        if not exchange.was_cancelled():
            return Response(messages.result(request_id, to_legacy_result(done)))
    except (Exception, asyncio.CancelledError) as error:
        if not exchange.was_cancelled():
            if isinstance(error, asyncio.CancelledError):  # by the server, which is stopping
                raise
            return error_response(error, request_id, session.version)
    finally:
        # A task that the handler left behind may go on to report progress, and none may follow the response.
        exchange.outlet = CLOSED_OUTLET
        if running.get(request_id) is exchange:
            del running[request_id]
        else:
            running.leave_displaced(exchange)
    # A client that cancelled waits for no response; one whose session ended, or whose key was revoked, does.
    is_session_over = session.ended and not exchange.revoked
    return SESSION_ENDED.to_response(request_id) if is_session_over else exchange.cancelled_response()


def error_response(error: Exception, request_id: RequestId | None, version: str) -> Response:
    """The response for an error."""
    return to_failure(error, version).to_response(request_id)


def answer_without_session(message: Message) -> Response:
    """The response to a request before `initialize`: only `ping` is allowed."""
    request_id: RequestId = message.id  # type: ignore[assignment]  # requests have one
    if message.method == "ping":
        return Response(messages.result(request_id, b"{}"))
    return error_response(InvalidRequest(NOT_INITIALIZED), request_id, LATEST_LEGACY)


def receive(engine: Engine, session: LegacySession, message: Message, outlet: Outlet) -> bool:
    """Take a response or a notification of a session; false for one about a request that this process does not have."""
    if message.method is UNSET:
        return session.calls.resolve(message)
    is_known = message.method != "notifications/cancelled" or cancel(session.running, message)
    if engine.hooks["notification"] is not None:
        given = {} if message.params is UNSET else decode(message.params) or {}
        context = engine.context(make_exchange(session, message, outlet))
        engine.background(_notify_hook(engine, session, message.method, given, context))
    return is_known


async def receive_anywhere(engine: Engine, session: LegacySession, message: Message, outlet: Outlet) -> None:
    """Take a response or a notification of a session, or hand it over to the replica that has its request.

    What is unknown everywhere is ignored. Raises `NoHolder` or `InvalidRequest` when it did not reach that replica.
    """
    relay = engine.sessions.liveness.relay
    if not receive(engine, session, message, outlet) and relay is not None:
        await relay.hand_over(session, message)


async def _notify_hook(engine: Engine, session: LegacySession, method: str, given: Any, context: Context) -> None:
    with suppress(Exception):  # logged where it was raised; a notification has no response
        await engine.call_hook(session, "notification", method, given, about=context)


class SessionAsker:
    """Asks the client of a session by a request on the stream of the call."""

    __slots__ = ("_outlet", "_session")

    def __init__(self, session: LegacySession, outlet: Outlet) -> None:
        self._session = session
        self._outlet = outlet

    async def ask(self, question: Question) -> Any:
        """Send the question and wait for the answer."""
        return await self._session.calls.ask(question, self._session.version, self._outlet.send)

    async def once(self, _key: str, function: Callable[[], Any]) -> Any:
        """Run the step: a call in a session is never run again."""
        return await maybe_await(function())


def make_exchange(session: LegacySession, message: Message, outlet: Outlet) -> Exchange:
    """The exchange of a request in a session."""
    exchange = Exchange(message.id, session.version, outlet, session)  # type: ignore[arg-type]  # requests have one
    exchange.asker = SessionAsker(session, outlet)
    exchange.principal = session.principal
    return exchange


class Batch(msgspec.Struct):
    """The messages of a batch: requests, those without a response, and the error responses to invalid ones."""

    requests: list[Message]
    one_way: list[Message]
    errors: list[bytes]
    # Not shared: msgspec gives each instance an empty list of its own.
    answers: list[asyncio.Task[Response | None]] = []

    @property
    def wants_answer(self) -> bool:
        """Whether it has a response."""
        return bool(self.requests or self.errors)


def read_batch(session: LegacySession | None, parts: Sequence[bytes], max_depth: int) -> Batch:
    """The batch of messages; `ProtocolError` for other versions than 2025-03-26, the only one with batches."""
    if session is None or session.version != V2025_03_26:
        raise InvalidRequest("Batches are part of version 2025-03-26 only; send one message at a time.")
    batch = Batch([], [], [])
    for part in parts:
        try:
            message = messages.parse(part, max_depth)
        except ProtocolError as error:
            batch.errors.append(error_response(error, messages.find_id(part), session.version).payload)
            continue
        is_request = message.method is not UNSET and message.id is not UNSET
        (batch.requests if is_request else batch.one_way).append(message)
    return batch


async def answer_batch(
    engine: Engine, session: LegacySession, batch: Batch, outlet: Outlet, principal: Principal | None = None
) -> bytes:
    """The responses to a batch as one array; empty if all of its requests were cancelled."""
    loop = asyncio.get_running_loop()
    exchanges = [make_exchange(session, message, outlet) for message in batch.requests]
    for exchange in exchanges:
        exchange.principal = principal or session.principal
    pairs = zip(batch.requests, exchanges, strict=True)
    batch.answers = [loop.create_task(answer(engine, session, *pair)) for pair in pairs]
    return _encode_batch(batch, await asyncio.gather(*batch.answers))


def answer_stopped_batch(batch: Batch) -> bytes:
    """The responses to a batch that was cancelled because the hub stops, with errors for unfinished requests."""
    pairs = zip(batch.requests, batch.answers, strict=True)
    return _encode_batch(
        batch,
        [
            STOPPING.to_response(message.id) if task.cancelled() else task.result()  # type: ignore[arg-type]  # requests have one
            for message, task in pairs
        ],
    )


def _encode_batch(batch: Batch, outcomes: list[Response | None]) -> bytes:
    responses = [*batch.errors, *(outcome.payload for outcome in outcomes if outcome is not None)]
    return b"[" + b",".join(responses) + b"]" if responses else b""
