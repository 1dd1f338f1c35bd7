"""`/mcp`: hands each request to the era it belongs to, and replies with JSON or a stream of events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from time import time_ns
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import (
    Busy,
    InvalidRequest,
    NoHolder,
    ParseError,
    ProtocolError,
    StoreUnavailable,
    shorten,
)
from waypost.execution.limits import Shares, Ticker, ticker
from waypost.protocol import legacy, modern
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange, track_request
from waypost.protocol.modern import VERSION
from waypost.protocol.responses import CALL_FAILED, STOPPING, Response
from waypost.protocol.session import MAX_MESSAGE_BYTES, LegacySession, MessageLog, SessionOutlet
from waypost.protocol.streams import EventStream, StreamReader
from waypost.transports.http.asgi import (
    JSON,
    Event,
    Header,
    Receive,
    Scope,
    Send,
    refuse,
    respond,
    send_whole,
    take_body,
)
from waypost.transports.http.gate import Gate, Refusal, authenticate
from waypost.transports.http.pending import LARGE_RESPONSE_BYTES, LargeResponses
from waypost.wire import messages
from waypost.wire.messages import Message
from waypost.wire.versions import LATEST_LEGACY, LEGACY, V2025_11_25, V2026_07_28, at_least

if TYPE_CHECKING:
    from waypost.identity import Authentication


EVENT_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # nginx would hold events back until its buffer is full.
    (b"x-accel-buffering", b"no"),
]
# Proxies close a connection on which nothing is sent for a while.
KEEP_ALIVE_S: Final = 15.0
RETRY_MS: Final = 500
# Most requests end before that, and need neither a task that watches the client nor an entry.
_IN_FLIGHT_AFTER_S: Final = 0.05


class Reply:
    """Carries everything that belongs to one request back to its client."""

    __slots__ = (
        # Requests that take a while are tracked by weak references.
        "__weakref__",
        "_log",
        "_receive",
        "_send",
        "_sending",
        "_session",
        "_stream",
        "_ticker",
        "_watcher",
        "due",
        "exchange",
    )
    due: float

    def __init__(self, send: Send, receive: Receive, session: LegacySession | None, log: MessageLog) -> None:
        self._log = log
        self.exchange: Exchange | None = None
        self._send = send
        self._receive = receive
        self._session = session
        self._stream: EventStream | None = None
        self._sending: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._ticker: Ticker | None = None

    def start(self, exchange: Exchange) -> None:
        """Watch the client if the request takes a while: whether it is still there, and needs a keep-alive."""
        self.exchange = exchange
        self._ticker = clock = ticker()
        clock.add(self, _IN_FLIGHT_AFTER_S)

    async def send(self, message: bytes) -> None:
        """Send a message before the response."""
        self._log_message(message)
        await self._open_stream().send(message)

    async def close_early(self) -> None:
        """End the stream, if the client is of a version that knows how to resume it."""
        if self._session is None or not at_least(self._session.version, V2025_11_25):
            return
        self._open_stream()
        # The sending task begins, and sends the event id from which the client resumes, before its reader is released.
        await asyncio.sleep(0)
        if self._stream is not None:
            self._stream.release()

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection, where the server is ours."""
        return getattr(getattr(self._send, "__self__", None), "transport", None)

    def finish(
        self, response: Response | None, status: int, headers: tuple[Header, ...] = (JSON,)
    ) -> Awaitable[None] | None:
        """Send the response, or end without one; returns what is left to await."""
        if response is not None:
            payload, exchange, session = response.payload, self.exchange, self._session
            size = len(payload)
            if exchange is None or size > MAX_MESSAGE_BYTES:
                self._log_message(payload)
            else:
                session_id = None if session is None else session.id
                self._log.keep((time_ns(), "out", exchange.principal.id, session_id, payload, size))
        # Reply and exchange refer to each other: without this the garbage collector had a cycle to find per request.
        self.exchange = None
        if self._ticker is not None:
            self._ticker.waiting.discard(self)
        if self._watcher is not None:
            self._watcher.cancel()
        if response is None or self._stream is not None:
            return self._end_stream(response)
        if send_whole(self._send, status, response.payload, headers):
            return None
        return respond(self._send, status, response.payload, headers)

    def _log_message(self, message: bytes) -> None:
        session, exchange = self._session, self.exchange
        caller = session if exchange is None else exchange
        if caller is not None:
            self._log.add("out", caller.principal.id, None if session is None else session.id, message)

    async def _end_stream(self, response: Response | None) -> None:
        stream = self._open_stream()
        if response is not None:
            stream.append(response.payload)
        stream.close()
        if self._sending is not None:
            with suppress(asyncio.CancelledError):
                # The server, when it stops, cancels requests whose response may be on its way: that is still sent.
                await asyncio.shield(self._sending)
            with suppress(asyncio.CancelledError):
                await self._sending

    def _open_stream(self) -> EventStream:
        if self._stream is None:
            asked = None if self.exchange is None else self.exchange.request_id
            self._stream = (
                EventStream("", is_resumable=False) if self._session is None else self._session.streams.open(asked)
            )
            # From 2025-11-25 on, an event without data gives the client an id to resume from before the first message.
            is_primed = self._session is not None and at_least(self._session.version, V2025_11_25)
            self._sending = asyncio.get_running_loop().create_task(
                send_events(
                    self._send,
                    [(self._stream, 0)],
                    is_numbered=self._session is not None,
                    is_primed=is_primed,
                    reader=self,
                )
            )
        return self._stream

    def on_due(self) -> None:
        """The request takes a while: begin to watch the client."""
        if self._session is None:
            track_request(self)
        self._watcher = asyncio.get_running_loop().create_task(self._watch_client())

    async def _watch_client(self) -> None:
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await wait_for_disconnect(self._receive)
        except TimeoutError:
            self._open_stream()
            await wait_for_disconnect(self._receive)
        # In 2026-07-28 a client that disconnects gives its request up; in a session it can resume the stream.
        if self._session is None and self.exchange is not None:
            self.exchange.cancel()
        elif self._stream is not None:
            # From now on the limits of streams apply to what the call sends, unless the client reads it elsewhere.
            self._stream.release(self)


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_events(
    send: Send,
    streams: Sequence[tuple[EventStream, int]],
    *,
    is_numbered: bool,
    is_primed: bool = False,
    reader: object | None,
    is_general: bool = False,
) -> None:
    """Write the events of streams, one after the other, each behind a number, until they end or are released."""
    await send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
    if is_primed:
        await _write(send, f"id: {streams[0][0].name}_0\nretry: {RETRY_MS}\ndata: \n\n".encode())
    for stream, after in streams:
        async for event in stream.follow(after, KEEP_ALIVE_S, reader):
            if event is None:
                await _write(send, b": keep-alive\n\n")
            elif is_numbered:
                number = f"{stream.name}_{event.number}".encode()
                await _write(send, b"event: message\nid: %b\ndata: %b\n\n" % (number, event.message))
            else:
                await _write(send, b"event: message\ndata: %b\n\n" % event.message)
    if is_general:  # its client waits for more: it connects again, soon and perhaps to another replica
        await _write(send, b"retry: %d\n\n" % RETRY_MS)
    await send({"type": "http.response.body", "body": b""})


async def _write(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


SESSION: Final = b"mcp-session-id"
_LEGACY_HEADERS: Final = frozenset(version.encode() for version in LEGACY)
# Only 2026-07-28 maps errors to statuses; in a session the response to a request is a 200.
_STATUS: Final = {-32700: 400, -32600: 400, -32601: 404, -32602: 400, -32020: 400, -32021: 400, -32022: 400}
_EVENT_NUMBER: Final = re.compile(r"[0-9]{1,15}")
_NO_SESSION: Final = "There is no such session; initialize again."
DRAINING: Final = "This replica is stopping and takes no new work; send the request again, another replica answers it."
RETRY: Final[Header] = (b"retry-after", b"1")
AGAIN: Final[tuple[Header, ...]] = (RETRY, (b"connection", b"close"))
"""Behind a balancer of connections a new connection leads to another replica; the one that is open does not."""
LARGE_REQUEST_BYTES: Final = 32 * 1024
"""From here on the bytes of a request count; what smaller ones hold is bounded by their number."""
_NEW_WORK: Final = frozenset({"initialize", "tools/call", "subscriptions/listen"})


class Endpoint:
    """The MCP endpoint of one engine."""

    def __init__(self, engine: Engine, gate: Gate, auth: Authentication | None) -> None:
        self._engine = engine
        self._max_depth = engine.settings.limits.json_depth
        self._auth = auth
        self._gate = gate
        self._log = engine.messages
        self._keep_message = engine.messages.keep
        self._large = LargeResponses(engine.settings.limits.max_unread_bytes)
        self._in_work = Shares(engine.settings.limits.max_request_bytes)
        """The bytes of large requests, which stay in memory until they are answered, by principal."""

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
            post = self._post if not self._large.holds(principal.id) else self._post_later
            return post(receive, send, headers, principal)
        # 2026-07-28 has neither: its streams are responses to POST, and there is no session to delete.
        if verb in ("GET", "DELETE") and headers.get(VERSION, LATEST_LEGACY.encode()) in _LEGACY_HEADERS:
            return (self._get if verb == "GET" else self._delete)(receive, send, headers, principal)
        allowed = b"POST" if verb in ("GET", "DELETE") else b"GET, POST, DELETE"
        return refuse(send, 405, f"{verb} is not allowed here.", headers=((b"allow", allowed),))

    async def _post_later(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal
    ) -> None:
        await self._large.wait(principal.id)
        await self._post(receive, send, headers, principal)

    async def _post(self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal) -> None:
        refusal = self._gate.check_post(headers)
        if refusal is not None:
            return await self._send_refusal(receive, send, refusal)
        body = take_body(receive)
        if body is None:
            received, rest = self._gate.begin_body(receive)
            if rest is not None:
                received = await rest
            if isinstance(received, Refusal):
                return await self._send_refusal(receive, send, received)
            if received is None:
                return None
            body = received
            if rest is not None and self._auth is not None:
                current = self._auth.known(headers) or await authenticate(self._auth, send, headers)
                if current is None:
                    return None  # the key was revoked while the body came in
                principal = current
        start = body[:MAX_MESSAGE_BYTES]  # the same object where it is short enough
        self._keep_message((time_ns(), "in", principal.id, headers.get(SESSION), start, len(body)))
        is_large = len(body) >= LARGE_REQUEST_BYTES
        if is_large and not self._in_work.try_take(principal.id, len(body)):
            busy = f"{self._in_work.total} bytes of large requests are in work (maxRequestBytes); try again later."
            payload = messages.error(messages.find_id(body), CALL_FAILED, busy)
            return await respond(send, 503, payload, (JSON, RETRY))
        try:
            version = headers.get(VERSION)
            if version is not None and version.strip(b" \t") not in _LEGACY_HEADERS:
                return await self._post_modern(receive, send, headers, principal, body)
            if body.lstrip()[:1] == b"[":
                return await self._post_batch(receive, send, headers, principal, body)
            return await self._post_message(receive, send, headers, principal, body)
        finally:
            if is_large:
                self._in_work.give_back(principal.id, len(body))

    async def _post_message(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal, body: bytes
    ) -> None:
        try:
            message = messages.parse(body, self._max_depth)
        except ProtocolError as error:
            return await _send_malformed(send, error, body, headers)
        # The header is missing, or another one where there is no session, but the body is of 2026-07-28: that era
        # refuses it and says so.
        is_stateless = VERSION not in headers or SESSION not in headers
        if is_stateless and message.id is not UNSET and modern.is_modern_request(message):
            return await self._answer_modern(receive, send, headers, principal, message)
        return await self._post_legacy(receive, send, headers, principal, message)

    def _post_modern(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal, body: bytes
    ) -> Awaitable[None]:
        try:
            message = messages.parse(body, self._max_depth)
            if message.method is UNSET:
                raise InvalidRequest("Only requests and notifications may be posted.")
        except ProtocolError as error:
            return _send_malformed(send, error, body, headers)
        if message.id is UNSET:
            return respond(send, 202, headers=())
        return self._answer_modern(receive, send, headers, principal, message)

    async def _answer_modern(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal, message: Message
    ) -> None:
        reply = Reply(send, receive, None, self._log)
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
            self._log.add("out", principal.id, None if session is None else session.id, response.payload)
            session_header: tuple[Header, ...] = () if session is None else ((SESSION, session.id.encode()),)
            # Such as `Busy`: too many sessions are open.
            status = 503 if response.code == CALL_FAILED else 200
            return await respond(send, status, response.payload, (JSON, *session_header))
        if SESSION not in headers and message.id is not UNSET and message.method is not UNSET:
            response = legacy.answer_without_session(message)
            return await respond(send, 400 if response.code else 200, response.payload)
        session = await self._find_session(send, headers, principal)
        if session is None:
            return None
        if message.method is UNSET or message.id is UNSET:
            if await self._take_one_way(send, session, message):
                await respond(send, 202, headers=())
            return None
        reply = Reply(send, receive, session, self._log)
        exchange = legacy.make_exchange(session, message, reply)
        # Each request has the rights of its own key: another one may have changed those of the session meanwhile.
        exchange.principal = principal
        reply.start(exchange)
        try:
            response, status = await legacy.answer(self._engine, session, message, exchange), 200
        except asyncio.CancelledError:  # by the server, which is stopping
            response, status = STOPPING.to_response(exchange.request_id), 503
        rest = self._send_response(reply, response, status)
        if rest is not None:
            await rest

    async def _take_one_way(self, send: Send, session: LegacySession, message: Message) -> bool:
        """Take a message without a response; false when the refusal was sent: it did not reach its replica."""
        try:
            await legacy.receive_anywhere(self._engine, session, message, SessionOutlet(session))
        except InvalidRequest as error:
            await refuse(send, 400, error.message)
        except (NoHolder, StoreUnavailable) as error:
            await refuse(send, 503, error.message, code=CALL_FAILED)
        else:
            return True
        return False

    def _send_response(self, reply: Reply, response: Response | None, status: int) -> Awaitable[None] | None:
        """Send the response; one for a token that lacks scopes names them in a challenge."""
        if response is not None and len(response.payload) > LARGE_RESPONSE_BYTES and reply.exchange is not None:
            principal = reply.exchange.principal
            # All who are anonymous share an id: one that does not read must not keep the others from being answered.
            self._large.add(principal.id, None if principal.id == ANONYMOUS.id else reply.transport)
        if response is None or not response.scopes or self._auth is None:
            return reply.finish(response, status)
        challenge = self._auth.insufficient_scope(response.scopes).encode()
        return reply.finish(response, 403, (JSON, (b"www-authenticate", challenge)))

    async def _post_batch(
        self, receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal, body: bytes
    ) -> None:
        try:
            # Before the session: what cannot be read is refused as such in every session and without one.
            parts = messages.parse_batch(body, self._max_depth)
            session = await self._find_session(send, headers, principal)
            if session is None:
                return None
            batch = legacy.read_batch(session, parts, self._max_depth)
        except ProtocolError as error:
            return await _send_malformed(send, error, body, headers)
        for message in batch.one_way:
            if not await self._take_one_way(send, session, message):
                return None
        if not batch.wants_answer:
            return await respond(send, 202, headers=())
        reply = Reply(send, receive, session, self._log)
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
        # From where the last reader stopped: the client gets what was sent in between.
        general = (session.streams.general, session.streams.general.delivered)
        resumed = headers.get(b"last-event-id")
        if resumed is None:
            if session.streams.general.has_reader:
                return await refuse(send, 409, "This session has an open stream already.")
            parts = [general]
        else:
            parts = await _find_resumption(self._engine, session, resumed.decode("latin-1"))
            if not parts:
                return await refuse(send, 400, "Last-Event-ID names no event of this session.")
        try:
            with self._engine.broadcast.hold_stream(principal):
                is_general = parts[-1][0] is session.streams.general
                return await _send_parts(receive, send, parts, StreamReader(principal), is_general)
        except Busy as error:
            return await refuse(send, 503, error.message, code=CALL_FAILED)

    async def _delete(
        self, _receive: Receive, send: Send, headers: Mapping[bytes, bytes], principal: Principal
    ) -> None:
        session = await self._find_session(send, headers, principal)
        if session is None:
            return
        deletion = self._engine.sessions.close(session, "closed")
        # A row that was not deleted would bring the session back, so the client has to know.
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
            # By the specification, a client that gets a 404 initializes again.
            await refuse(send, 404, _NO_SESSION)
        return session


async def _find_resumption(engine: Engine, session: LegacySession, event: str) -> list[tuple[EventStream, int]]:
    """The streams from which a client resumes after an event, each with the number it has read; none if unknown.

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
    rest = await session.streams.replay(engine, name, number)
    general = session.streams.general
    now = [(general, general.delivered)] if session.streams.was_general(name) else []
    return now if rest is None else [(rest, number), *now]


async def _send_parts(
    receive: Receive, send: Send, parts: list[tuple[EventStream, int]], reader: StreamReader, is_general: bool
) -> None:
    watch = asyncio.get_running_loop().create_task(_release_after_disconnect(receive, parts, reader))
    try:
        await send_events(send, parts, is_numbered=True, reader=reader, is_general=is_general)
    finally:
        watch.cancel()


async def _release_after_disconnect(
    receive: Receive, parts: list[tuple[EventStream, int]], reader: StreamReader
) -> None:
    """Release a client's streams when it disconnects, unless a later request has taken them over."""
    await wait_for_disconnect(receive)
    for stream, _ in parts:
        stream.release(reader)


async def _send_malformed(send: Send, error: ProtocolError, body: bytes, headers: Mapping[bytes, bytes]) -> None:
    coding = headers.get(b"content-encoding", _IDENTITY).strip().lower()
    if coding != _IDENTITY and isinstance(error, ParseError):
        message = f"Content-Encoding {shorten(coding.decode('latin-1'))} is not supported; send the body as it is."
        return await refuse(send, 415, message, headers=((b"accept-encoding", _IDENTITY),))
    request_id = None if isinstance(error, ParseError) else messages.find_id(body)
    await respond(send, 400, legacy.error_response(error, request_id, LATEST_LEGACY).payload)


_IDENTITY: Final = b"identity"


class _Called(msgspec.Struct):
    method: str = ""


_decode: Final = msgspec.json.Decoder(_Called | list[_Called]).decode


class DrainingEndpoint:
    """Takes the place of an `Endpoint`, so that a replica that does not drain pays nothing for the difference.

    Answers to questions, cancellations, and requests about tasks belong to work that runs, and are served.
    """

    def __init__(self, endpoint: Endpoint, gate: Gate) -> None:
        self._endpoint = endpoint
        self._gate = gate

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Mapping[bytes, bytes],
        principal: Principal = ANONYMOUS,
    ) -> None:
        """Serve one request of `principal`, or refuse it."""
        if scope["method"] == "GET":
            return await refuse_new_work(send)
        if scope["method"] != "POST":
            return await self._endpoint(scope, receive, send, headers, principal)
        body: bytes | Refusal | None = take_body(receive)
        if body is None:
            body = await self._gate.read_body(receive)
        if isinstance(body, Refusal):
            return await refuse(send, body.status, body.message, headers=body.headers)
        if body is None:
            return None  # the client left
        if _is_new_work(body):
            payload = messages.error(messages.find_id(body), CALL_FAILED, DRAINING)
            return await respond(send, 503, payload, (JSON, *AGAIN))
        unread = [body]

        async def receive_again() -> Event:
            return {"type": "http.request", "body": unread.pop()} if unread else await receive()

        return await self._endpoint(scope, receive_again, send, headers, principal)


async def refuse_new_work(send: Send) -> None:
    """Answer that another replica takes the request."""
    await refuse(send, 503, DRAINING, code=CALL_FAILED, headers=AGAIN)


def _is_new_work(body: bytes) -> bool:
    try:
        called = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False  # the endpoint says what is wrong with it
    return any(one.method in _NEW_WORK for one in (called if isinstance(called, list) else [called]))
