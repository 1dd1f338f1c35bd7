"""`/mcp`: hands each request to the era it belongs to, and finds the HTTP status of the response."""

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
from waypost.transports.http.gate import Gate, Refusal, authenticate
from waypost.transports.http.reply import Reply, send_events, wait_for_disconnect
from waypost.wire import messages
from waypost.wire.messages import Message
from waypost.wire.versions import LATEST_LEGACY, LEGACY, V2026_07_28

if TYPE_CHECKING:
    from waypost.identity import Authentication

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
        refusal = self._gate.check_post(headers)
        if refusal is not None:
            return await self._send_refusal(receive, send, refusal)
        body = take_body(receive)
        if body is None:
            received = await self._gate.read_body(receive)
            if isinstance(received, Refusal):
                return await self._send_refusal(receive, send, received)
            if received is None:
                return None
            body = received
            current = principal if self._auth is None else await authenticate(self._auth, send, headers)
            if current is None:
                return None  # the key was revoked while the body came in
            principal = current
        version = headers.get(VERSION)
        if version is not None and version.strip(b" \t") not in _LEGACY_HEADERS:
            return await self._post_modern(receive, send, headers, principal, body)
        if body.lstrip()[:1] == b"[":
            return await self._post_batch(receive, send, headers, principal, body)
        try:
            message = messages.parse(body)
        except ProtocolError as error:
            return await _send_malformed(send, error, body)
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
            return _send_malformed(send, error, body)
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
            response = await modern.answer(self._engine, message, exchange, headers)
            status = 200 if response is None or not response.code else _STATUS.get(response.code, 200)
        except asyncio.CancelledError:  # by the server, which is stopping
            response, status = STOPPING.to_response(exchange.request_id), 503
        rest = self._send_response(reply, response, status)
        if rest is not None:
            await rest

    async def _post_legacy(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal, message: Message
    ) -> None:
        response: Response | None
        if message.method == "initialize" and message.id is not UNSET:
            session, response = await legacy.initialize(self._engine, message, principal)
            session_header: tuple[Header, ...] = () if session is None else ((SESSION, session.id.encode()),)
            status = 503 if response.code == CALL_FAILED else 200
            return await respond(send, status, response.payload, (JSON, *session_header))
        if SESSION not in headers and message.id is not UNSET and message.method is not UNSET:
            response = await legacy.answer_without_session(message)
            return await respond(send, 400 if response.code else 200, response.payload)
        session = await self._find_session(send, headers, principal)
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
            response, status = await legacy.answer(self._engine, session, message, exchange), 200
        except asyncio.CancelledError:  # by the server, which is stopping
            response, status = STOPPING.to_response(exchange.request_id), 503
        rest = self._send_response(reply, response, status)
        if rest is not None:
            await rest

    def _send_response(self, reply: Reply, response: Response | None, status: int) -> Awaitable[None] | None:
        """Send the response; one for a token that lacks scopes names them in a challenge."""
        if response is None or not response.scopes or self._auth is None:
            return reply.finish(response, status)
        challenge = self._auth.insufficient_scope(response.scopes).encode()
        return reply.finish(response, 403, (JSON, (b"www-authenticate", challenge)))

    async def _post_batch(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal, body: bytes
    ) -> None:
        session = await self._find_session(send, headers, principal)
        if session is None:
            return None
        try:
            batch = legacy.read_batch(session, body)
        except ProtocolError as error:
            return await _send_malformed(send, error, body)
        for message in batch.one_way:
            legacy.receive(self._engine, session, message, SessionOutlet(session))
        if not batch.wants_answer:
            return await respond(send, 202, headers=())
        reply = Reply(send, receive, session)
        try:
            payload, status = await legacy.answer_batch(self._engine, session, batch, reply, principal), 200
        except asyncio.CancelledError:  # by the server, which is stopping
            payload, status = legacy.answer_stopped_batch(batch), 503
        rest = reply.finish(Response(payload) if payload else None, status)
        if rest is not None:
            await rest

    async def _get(self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal) -> None:
        refusal = self._gate.check_stream(headers)
        if refusal is not None:
            return await self._send_refusal(receive, send, refusal)
        session = await self._find_session(send, headers, principal)
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
        try:
            with self._engine.broadcast.hold_stream(principal):
                return await _send_parts(receive, send, parts)
        except Busy as error:
            return await refuse(send, 503, error.message, code=CALL_FAILED)

    async def _delete(
        self, _receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal
    ) -> None:
        session = await self._find_session(send, headers, principal)
        if session is None:
            return
        deletion = self._engine.sessions.close(session, "closed")
        error = None if deletion is None else await deletion
        if error is not None:
            return await refuse(send, 503, error.message, code=CALL_FAILED)
        await respond(send, 204, headers=())

    async def _send_refusal(self, receive: Receive, send: Send, refusal: Refusal) -> None:
        if refusal.is_unread:
            await self._gate.discard(receive)
        await refuse(send, refusal.status, refusal.message, code=refusal.code, headers=refusal.headers)

    async def _find_session(
        self, send: Send, headers: Mapping[bytes, bytes], principal: Principal
    ) -> LegacySession | None:
        """The session a request names; `None` when the refusal was sent."""
        session_id = headers.get(SESSION)
        if session_id is None:
            await refuse(send, 400, "The header Mcp-Session-Id is missing.")
            return None
        try:
            session = await self._engine.sessions.find(session_id.decode("latin-1"), principal)
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


async def _send_parts(receive: Receive, send: Send, parts: list[tuple[EventStream, int]]) -> None:
    reader = object()
    watch = asyncio.get_running_loop().create_task(_release_after_disconnect(receive, parts, reader))
    try:
        await send_events(send, parts, is_numbered=True, reader=reader)
    finally:
        watch.cancel()


async def _release_after_disconnect(receive: Receive, parts: list[tuple[EventStream, int]], reader: object) -> None:
    """Release a client's streams when it disconnects, unless a later request has taken them over."""
    await wait_for_disconnect(receive)
    for stream, _ in parts:
        stream.release(reader)


async def _send_malformed(send: Send, error: ProtocolError, body: bytes) -> None:
    request_id = None if isinstance(error, ParseError) else messages.find_id(body)
    await respond(send, 400, legacy.error_response(error, request_id, LATEST_LEGACY).payload)
