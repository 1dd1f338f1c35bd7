"""The socket to a skill's process, as the hub sees it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, cast

import msgspec

from waypost.loops import running_loop
from waypost.skills.child.messages import HEAD, SLACK, FromChild, FromHub, encode, framed
from waypost.skills.crashes import ProcessEnded

_MOST_UNREAD: Final = 64
_decoder: Final[msgspec.json.Decoder[FromChild]] = msgspec.json.Decoder(FromChild)


class Connection(asyncio.Protocol):
    """Messages out and in; one at a time waits for the next."""

    def __init__(self, largest: int) -> None:
        self._largest = largest + SLACK
        self._buffer = bytearray()
        self._inbox: deque[FromChild] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take messages out of what came; nonsense ends the connection."""
        self._buffer += data
        try:
            while (body := self._next_body()) is not None:
                self._inbox.append(_decoder.decode(body))
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            self.close(ProcessEnded(f"the skill's process sent a message that cannot be read: {error}"))
        if len(self._inbox) > _MOST_UNREAD and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def _next_body(self) -> bytes | None:
        if len(self._buffer) < HEAD:
            return None
        size = int.from_bytes(self._buffer[:HEAD], "big")
        if size > self._largest:
            raise ValueError(f"it has {size} bytes")
        if len(self._buffer) < HEAD + size:
            return None
        body = bytes(self._buffer[HEAD : HEAD + size])
        del self._buffer[: HEAD + size]
        return body

    def connection_lost(self, exc: Exception | None) -> None:
        """The process is gone, or has closed its end."""
        self.fail(exc or EOFError())

    @property
    def is_open(self) -> bool:
        """Whether the process can be talked to."""
        return self._error is None

    def send(self, message: FromHub) -> None:
        """Send a message."""
        if self._error is None and self._transport is not None:
            self._transport.write(framed(encode(message)))

    async def receive(self) -> FromChild:
        """The next message; raises what the connection failed with when there is none."""
        while not self._inbox:
            if self._error is not None:
                raise self._error
            self._waiter = running_loop().create_future()
            await self._waiter
        message = self._inbox.popleft()
        self._read_on()
        return message

    def forget(self) -> None:
        """Drop messages that came when nobody waited for any."""
        self._inbox.clear()
        self._read_on()

    def _read_on(self) -> None:
        if self._is_paused and self._transport is not None and len(self._inbox) <= _MOST_UNREAD:
            self._is_paused = False
            self._transport.resume_reading()

    def fail(self, error: BaseException) -> None:
        """Let whoever waits for a message have this instead."""
        if self._error is None:
            self._error = error
        self._wake()

    def close(self, error: BaseException) -> None:
        """End the connection."""
        self.fail(error)
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
