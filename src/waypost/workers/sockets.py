"""The worker socket: the port that workers connect to, and one WebSocket connection.

A socket turns bytes into whole messages and back, and knows nothing about workers. Whole text frames, which are nearly
all, are split and unmasked here, because that is several times faster; everything else goes through `websockets`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final, TypeAlias
from urllib.parse import SplitResult, parse_qs, urlsplit

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from waypost.errors import WaypostError
from waypost.loops import CorkedTransport, running_loop
from waypost.settings import Limits, Workers, is_loopback
from waypost.transports.http.pending import PendingRequests, encode_refusal, headers_too_large
from waypost.workers.frames import MAX_MESSAGE_BYTES

try:
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask

_log: Final = logging.getLogger(__name__)
_library_log: Final = _log.getChild("wire")
_library_log.setLevel(logging.WARNING)  # the library logs every connection that opens and closes

TEXT: Final = 0x81
BYTES: Final = 0x82
"""The first byte of a frame that is a whole message."""
_MASKED: Final = 0x80
_LENGTH_IN_2_BYTES: Final = 126
_LENGTH_IN_8_BYTES: Final = 127
_MASK_BYTES: Final = 4
_CHUNK_BYTES: Final = 128
"""The size of the pieces that are passed on after an invalid frame."""
_MAX_UNSENT_BYTES: Final = 2 * MAX_MESSAGE_BYTES
_LARGE_READ_BYTES: Final = 16 * 1024
"""A read of this size or more is handled in several turns of the event loop."""
_FRAMES_PER_TURN: Final = 16
_BYTES_PER_TURN: Final = 32 * 1024
"""Frames beyond this size in all wait for the next turn: what they ask for takes longer than reading them."""
_OWN_TURN_BYTES: Final = 256 * 1024
"""A message of this size or more is not handled in the turn in which it is put together, which takes about as long."""
_CLOSE_TIMEOUT_S: Final = 2.0
_HANDSHAKE_END: Final = b"\r\n\r\n"
_CHECK_INTERVAL_S: Final = 10.0
_REFUSAL_INTERVAL_S: Final = 10.0
"""How often refused tokens are logged and recorded, with their number."""
_PING_AFTER_S: Final = 20.0
_SILENCE_TIMEOUT_S: Final = 60.0
_MAX_SOCKETS: Final = 20_000


def frame_header(kind: int, length: int) -> bytes:
    """The bytes in front of a whole message of this length."""
    if length < _LENGTH_IN_2_BYTES:
        return bytes((kind, length))
    if length < 1 << 16:
        return bytes((kind, _LENGTH_IN_2_BYTES)) + length.to_bytes(2, "big")
    return bytes((kind, _LENGTH_IN_8_BYTES)) + length.to_bytes(8, "big")


class FrameSplitter:
    """Splits the bytes of a connection into frames."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        # A large frame arrives in many reads; its beginning is parsed again only when all of it can be there.
        self._needed = 0
        self.is_lost = False
        """Whether a frame was invalid; from there on all bytes are passed on as they are."""
        self.has_large_rest = False
        """Whether the frame that is not complete yet is a large one."""

    def feed(self, data: bytes | bytearray) -> Iterator[tuple[bool, bytes]]:
        """Yield each complete frame: true and the text of a message, or false and the frame as it came."""
        pieces: bytes | bytearray | memoryview = data
        if self._rest or self.is_lost:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            # Looked at where it is: with a copy of all bytes and one of the payload, a large frame of which the
            # unmasked text is made would be in memory four times.
            data, self._rest = self._rest, bytearray()
            pieces = memoryview(data)
            self.has_large_rest = False
        at = 0
        while at < len(data) and not self.is_lost and (found := self._find_payload(data, at)) is not None:
            start, end = found
            if data[at] == TEXT:
                yield True, apply_mask(pieces[start:end], data[start - _MASK_BYTES : start])
            else:
                yield False, bytes(pieces[at:end])
            at = end
        if self.is_lost:
            self._needed = 0
            for start in range(at, len(data), _CHUNK_BYTES):
                yield False, bytes(pieces[start : start + _CHUNK_BYTES])
        elif at < len(data):
            self._rest += data[at:]
            self._needed -= at
            self.has_large_rest = self._needed >= _LARGE_READ_BYTES

    def _find_payload(self, data: bytes | bytearray, at: int) -> tuple[int, int] | None:
        """Where the payload of the frame at a position begins and ends; nothing until all of it is there."""
        self._needed = at + 2
        if len(data) < self._needed:
            return None
        second = data[at + 1]
        length, start = second & 0x7F, at + 2
        if length >= _LENGTH_IN_2_BYTES:
            size = 2 if length == _LENGTH_IN_2_BYTES else 8
            self._needed = start + size
            if len(data) < self._needed:
                return None
            length, start = int.from_bytes(data[start : start + size], "big"), start + size
        # A client must mask every frame, so that it cannot write bytes of its choice that a proxy takes for HTTP. What
        # breaks that rule goes through the library, which closes the connection with the right code.
        if not second & _MASKED or length > self._max_bytes:
            self.is_lost = True
            return None
        end = start + _MASK_BYTES + length
        self._needed = end
        return (start + _MASK_BYTES, end) if len(data) >= end else None


class ReadQueue:
    """The frames of one connection that wait to be handled, a few in each turn of the event loop.

    A worker that sends a lot at once would otherwise keep the loop busy until its last frame is handled. The transport
    does not read meanwhile: it would read the next piece before other connections have had their turn.
    """

    def __init__(self, handle: Callable[[Iterable[tuple[bool, bytes]]], None]) -> None:
        self._handle = handle
        self._frames: Iterator[tuple[bool, bytes]] | None = None
        self._taken: list[tuple[bool, bytes]] = []
        """The frames that are handled in the next turn, before others are taken."""
        self._turn: asyncio.Handle | None = None
        self.transport: CorkedTransport | None = None
        self.is_paused = False
        """Whether the owner of the socket wants to receive nothing for now."""
        self.is_held = False
        """Whether nothing is handled until the other side has read what it was sent."""
        self.is_empty = True
        """Whether new frames may be handled at once."""

    def put(self, frames: Iterator[tuple[bool, bytes]]) -> None:
        """Add frames; those that wait already come first."""
        if self._frames is not None:
            self._frames = chain(self._frames, frames)
        elif self.transport is not None:
            self._frames, self.is_empty = frames, False
            self.transport.pause_reading()
            self._take_turn()

    def read_on(self) -> None:
        """Go on in the next turn of the loop."""
        if self._turn is None:
            self._turn = running_loop().call_soon(self._take_turn)

    def close(self) -> None:
        """Drop what waits."""
        self._frames = self.transport = None
        self._taken.clear()
        if self._turn is not None:
            self._turn.cancel()

    def _take_turn(self) -> None:
        self._turn = None
        if self.transport is None or self.is_paused or self.is_held:
            return
        if self._taken:
            taken, self._taken = self._taken, []
            self.is_empty = self._frames is None
            self._handle(taken)
            self.read_on()
            return
        if self._frames is None:
            self.transport.resume_reading()
            return
        frames, room = [], _BYTES_PER_TURN
        for frame in islice(self._frames, _FRAMES_PER_TURN):
            frames.append(frame)
            room -= len(frame[1])
            if room <= 0:
                break
        # The loop was not left early: with fewer frames than a turn takes, the iterator has no more.
        else:
            if len(frames) < _FRAMES_PER_TURN:
                self._frames = None
        if room <= _BYTES_PER_TURN - _OWN_TURN_BYTES:
            self._taken = frames
        else:
            self.is_empty = self._frames is None
            self._handle(frames)
        self.read_on()


class Receiver:
    """The owner of a socket; by itself it discards everything, as the telemetry of workers is."""

    def on_open(self, socket: Socket) -> None:
        """The socket can be sent on."""

    def on_text(self, data: bytes) -> None:
        """A text message arrived."""

    def on_binary(self, data: bytes) -> None:
        """A binary message arrived."""

    def on_close(self) -> None:
        """The connection is closed."""


class Refusal(Exception):
    """A request for a socket is refused with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


_NORMAL_CODES: Final = (CloseCode.NORMAL_CLOSURE, CloseCode.NO_STATUS_RCVD)

Route: TypeAlias = Callable[[Request, str], Receiver]
"""Finds the receiver for a request of an address, or raises `Refusal`."""


class Socket(asyncio.Protocol):
    """The hub's end of one connection."""

    def __init__(self, route: Route, sockets: set[Socket], pending: PendingRequests) -> None:
        self._route = route
        self._sockets = sockets
        self._pending = pending
        self._ws = ServerProtocol(max_size=MAX_MESSAGE_BYTES, logger=_library_log)
        self._splitter = FrameSplitter(MAX_MESSAGE_BYTES)
        self._queue = ReadQueue(self._handle_frames)
        self._fragments: list[Frame] = []
        self._receiver: Receiver | None = None
        self._transport: CorkedTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._last_seen = 0.0
        self.is_open = False
        """Whether messages can be sent."""
        self.is_full = False
        """Whether the other side has a lot to read already."""
        self.on_drain: Callable[[], None] = lambda: None
        """Called when it is no longer full."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait a moment for the handshake."""
        loop = running_loop()
        self._transport = self._queue.transport = CorkedTransport(transport, loop, self._check_unsent)
        self._last_seen = loop.time()
        self._sockets.add(self)
        self._pending.add(self, self._pending.header_timeout)

    @property
    def peer(self) -> str:
        """The address of the worker's machine."""
        return "" if self._transport is None else str(self._transport.get_extra_info("peername")[0])

    def time_out(self) -> None:
        """The handshake did not come in time."""
        self.abort()

    def data_received(self, data: bytes) -> None:
        """Pass on every message that is complete; a large read is handled in several turns of the loop."""
        self._last_seen = running_loop().time()
        is_large = len(data) >= _LARGE_READ_BYTES
        if self._receiver is None:
            end = data.find(_HANDSHAKE_END)
            is_too_large = self._pending.count(self, len(data) if end < 0 else end)
            if is_too_large and self._transport is not None:
                self._transport.write(encode_refusal(431, headers_too_large(self._pending.max_header_bytes)))
                self._transport.close()
                return
            # The splitter does not know where the handshake ends. If frames follow it in the same read, all bytes of
            # the connection go through the library, in chunks, as after an invalid frame.
            self._splitter.is_lost = is_large or not data.endswith(_HANDSHAKE_END)
            if not self._splitter.is_lost:
                self._feed_library(data)
                return
        splitter = self._splitter
        is_large = is_large or splitter.has_large_rest  # the last piece of a large frame may be a small read
        frames = splitter.feed(data)
        if is_large or not self._queue.is_empty:
            self._queue.put(frames)
        else:
            self._handle_frames(frames)

    def eof_received(self) -> None:
        """The other side has stopped sending."""
        self._ws.receive_eof()
        self._handle_events()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything."""
        self._sockets.discard(self)
        self._pending.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._queue.close()
        self._ws.receive_eof()
        self._transport, self.is_open = None, False
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.on_close()

    def pause_writing(self) -> None:
        """Called by the transport when its buffer is full."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Called by the transport when the other side has read most of its buffer."""
        self.is_full, self._last_seen = False, running_loop().time()
        if self._queue.is_held:
            self._queue.is_held = False
            self._queue.read_on()
        self.on_drain()

    def send(self, data: bytes) -> None:
        """Send a text message; it is lost if the connection is closed, and too much unread data closes it."""
        self._send(TEXT, data)

    def send_bytes(self, data: bytes) -> None:
        """Send a binary message, as `send` does."""
        self._send(BYTES, data)

    def ping(self) -> None:
        """Make the other side answer."""
        if self.is_open:
            self._ws.send_ping(b"")
            self._flush()

    @property
    def is_lost(self) -> bool:
        """Whether the connection ended without a word of the other side, as when its process was killed."""
        received = self._ws.close_rcvd
        return received is None or received.code not in _NORMAL_CODES

    def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Close the connection; it is aborted if the other side does not answer in time."""
        if self.is_open:
            self._ws.send_close(code, reason)
            self._flush()
        self._abort_later()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Receive nothing until `resume`."""
        self._queue.is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Receive again."""
        if self._queue.is_paused and self._transport is not None:
            self._queue.is_paused, self._last_seen = False, running_loop().time()
            self._queue.read_on()

    def hold(self) -> None:
        """Receive nothing until the other side has read most of what it was sent, if that is a lot.

        Called for requests, whose answers would pile up. Results of calls must not be held: with two workers that call
        each other and both full, each would wait for the other forever.
        """
        if self.is_full and self._transport is not None:
            self._queue.is_held = True
            self._transport.pause_reading()

    def silence(self, now: float) -> float:
        """Seconds since the other side last showed a sign of life; 0 while the socket is paused."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if unsent < self._unsent:  # it reads, however slowly
            self._last_seen = now
        self._unsent = unsent
        return 0.0 if self._queue.is_paused else now - self._last_seen

    def _handle_frames(self, frames: Iterable[tuple[bool, bytes]]) -> None:
        receiver = self._receiver
        for is_text, frame in frames:
            if not is_text:
                self._feed_library(frame)
            # The library has not seen this frame, so that it cannot notice the broken sequence.
            elif self._fragments:
                self.close(CloseCode.PROTOCOL_ERROR, "a message began before the last one ended")
            elif self.is_open and receiver is not None:
                self._pass_on(receiver.on_text, frame)

    def _feed_library(self, data: bytes) -> None:
        self._ws.receive_data(data)
        self._handle_events()

    def _handle_events(self) -> None:
        for event in self._ws.events_received():
            if type(event) is Frame:
                self._handle_library_frame(event)
            elif isinstance(event, Request):
                self._answer_handshake(event)
        self._flush()
        if self._ws.close_expected():
            self._abort_later()

    def _answer_handshake(self, request: Request) -> None:
        receiver = None
        try:
            receiver = self._route(request, self.peer)
            response = self._ws.accept(request)
        except Refusal as refusal:
            response = self._ws.reject(refusal.status, f"{refusal.message}\n")
        self._ws.send_response(response)
        self._flush()
        if receiver is not None and self.is_open:
            self._pending.discard(self)
            self._receiver = receiver
            try:
                receiver.on_open(self)
            except Exception:
                _log.exception("a worker could not be accepted")

    def _handle_library_frame(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT) or self._receiver is None:
            return
        self._fragments.append(frame)
        if frame.fin:
            fragments, self._fragments = self._fragments, []
            is_text = fragments[0].opcode is Opcode.TEXT
            handle = self._receiver.on_text if is_text else self._receiver.on_binary
            self._pass_on(handle, b"".join(bytes(one.data) for one in fragments))

    def _pass_on(self, handle: Callable[[bytes], None], data: bytes) -> None:
        try:
            handle(data)
        # An exception that reached asyncio would close the connection, and with it end all calls of the worker.
        except Exception:
            _log.exception("a message of a worker could not be handled")

    def _send(self, kind: int, data: bytes) -> None:
        if self._transport is not None and self.is_open:
            self._transport.write_message(frame_header(kind, len(data)) + data)

    def _check_unsent(self) -> None:
        if self._transport is not None and self._transport.get_write_buffer_size() > _MAX_UNSENT_BYTES:
            _log.warning("a worker does not read what is sent to it and is disconnected")
            self.abort()

    def _flush(self) -> None:
        """Send what the library wants to send."""
        self.is_open = self._ws.state is State.OPEN and self._transport is not None
        if self._transport is None:
            return
        for data in self._ws.data_to_send():
            if data:
                self._transport.write(data)
            else:  # the library's sign that nothing follows
                self._transport.close()

    def _abort_later(self) -> None:
        """Abort the connection soon, but not while the other side still reads."""
        if self._timer is None and self._transport is not None:
            self._timer = running_loop().call_later(_CLOSE_TIMEOUT_S, self._abort_if_sent)

    def _abort_if_sent(self) -> None:
        self._timer = None
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._abort_later()  # `Port` disconnects a worker that never reads
        else:
            self.abort()


class RefusedTokens:
    """Reports refused tokens, many as one: workers try again every few seconds, and a flood may not fill the audit."""

    def __init__(self) -> None:
        self.record: Callable[[str, str], None] = lambda _peer, _reason: None
        """Gets the address that sent the last one, and what happened."""
        self._count = 0
        self._reported_at = -math.inf
        self._last = ("", "")

    def add(self, peer: str, problem: str) -> None:
        """Count a refused token, and report it unless there was a report a moment ago."""
        self._count += 1
        self._last = (peer, problem)
        if running_loop().time() >= self._reported_at + _REFUSAL_INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Report what was counted."""
        if not self._count:
            return
        peer, problem = self._last
        _log.warning(
            "worker connections were refused for their token: count=%d, last had %s (%s); workers send it as III_TOKEN",
            *(self._count, problem, peer),
        )
        self.record(peer, problem if self._count == 1 else f"{problem}; {self._count} since the last record")
        self._count, self._reported_at = 0, running_loop().time()


class Port:
    """Listens at one address, and closes sockets that have gone silent."""

    def __init__(
        self,
        settings: Workers,
        is_token_needed: Callable[[], bool],
        open_session: Callable[[str], Receiver],
        open_channel: Callable[[SplitResult], Receiver],
        limits: Limits | None,
    ) -> None:
        if is_open_to_all(settings):
            raise WaypostError(
                f"Workers can reach {settings.host} from outside and need no token; set workers.token, "
                "or listen on 127.0.0.1."
            )
        self._settings = settings
        self.refused_tokens = RefusedTokens()
        self._is_token_needed = is_token_needed
        self.made_token = ""
        """The token that workers share where the settings name none; nothing matches an empty one."""
        self._open_session = open_session
        self._open_channel = open_channel
        self._sockets: set[Socket] = set()
        self._pending = PendingRequests(limits)
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def address(self) -> str | None:
        """The URL that workers connect to, while it is open."""
        if self._server is None or not self._server.sockets:
            return None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"ws://[{host}]:{port}" if ":" in host else f"ws://{host}:{port}"

    @property
    def needs_token(self) -> bool:
        """Whether workers need a token."""
        return bool(self._settings.token or self._settings.tokens) or self._is_token_needed()

    async def open(self) -> None:
        """Start to listen; `WaypostError` if the port is taken."""
        if self._server is not None:
            return
        loop, host, port = running_loop(), self._settings.host, self._settings.port
        try:
            self._server = await loop.create_server(
                lambda: Socket(self._route, self._sockets, self._pending), host, port, backlog=1024
            )
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            raise WaypostError(f"Cannot listen for workers on {host}:{port}: {reason}.") from None
        self._watching = loop.create_task(self._watch())

    def stop_listening(self) -> None:
        """Accept no further connection."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Close all sockets and stop listening."""
        if self._server is None:
            return
        self._server.close()
        if self._watching is not None:
            self._watching.cancel()
        for socket in list(self._sockets):
            socket.close(1001, "the hub stops")
        for _ in range(20):  # a second for the closing handshakes; a worker that hangs does not hold up the hub
            if not self._sockets:
                break
            await asyncio.sleep(0.05)
        for socket in list(self._sockets):
            socket.abort()
        self.refused_tokens.flush()
        self._server = None

    def _route(self, request: Request, peer: str) -> Receiver:
        url = urlsplit(repair_path(request.path))
        # Browsers send WebSocket requests to any address without asking it first, loopback included. Only the origin
        # tells a page of another host from a program on this machine.
        for origin in request.headers.get_all("Origin"):
            if not is_loopback(urlsplit(origin).hostname or ""):
                raise Refusal(403, "Web pages of other hosts may not connect.")
        if len(self._sockets) > _MAX_SOCKETS:
            raise Refusal(503, f"There are {_MAX_SOCKETS} connections already.")
        path = url.path.rstrip("/")
        if "/ws/channels/" in path:
            return self._open_channel(url)  # the key of the channel takes the place of the token
        name = self._authenticate(request, url.query, peer)
        return Receiver() if path.endswith("/otel") else self._open_session(name)

    def _authenticate(self, request: Request, query: str, peer: str) -> str:
        """The name that the token of a request proves; empty for the token that all workers share, or without one."""
        headers = (header.partition(" ") for header in request.headers.get_all("Authorization"))
        given = [token.strip() for scheme, _, token in headers if scheme.lower() == "bearer"]
        given += parse_qs(query).get("token", [])
        # Tokens of one worker come first: with one of them a worker has its name, whatever else it sends.
        for name, token in self._settings.tokens.items():
            if _is_among(token, given):
                return name
        if self.needs_token and not _is_among(self._settings.token or self.made_token, given):
            self.refused_tokens.add(peer, "a wrong token" if given else "no token")
            raise Refusal(401, "A token is needed: Authorization: Bearer <token>, or III_TOKEN for the SDKs.")
        return ""

    async def _watch(self) -> None:
        """Ping silent sockets, and abort those that do not answer."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            now = running_loop().time()
            for socket in list(self._sockets):
                silent = socket.silence(now)
                if silent > _SILENCE_TIMEOUT_S:
                    socket.abort()
                elif silent > _PING_AFTER_S:
                    socket.ping()


def _is_among(token: str, given: list[str]) -> bool:
    # In constant time, so that a token cannot be guessed piece by piece; an empty one matches nothing.
    return bool(token) and any(hmac.compare_digest(one.encode(), token.encode()) for one in given)


def is_open_to_all(settings: Workers) -> bool:
    """Whether workers on other machines could connect without a token that the operator gave them."""
    return not is_loopback(settings.host) and not (settings.token or settings.tokens)


def repair_path(path: str) -> str:
    """The path that a worker meant: some append `/otel` to an address that ends in `?token=...`."""
    base, _, query = path.partition("?")
    for place in ("/ws/channels/", "/otel"):
        before, found, after = query.partition(place)
        if found:
            tail, _, more = after.partition("?")
            return f"{base.rstrip('/')}{place}{tail}?{before}&{more}"
    return path
