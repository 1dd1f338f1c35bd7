"""`/mcp`: from an HTTP request to the era it belongs to, and the status that fits the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from msgspec import UNSET

from waypost.errors import HeaderMismatch, InvalidRequest, ParseError, ProtocolError
from waypost.protocol import legacy, modern, routing
from waypost.protocol.answers import Outcome
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange
from waypost.protocol.routing import VERSION
from waypost.protocol.sessions import LegacySession
from waypost.transports.http.asgi import JSON, Header, Receive, Scope, Send, refuse, respond
from waypost.transports.http.gate import Gate, Refusal
from waypost.transports.http.reply import Reply, gone, pump
from waypost.wire import messages
from waypost.wire.messages import Message
from waypost.wire.versions import LATEST_LEGACY, LEGACY, V2025_03_26, V2026_07_28

SESSION: Final = b"mcp-session-id"
_LEGACY_HEADERS: Final = frozenset(version.encode() for version in LEGACY)
_STATUS: Final = {-32700: 400, -32600: 400, -32601: 404, -32602: 400, -32020: 400, -32021: 400, -32022: 400}
_NO_SESSION: Final = "There is no such session; initialize again."


class Endpoint:
    """The MCP endpoint of one engine."""

    def __init__(self, engine: Engine, gate: Gate) -> None:
        self._engine = engine
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes]) -> None:
        """Serve one request."""
        verb = scope["method"]
        if verb == "POST":
            await self._post(scope, receive, send, headers)
        elif verb in ("GET", "DELETE") and headers.get(VERSION, LATEST_LEGACY.encode()) in _LEGACY_HEADERS:
            await (self._get if verb == "GET" else self._delete)(receive, send, headers)
        else:
            allowed = b"POST" if verb in ("GET", "DELETE") else b"GET, POST, DELETE"
            await refuse(send, 405, f"{verb} is not allowed here.", headers=((b"allow", allowed),))

    async def _post(self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes]) -> None:
        refusal = self._gate.post(headers)
        if refusal is not None:
            return await _turn_away(send, refusal)
        body = await self._gate.body(receive)
        if body is None:
            return None
        if isinstance(body, Refusal):
            return await _turn_away(send, body)
        version = headers.get(VERSION)
        if version is not None and version.strip(b" \t") not in _LEGACY_HEADERS:
            return await self._post_modern(scope, receive, send, headers, body)
        if body.lstrip()[:1] == b"[":
            return await self._post_batch(receive, send, headers, body)
        try:
            message = messages.parse(body)
        except ProtocolError as error:
            return await _malformed(send, error, body)
        if version is None and message.id is not UNSET and modern.is_modern_request(message):
            return await self._answer_modern(receive, send, headers, message)
        return await self._post_legacy(receive, send, headers, message)

    async def _post_modern(
        self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes], body: bytes
    ) -> None:
        try:
            message = messages.parse(body)
            if message.method is UNSET:
                raise InvalidRequest("Only requests and notifications may be posted.")
        except ProtocolError as error:
            return await _malformed(send, error, body)
        if message.id is UNSET:
            return await respond(send, 202, headers=())
        if len(headers) != len(scope["headers"]):
            try:
                routing.check_repeated(name for name, _ in scope["headers"])
            except HeaderMismatch as error:
                return await respond(send, 400, legacy.failed(error, message.id, V2026_07_28).payload)
        return await self._answer_modern(receive, send, headers, message)

    async def _answer_modern(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], message: Message
    ) -> None:
        reply = Reply(send, receive)
        exchange = Exchange(message.id, V2026_07_28, reply)  # type: ignore[arg-type]  # requests have one
        reply.start(exchange)
        outcome = await modern.answer(self._engine, message, exchange, headers)
        await reply.finish(outcome, 200 if outcome is None else _STATUS.get(outcome.code, 200))

    async def _post_legacy(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], message: Message
    ) -> None:
        if message.method == "initialize" and message.id is not UNSET:
            session, outcome = legacy.initialize(self._engine, message)
            minted: tuple[Header, ...] = () if session is None else ((SESSION, session.id.encode()),)
            return await respond(send, 200, outcome.payload, (JSON, *minted))
        if SESSION not in headers and message.id is not UNSET and message.method is not UNSET:
            outcome = await legacy.answer_outside(message)
            return await respond(send, 400 if outcome.code else 200, outcome.payload)
        session = await self._session(send, headers)
        if session is None:
            return None
        if message.method is UNSET or message.id is UNSET:
            if message.method is not UNSET:
                legacy.notify(session, message)
            return await respond(send, 202, headers=())
        reply = Reply(send, receive, session)
        exchange = legacy.exchange_for(session, message, reply)
        reply.start(exchange)
        return await reply.finish(await legacy.answer(self._engine, session, message, exchange), 200)

    async def _post_batch(self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], body: bytes) -> None:
        session = await self._session(send, headers)
        if session is None:
            return None
        try:
            if session.version != V2025_03_26:
                raise InvalidRequest("Batches are part of version 2025-03-26 only; send one message at a time.")
            batch = [messages.parse(part) for part in messages.parse_batch(body)]
        except ProtocolError as error:
            return await _malformed(send, error, body)
        requests = []
        for message in batch:
            if message.method is not UNSET and message.id is not UNSET:
                requests.append(message)
            elif message.method is not UNSET:
                legacy.notify(session, message)
        if not requests:
            return await respond(send, 202, headers=())
        reply = Reply(send, receive, session)
        payload = await legacy.answer_batch(self._engine, session, requests, reply)
        return await reply.finish(Outcome(payload) if payload else None, 200)

    async def _get(self, receive: Receive, send: Send, headers: Mapping[bytes, bytes]) -> None:
        refusal = self._gate.stream(headers)
        if refusal is not None:
            return await _turn_away(send, refusal)
        session = await self._session(send, headers)
        if session is None:
            return None
        stream, after = session.general, session.general.delivered
        resumed = headers.get(b"last-event-id")
        if resumed is not None:
            name, _, number = resumed.decode("latin-1").rpartition("_")
            found = session.stream(name)
            if found is None or not number.isascii() or not number.isdigit():
                return await refuse(send, 400, "Last-Event-ID names no stream of this session.")
            stream, after = found, int(number)
        elif stream.has_reader:
            return await refuse(send, 409, "This session has an open stream already.")
        watch = asyncio.get_running_loop().create_task(_release_when_gone(receive, session, stream.name))
        try:
            await pump(send, stream, after, numbered=True)
        finally:
            watch.cancel()
        return None

    async def _delete(self, _receive: Receive, send: Send, headers: Mapping[bytes, bytes]) -> None:
        session = await self._session(send, headers)
        if session is not None:
            self._engine.sessions.close(session)
            await respond(send, 204, headers=())

    async def _session(self, send: Send, headers: Mapping[bytes, bytes]) -> LegacySession | None:
        """The session a request names; without one the refusal is sent."""
        given = headers.get(SESSION)
        if given is None:
            await refuse(send, 400, "The header Mcp-Session-Id is missing.")
            return None
        session = self._engine.sessions.find(given.decode("latin-1"))
        if session is None:
            await refuse(send, 404, _NO_SESSION)
        return session


async def _release_when_gone(receive: Receive, session: LegacySession, name: str) -> None:
    await gone(receive)
    stream = session.stream(name)
    if stream is not None:
        stream.release()


async def _malformed(send: Send, error: ProtocolError, body: bytes) -> None:
    request_id = None if isinstance(error, ParseError) else messages.readable_id(body)
    await respond(send, 400, legacy.failed(error, request_id, LATEST_LEGACY).payload)


async def _turn_away(send: Send, refusal: Refusal) -> None:
    closing: tuple[Header, ...] = ((b"connection", b"close"),) if refusal.status == 413 else ()
    await refuse(send, refusal.status, refusal.message, code=refusal.code, headers=closing)
