"""One WebSocket: bytes of a connection in, whole messages out, and the other way round; nothing about workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, cast

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from waypost.loops import running_loop
from waypost.workers.frames import MOST
from waypost.workers.framing import BYTES, TEXT, Splitter, head

_log: Final = logging.getLogger(__name__)
_wire_log: Final = _log.getChild("wire")
_wire_log.setLevel(logging.WARNING)  # it tells of every connection that opens and closes
_MOST_UNSENT: Final = 2 * MOST
_OPEN_WITHIN: Final = 10.0
_CLOSE_WITHIN: Final = 2.0
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

    def __init__(self, route: Route, all_of_them: set[Socket], most: int = MOST) -> None:
        self._route = route
        self._all = all_of_them
        self._ws = ServerProtocol(max_size=most, logger=_wire_log)
        self._frames = Splitter(most)
        self._unsent: list[bytes] = []
        self._receiver: Receiver | None = None
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._is_text = True
        self._is_writing = False
        self._timer: asyncio.TimerHandle | None = None
        self.heard = 0.0
        """When anything came last, by the loop's clock."""
        self.is_full = False
        """Whether enough waits to be read by the other side."""
        self.is_paused = False
        """Whether nothing is read for now."""
        self.drained: Callable[[], None] = lambda: None
        """Called when it is full no more."""

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self._ws.state is State.OPEN

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected; they have a moment to say what they want."""
        self._transport = cast("asyncio.Transport", transport)
        loop = running_loop()
        self.heard = loop.time()
        self._all.add(self)
        self._timer = loop.call_later(_OPEN_WITHIN, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Hand on every message that is whole by now."""
        self.heard = running_loop().time()
        receiver = self._receiver
        if receiver is None:
            # Who does not wait for the answer to the handshake is left to the library altogether.
            self._frames.is_lost = not data.endswith(_HANDSHAKE_END)
            self._ws.receive_data(data)
            self._take()
            return
        for is_text, frame in self._frames.feed(data):
            if not is_text:
                self._ws.receive_data(frame)
                self._take()
            elif self._parts:
                self.close(CloseCode.PROTOCOL_ERROR, "a message began before the last one ended")
            elif self.is_open:
                self._hand_on(receiver.text, frame)

    def eof_received(self) -> None:
        """The other side sends no more."""
        self._ws.receive_eof()
        self._take()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._all.discard(self)
        if self._timer is not None:
            self._timer.cancel()
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
            self._write()

    def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Say goodbye; a moment after that was read, the connection ends in any case."""
        if self._transport is None:
            return
        if self.is_open:
            self._ws.send_close(code, reason)
            self._write()
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
            self._transport.resume_reading()

    def _send(self, kind: int, data: bytes) -> None:
        if self._transport is not None and self.is_open:
            self._unsent.append(head(kind, len(data)))
            self._unsent.append(data)
            self._write()

    def _take(self) -> None:
        for event in self._ws.events_received():
            if type(event) is Frame:
                self._frame(event)
            elif isinstance(event, Request):
                self._open(event)
        self._write()
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

    def _write(self) -> None:
        """Have what is to be sent written, together with whatever else is sent in this turn of the loop."""
        if not self._is_writing and self._transport is not None:
            self._is_writing = True
            running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_writing = False
        transport = self._transport
        if transport is None:
            return
        others = self._ws.data_to_send()
        is_last = bool(others) and not others[-1]
        data = b"".join((*self._unsent, *others))
        self._unsent.clear()
        transport.write(data)
        if is_last:
            transport.close()
        elif transport.get_write_buffer_size() > _MOST_UNSENT:
            _log.warning("a worker does not read what is sent to it and is disconnected")
            transport.abort()

    def _end_soon(self) -> None:
        if self._timer is None and self._transport is not None:
            self._timer = running_loop().call_later(_CLOSE_WITHIN, self._end)

    def _end(self) -> None:
        """End the connection, unless the other side still has something to read; who never does is found out."""
        self._timer = None
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size():
            self._end_soon()
        else:
            self._transport.abort()
