"""A WebSocket client that does as little as possible, so that a generator measures the server and not itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

_UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_NO_MASK = b"\x00\x00\x00\x00"
_SHORT = 126
_MEDIUM = 65_536


class FastSocket(asyncio.Protocol):
    """Hands every message to `take`; sends with a mask of zeros, which leaves the bytes as they are."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.take = take
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self._rest = b""
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError("the socket was not opened"))

    def send(self, message: bytes) -> None:
        self.transport.write(_head(len(message)) + message)

    def send_together(self, messages: list[bytes]) -> None:
        """Send messages in one write."""
        self.transport.write(b"".join(_head(len(message)) + message for message in messages))

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        if not self._is_open:
            head, found, data = data.partition(b"\r\n\r\n")
            if not found:
                self._rest = head
                return
            if b" 101 " not in head:
                self.opened.set_exception(ConnectionError(head.decode()[:80]))
                return
            self._is_open = True
            self.opened.set_result(None)
        at = 0
        while (frame := _frame(data, at)) is not None:
            start, at = frame
            if start < at:
                self.take(data[start:at])
        self._rest = data[at:]


def _head(length: int) -> bytes:
    if length < _SHORT:
        return bytes((0x81, 0x80 | length)) + _NO_MASK
    if length < _MEDIUM:
        return b"\x81\xfe" + length.to_bytes(2, "big") + _NO_MASK
    return b"\x81\xff" + length.to_bytes(8, "big") + _NO_MASK


def _frame(data: bytes, at: int) -> tuple[int, int] | None:
    """Where the payload of the next frame begins and ends, once it is there."""
    if len(data) < at + 2:
        return None
    length, start = data[at + 1] & 0x7F, at + 2
    if length >= _SHORT:
        size = 2 if length == _SHORT else 8
        if len(data) < start + size:
            return None
        length, start = int.from_bytes(data[start : start + size], "big"), start + size
    return (start, start + length) if len(data) >= start + length else None


async def connect(port: int, take: Callable[[bytes], None], path: str = "/") -> FastSocket:
    """A socket to 127.0.0.1, ready to send."""
    loop = asyncio.get_running_loop()
    transport, socket = await loop.create_connection(lambda: FastSocket(take), "127.0.0.1", port)
    transport.write(_UPGRADE.format(path=path, port=port).encode())
    await asyncio.wait_for(socket.opened, 10)
    return socket
