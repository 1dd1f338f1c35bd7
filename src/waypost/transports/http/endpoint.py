"""`/mcp`: from an HTTP request to the era it belongs to, and the status that fits the answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import Busy, InvalidRequest, ParseError, ProtocolError, StoreUnavailable
from waypost.protocol import legacy, modern
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange
from waypost.protocol.modern import VERSION
from waypost.protocol.responses import CALL_FAILED, STOPPING, Response
from waypost.protocol.session import LegacySession, SessionOutlet
from waypost.protocol.streams import EventStream
from waypost.stores.store import Store
from waypost.transports.http.asgi import JSON, Header, Receive, Scope, Send, refuse, respond, take_body
from waypost.transports.http.gate import Gate, Refusal, authenticated
from waypost.transports.http.reply import Reply, gone, pump
from waypost.wire import messages
from waypost.wire.messages import Message
from waypost.wire.versions import LATEST_LEGACY, LEGACY, V2026_07_28

if TYPE_CHECKING:
    from waypost.policy import Authentication

SESSION: Final = b"mcp-session-id"
_LEGACY_HEADERS: Final = frozenset(version.encode() for version in LEGACY)
_STATUS: Final = {-32700: 400, -32600: 400, -32601: 404, -32602: 400, -32020: 400, -32021: 400, -32022: 400}
_EVENT_NUMBER: Final = re.compile(r"[0-9]{1,15}")
_NO_SESSION: Final = "There is no such session; initialize again."


class Endpoint:
    """The MCP endpoint of one engine."""

    def __init__(self, engine: Engine, gate: Gate, auth: Authentication | None = None) -> None:
        self._engine = engine
        self._auth = auth
        self._gate = gate

    def __call__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Mapping[bytes, bytes],
        principal: Principal = ANONYMOUS,
    ) -> Awaitable[None]:
        """Serve one request of `principal`."""
        verb = scope["method"]
        if verb == "POST":
            return self._post(receive, send, headers, principal)
        if verb in ("GET", "DELETE") and headers.get(VERSION, LATEST_LEGACY.encode()) in _LEGACY_HEADERS:
            return (self._get if verb == "GET" else self._delete)(receive, send, headers, principal)
        allowed = b"POST" if verb in ("GET", "DELETE") else b"GET, POST, DELETE"
        return refuse(send, 405, f"{verb} is not allowed here.", headers=((b"allow", allowed),))

    async def _post(self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal) -> None:
        refusal = self._gate.post(headers)
        if refusal is not None:
            return await self._turn_away(receive, send, refusal)
        body = take_body(receive)
        if body is None:
            taken = await self._gate.body(receive)
            if isinstance(taken, Refusal):
                return await self._turn_away(receive, send, taken)
            if taken is None:
                return None
            body = taken
            known = principal if self._auth is None else await authenticated(self._auth, send, headers)
            if known is None:
                return None  # let in when the body began to come, and no more
            principal = known
        version = headers.get(VERSION)
        if version is not None and version.strip(b" \t") not in _LEGACY_HEADERS:
            return await self._post_modern(receive, send, headers, principal, body)
        if body.lstrip()[:1] == b"[":
            return await self._post_batch(receive, send, headers, principal, body)
        try:
            message = messages.parse(body)
        except ProtocolError as error:
            return await _malformed(send, error, body)
        if version is None and message.id is not UNSET and modern.is_modern_request(message):
            return await self._answer_modern(receive, send, headers, principal, message)
        return await self._post_legacy(receive, send, headers, principal, message)

    def _post_modern(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal, body: bytes
    ) -> Awaitable[None]:
        try:
            message = messages.parse(body)
            if message.method is UNSET:
                raise InvalidRequest("Only requests and notifications may be posted.")
        except ProtocolError as error:
            return _malformed(send, error, body)
        if message.id is UNSET:
            return respond(send, 202, headers=())
        return self._answer_modern(receive, send, headers, principal, message)

    async def _answer_modern(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal, message: Message
    ) -> None:
        reply = Reply(send, receive)
        exchange = Exchange(message.id, V2026_07_28, reply)  # type: ignore[arg-type]  # requests have one
        exchange.principal = principal
        reply.start(exchange)
        try:
            outcome = await modern.answer(self._engine, message, exchange, headers)
            status = 200 if outcome is None or not outcome.code else _STATUS.get(outcome.code, 200)
        except asyncio.CancelledError:  # by whoever serves the app, and cannot wait
            outcome, status = STOPPING.to_response(exchange.request_id), 503
        ending = self._finish(reply, outcome, status)
        if ending is not None:
            await ending

    async def _post_legacy(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal, message: Message
    ) -> None:
        if message.method == "initialize" and message.id is not UNSET:
            session, outcome = await legacy.initialize(self._engine, message, principal)
            minted: tuple[Header, ...] = () if session is None else ((SESSION, session.id.encode()),)
            return await respond(send, 503 if outcome.code == CALL_FAILED else 200, outcome.payload, (JSON, *minted))
        if SESSION not in headers and message.id is not UNSET and message.method is not UNSET:
            outcome = await legacy.answer_without_session(message)
            return await respond(send, 400 if outcome.code else 200, outcome.payload)
        session = await self._session(send, headers, principal)
        if session is None:
            return None
        if message.method is UNSET or message.id is UNSET:
            legacy.receive(self._engine, session, message, SessionOutlet(session))
            return await respond(send, 202, headers=())
        reply = Reply(send, receive, session)
        exchange = legacy.make_exchange(session, message, reply)
        exchange.principal = principal
        reply.start(exchange)
        try:
            given, status = await legacy.answer(self._engine, session, message, exchange), 200
        except asyncio.CancelledError:  # by whoever serves the app, and cannot wait
            given, status = STOPPING.to_response(exchange.request_id), 503
        ending = self._finish(reply, given, status)
        if ending is not None:
            await ending

    def _finish(self, reply: Reply, outcome: Response | None, status: int) -> Awaitable[None] | None:
        """Send the answer; a caller whose token does not reach far enough is told which one would."""
        if outcome is None or not outcome.scopes or self._auth is None:
            return reply.finish(outcome, status)
        challenge = self._auth.insufficient_scope(outcome.scopes).encode()
        return reply.finish(outcome, 403, (JSON, (b"www-authenticate", challenge)))

    async def _post_batch(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal, body: bytes
    ) -> None:
        session = await self._session(send, headers, principal)
        if session is None:
            return None
        try:
            batch = legacy.read_batch(session, body)
        except ProtocolError as error:
            return await _malformed(send, error, body)
        for message in batch.one_way:
            legacy.receive(self._engine, session, message, SessionOutlet(session))
        if not batch.wants_answer:
            return await respond(send, 202, headers=())
        reply = Reply(send, receive, session)
        try:
            payload, status = await legacy.answer_batch(self._engine, session, batch, reply, principal), 200
        except asyncio.CancelledError:  # by whoever serves the app, and cannot wait
            payload, status = legacy.answer_stopped_batch(batch), 503
        ending = reply.finish(Response(payload) if payload else None, status)
        if ending is not None:
            await ending

    async def _get(self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal) -> None:
        refusal = self._gate.stream(headers)
        if refusal is not None:
            return await self._turn_away(receive, send, refusal)
        session = await self._session(send, headers, principal)
        if session is None:
            return None
        general = (session.streams.general, session.streams.general.delivered)
        resumed = headers.get(b"last-event-id")
        if resumed is None:
            if session.streams.general.has_reader:
                return await refuse(send, 409, "This session has an open stream already.")
            parts = [general]
        else:
            parts = await _find_resumption(self._engine.store, session, resumed.decode("latin-1"))
            if not parts:
                return await refuse(send, 400, "Last-Event-ID names no event of this session.")
        reader = object()
        watch = asyncio.get_running_loop().create_task(_release_when_gone(receive, parts, reader))
        try:
            await pump(send, parts, numbered=True, reader=reader)
        finally:
            watch.cancel()
        return None

    async def _delete(
        self, _receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal
    ) -> None:
        session = await self._session(send, headers, principal)
        if session is None:
            return
        deleting = self._engine.sessions.close(session, "closed")
        failure = None if deleting is None else await deleting
        if failure is not None:
            return await refuse(send, 503, failure.message, code=CALL_FAILED)
        await respond(send, 204, headers=())

    async def _turn_away(self, receive: Receive, send: Send, refusal: Refusal) -> None:
        if refusal.unread:
            await self._gate.discard(receive)
        closing: tuple[Header, ...] = ((b"connection", b"close"),) if refusal.status == 413 else ()
        await refuse(send, refusal.status, refusal.message, code=refusal.code, headers=closing)

    async def _session(self, send: Send, headers: Mapping[bytes, bytes], principal: Principal) -> LegacySession | None:
        """The session a request names; without one the refusal is sent."""
        given = headers.get(SESSION)
        if given is None:
            await refuse(send, 400, "The header Mcp-Session-Id is missing.")
            return None
        try:
            session = await self._engine.sessions.find(given.decode("latin-1"), principal)
        except (Busy, StoreUnavailable) as error:
            await refuse(send, 503, error.message, code=CALL_FAILED)
            return None
        if session is None:
            await refuse(send, 404, _NO_SESSION)
        return session


async def _find_resumption(store: Store, session: LegacySession, event: str) -> list[tuple[EventStream, int]]:
    """The streams in which a client goes on that has read an event, each with the number it has read; none if unknown.

    A stream that this process does not have is read from the store. A recovered session has a new general stream, so a
    client of the old one goes on there after the rest of it.
    """
    name, _, digits = event.rpartition("_")
    if not _EVENT_NUMBER.fullmatch(digits):
        return []
    number = int(digits)
    stream = session.streams.get(name)
    if stream is not None:
        return [(stream, number)] if number <= stream.last else []
    rest = await session.streams.replay(store, name, number)
    general = session.streams.general
    now = [(general, general.delivered)] if session.streams.was_general(name) else []
    return now if rest is None else [(rest, number), *now]


async def _release_when_gone(receive: Receive, parts: list[tuple[EventStream, int]], reader: object) -> None:
    """Let a client's streams go with it, but not those that somebody else has taken over."""
    await gone(receive)
    for stream, _ in parts:
        stream.release(reader)


async def _malformed(send: Send, error: ProtocolError, body: bytes) -> None:
    request_id = None if isinstance(error, ParseError) else messages.readable_id(body)
    await respond(send, 400, legacy.error_response(error, request_id, LATEST_LEGACY).payload)
