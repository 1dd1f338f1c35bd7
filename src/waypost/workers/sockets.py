"""The worker socket: the port that workers connect to, and one WebSocket connection.

A socket turns bytes into whole messages and back, and knows nothing about workers. Whole text frames, which are nearly
all, are split and unmasked here; everything else goes through `websockets`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final, Protocol, TypeAlias
from urllib.parse import SplitResult, parse_qs, urlsplit

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from waypost.corked import CorkedTransport
from waypost.errors import WaypostError
from waypost.loops import running_loop
from waypost.wire.hosts import is_loopback
from waypost.workers.frames import MAX_MESSAGE_BYTES

try:
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask

TEXT: Final = 0x81
BYTES: Final = 0x82
"""The first byte of a whole message of its kind."""
_MASKED: Final = 0x80
_SHORT: Final = 126
_MEDIUM: Final = 65_536
_KEY: Final = 4
_CHUNK_BYTES: Final = 128
"""Bytes that are handed on in one go where nobody knows what they are."""


def frame_header(kind: int, length: int) -> bytes:
    """What stands before a whole message of so many bytes."""
    if length < _SHORT:
        return bytes((kind, length))
    if length < _MEDIUM:
        return bytes((kind, _SHORT)) + length.to_bytes(2, "big")
    return bytes((kind, _SHORT + 1)) + length.to_bytes(8, "big")


class FrameSplitter:
    """Puts the bytes of a connection together to frames."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()
        self._needed = 0
        """How many bytes there must be before another look is worth it."""
        self.is_lost = False
        """Whether a frame is against the rules; from there on everything is handed on as it comes."""

    def feed(self, data: bytes) -> Iterator[tuple[bool, bytes]]:
        """Every frame that is whole by now: a message of text, or, with false, a frame as it came."""
        if self._rest or self.is_lost:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest.clear()
        at = 0
        while at < len(data) and not self.is_lost and (found := self._next(data, at)) is not None:
            start, end = found
            if data[at] == TEXT:
                yield True, apply_mask(data[start:end], data[start - _KEY : start])
            else:
                yield False, data[at:end]
            at = end
        if self.is_lost:
            self._needed = 0
            yield from ((False, data[start : start + _CHUNK_BYTES]) for start in range(at, len(data), _CHUNK_BYTES))
        elif at < len(data):
            self._rest += data[at:]
            self._needed -= at

    def _next(self, data: bytes, at: int) -> tuple[int, int] | None:
        """Where the payload of the frame at a place begins and ends; nothing until all of it is there."""
        self._needed = at + 2
        if len(data) < self._needed:
            return None
        second = data[at + 1]
        length, start = second & 0x7F, at + 2
        if length >= _SHORT:
            size = 2 if length == _SHORT else 8
            self._needed = start + size
            if len(data) < self._needed:
                return None
            length, start = int.from_bytes(data[start : start + size], "big"), start + size
        if not second & _MASKED or length > self._most:
            self.is_lost = True
            return None
        end = start + _KEY + length
        self._needed = end
        return (start + _KEY, end) if len(data) >= end else None


_log: Final = logging.getLogger(__name__)
_wire_log: Final = _log.getChild("wire")
_wire_log.setLevel(logging.WARNING)  # it tells of every connection that opens and closes
_MAX_UNSENT_BYTES: Final = 2 * MAX_MESSAGE_BYTES
_LARGE_READ_BYTES: Final = 16 * 1024
"""Bytes that came at once from which on they are taken bit by bit, so that everybody else has a turn in between."""
_FRAMES_PER_TURN: Final = 64
"""How many frames such a bit has at most."""
_HANDSHAKE_TIMEOUT_S: Final = 10.0
_CLOSE_TIMEOUT_S: Final = 2.0
_HANDSHAKE_END: Final = b"\r\n\r\n"
_FRAMES: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


class Receiver(Protocol):
    """Whoever a socket belongs to."""

    def opened(self, socket: Socket) -> None:
        """It can be sent on."""

    def text(self, data: bytes) -> None:
        """A message of text came."""

    def binary(self, data: bytes) -> None:
        """A message of bytes came."""

    def closed(self) -> None:
        """Nothing comes any more."""


class Refusal(Exception):
    """Nobody answers there, or not to them; carries the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


Route: TypeAlias = Callable[[Request], Receiver]
"""Who a request for a socket is for; or a `Refusal`."""


class Socket(asyncio.Protocol):
    """The hub's end of one connection."""

    def __init__(self, route: Route, all_of_them: set[Socket], most: int = MAX_MESSAGE_BYTES) -> None:
        self._route = route
        self._all = all_of_them
        self._ws = ServerProtocol(max_size=most, logger=_wire_log)
        self._frames = FrameSplitter(most)
        self._receiver: Receiver | None = None
        self._transport: CorkedTransport | None = None
        self._parts: list[bytes] = []
        self._is_text = True
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: Iterator[tuple[bool, bytes]] | None = None
        self._turn: asyncio.Handle | None = None
        self._is_held = False
        self._unsent = 0
        self.is_open = False
        """Whether messages can be sent."""
        self.heard = 0.0
        """When anything came last, by the loop's clock."""
        self.is_full = False
        """Whether enough waits to be read by the other side."""
        self.is_paused = False
        """Whether nothing is read for now."""
        self.drained: Callable[[], None] = lambda: None
        """Called when it is full no more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected; they have a moment to say what they want."""
        loop = running_loop()
        self._transport = CorkedTransport(transport, loop, self._sent)
        self.heard = loop.time()
        self._all.add(self)
        self._timer = loop.call_later(_HANDSHAKE_TIMEOUT_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Hand on every message that is whole by now; when much came at once, a few of them in each turn."""
        self.heard = running_loop().time()
        if self._receiver is None:
            # Who does not wait for the answer to the handshake is left to the library altogether.
            self._frames.is_lost = len(data) >= _LARGE_READ_BYTES or not data.endswith(_HANDSHAKE_END)
            if not self._frames.is_lost:
                self._ws.receive_data(data)
                self._take()
                return
        found = self._frames.feed(data)
        if self._waiting is not None:
            self._waiting = chain(self._waiting, found)
        elif len(data) < _LARGE_READ_BYTES:
            self._sort(found)
        elif self._transport is not None:
            self._waiting = found
            self._transport.pause_reading()  # the loop would read on at once
            self._take_turn()

    def eof_received(self) -> None:
        """The other side sends no more."""
        self._ws.receive_eof()
        self._take()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._all.discard(self)
        for handle in (self._timer, self._turn):
            if handle is not None:
                handle.cancel()
        self._waiting = None
        self._ws.receive_eof()
        self._transport = None
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.closed()

    def pause_writing(self) -> None:
        """Enough waits to be read."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Most was read."""
        self.is_full, self.heard = False, running_loop().time()
        if self._is_held:
            self._is_held = False
            self._read_on()
        self.drained()

    def send(self, data: bytes) -> None:
        """Send a message of text; one for somebody who is gone is lost, and who does not read is let go."""
        self._send(TEXT, data)

    def send_bytes(self, data: bytes) -> None:
        """Send a message of bytes, as `send` does."""
        self._send(BYTES, data)

    def ping(self) -> None:
        """Make the other side say that it is there."""
        if self._transport is not None and self.is_open:
            self._ws.send_ping(b"")
            self._flush()

    def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Say goodbye; a moment after that was read, the connection ends in any case."""
        if self._transport is None:
            return
        if self.is_open:
            self._ws.send_close(code, reason)
            self._flush()
        self._end_soon()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Read nothing more for now."""
        self.is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.is_paused and self._transport is not None:
            self.is_paused, self.heard = False, running_loop().time()
            self._read_on()

    def hold(self) -> None:
        """Read nothing more until the other side has read most of what waits for it, if that is much."""
        if self.is_full and self._transport is not None:
            self._is_held = True
            self._transport.pause_reading()

    def silence(self, now: float) -> float:
        """Seconds since it was seen that the other side is there; none while nobody listens to it."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if unsent < self._unsent:  # it reads, however slowly
            self.heard = now
        self._unsent = unsent
        return 0.0 if self.is_paused else now - self.heard

    def _read_on(self) -> None:
        if self._turn is None:
            self._turn = running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Hand on a few more of the frames that came at once, or read on when there are none."""
        self._turn = None
        if self._transport is None or self.is_paused or self._is_held:
            return
        if self._waiting is None:
            self._transport.resume_reading()
            return
        frames = list(islice(self._waiting, _FRAMES_PER_TURN))
        if len(frames) < _FRAMES_PER_TURN:
            self._waiting = None
        self._sort(frames)
        self._read_on()

    def _sort(self, frames: Iterable[tuple[bool, bytes]]) -> None:
        receiver = self._receiver
        for is_text, frame in frames:
            if not is_text:
                self._ws.receive_data(frame)
                self._take()
            elif self._parts:
                self.close(CloseCode.PROTOCOL_ERROR, "a message began before the last one ended")
            elif self.is_open and receiver is not None:
                self._hand_on(receiver.text, frame)

    def _send(self, kind: int, data: bytes) -> None:
        if self._transport is not None and self.is_open:
            self._transport.write_message(frame_header(kind, len(data)) + data)

    def _sent(self) -> None:
        if self._transport is not None and self._transport.get_write_buffer_size() > _MAX_UNSENT_BYTES:
            _log.warning("a worker does not read what is sent to it and is disconnected")
            self.abort()

    def _take(self) -> None:
        for event in self._ws.events_received():
            if type(event) is Frame:
                self._frame(event)
            elif isinstance(event, Request):
                self._open(event)
        self._flush()
        if self._ws.close_expected():
            self._end_soon()

    def _open(self, request: Request) -> None:
        try:
            receiver = self._route(request)
        except Refusal as refusal:
            response = self._ws.reject(refusal.status, f"{refusal.message}\n")
            receiver = None
        else:
            response = self._ws.accept(request)
        self._ws.send_response(response)
        self._flush()
        if receiver is not None and self.is_open:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._receiver = receiver
            try:
                receiver.opened(self)
            except Exception:
                _log.exception("a worker was not let in")

    def _frame(self, frame: Frame) -> None:
        opcode = frame.opcode
        if opcode not in _FRAMES or self._receiver is None:
            return
        if opcode is not Opcode.CONT:
            self._is_text = opcode is Opcode.TEXT
        if not frame.fin:
            self._parts.append(bytes(frame.data))
            return
        data = bytes(frame.data)
        if self._parts:
            data = b"".join((*self._parts, data))
            self._parts.clear()
        self._hand_on(self._receiver.text if self._is_text else self._receiver.binary, data)

    def _hand_on(self, take: Callable[[bytes], None], data: bytes) -> None:
        try:
            take(data)
        except Exception:
            _log.exception("a message of a worker was not understood")

    def _flush(self) -> None:
        """Send what the library has to say; an empty piece is its way to say that nothing follows."""
        self.is_open = self._ws.state is State.OPEN
        if self._transport is None:
            return
        for data in self._ws.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()

    def _end_soon(self) -> None:
        if self._timer is None and self._transport is not None:
            self._timer = running_loop().call_later(_CLOSE_TIMEOUT_S, self._end)

    def _end(self) -> None:
        """End the connection, unless the other side still has something to read; who never does is found out."""
        self._timer = None
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size():
            self._end_soon()
        else:
            self._transport.abort()


_CHECK_INTERVAL_S: Final = 10.0
_PING_AFTER_S: Final = 20.0
_SILENCE_TIMEOUT_S: Final = 60.0
_MAX_SOCKETS: Final = 20_000
_PLACES: Final = ("/ws/channels/", "/otel")

Channel: TypeAlias = Callable[[SplitResult], Receiver]
"""Who the end of a channel is for."""


class TelemetrySink:
    """Accepts the telemetry of workers and discards it."""

    def opened(self, socket: Socket) -> None:
        """Telemetry will follow."""

    def text(self, data: bytes) -> None:
        """Discard it."""

    def binary(self, data: bytes) -> None:
        """Discard it."""

    def closed(self) -> None:
        """Nothing to release."""


class Port:
    """Listens at one address, and closes sockets that have gone silent."""

    def __init__(self, host: str, port: int, token: str, desk: Callable[[], Receiver], channel: Channel) -> None:
        if is_open_to_all(host, token):
            raise WaypostError(
                f"Workers can reach {host} from outside and need no token; set workers.token, or listen on 127.0.0.1."
            )
        self._host = host
        self._port = port
        self._token = token
        self._desk = desk
        self._channel = channel
        self._sockets: set[Socket] = set()
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def address(self) -> str | None:
        """Where workers connect to, once it is open."""
        if self._server is None or not self._server.sockets:
            return None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"ws://[{host}]:{port}" if ":" in host else f"ws://{host}:{port}"

    async def open(self) -> None:
        """Begin to listen; a port that is taken is an error in one sentence."""
        if self._server is not None:
            return
        loop = running_loop()
        try:
            self._server = await loop.create_server(self._accept, self._host, self._port, backlog=1024)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            raise WaypostError(f"Cannot listen for workers on {self._host}:{self._port}: {reason}.") from None
        self._watching = loop.create_task(self._watch())

    async def close(self) -> None:
        """Close all sockets and stop listening."""
        if self._server is None:
            return
        self._server.close()
        if self._watching is not None:
            self._watching.cancel()
        for socket in list(self._sockets):
            socket.close(1001, "the hub stops")
        for _ in range(20):
            if not self._sockets:
                break
            await asyncio.sleep(0.05)
        for socket in list(self._sockets):
            socket.abort()
        self._server = None

    def _accept(self) -> Socket:
        return Socket(self._route, self._sockets)

    def _route(self, request: Request) -> Receiver:
        url = urlsplit(repair_path(request.path))
        self._refuse_pages(request)
        if len(self._sockets) > _MAX_SOCKETS:
            raise Refusal(503, f"There are {_MAX_SOCKETS} connections already.")
        place = url.path.rstrip("/")
        if "/ws/channels/" in place:
            return self._channel(url)
        self._refuse_strangers(request, url.query)
        if place.endswith("/otel"):
            return TelemetrySink()
        return self._desk()

    def _refuse_pages(self, request: Request) -> None:
        """Refuse browsers, except pages served from this machine."""
        for origin in request.headers.get_all("Origin"):
            if not is_loopback(urlsplit(origin).hostname or ""):
                raise Refusal(403, "Pages from elsewhere are not let in.")

    def _refuse_strangers(self, request: Request, query: str) -> None:
        if not self._token:
            return
        said = (header.partition(" ") for header in request.headers.get_all("Authorization"))
        shown = [token.strip() for scheme, _, token in said if scheme.lower() == "bearer"]
        shown += parse_qs(query).get("token", [])
        if not any(hmac.compare_digest(one.encode(), self._token.encode()) for one in shown):
            raise Refusal(401, "A token is needed: Authorization: Bearer <token>, or III_TOKEN for the SDKs.")

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


def is_open_to_all(host: str, token: str) -> bool:
    """Whether workers on other machines could connect without a token."""
    return not is_loopback(host) and not token


def repair_path(path: str) -> str:
    """A path as it was meant: some workers put `/otel` behind an address that ends in `?token=...`."""
    base, _, query = path.partition("?")
    for place in _PLACES:
        before, found, after = query.partition(place)
        if found:
            tail, _, more = after.partition("?")
            return f"{base.rstrip('/')}{place}{tail}?{before}&{more}"
    return path
