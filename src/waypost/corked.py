"""A transport that sends what is written in one turn of the event loop with one system call, like `TCP_CORK`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class CorkedTransport:
    """Holds writes back until the end of the loop's turn; everything else is the transport's own."""

    def __init__(
        self, transport: Any, loop: asyncio.AbstractEventLoop, sent: Callable[[], None] = lambda: None
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._sent = sent
        self._held: list[bytes] = []
        self._is_scheduled = False
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Send at the end of the turn, together with what follows; `sent` is called then."""
        self._schedule()
        self._held.append(data)

    def write_whole(self, data: bytes) -> None:
        """Send at once a message that nothing follows in this turn, unless others are held back before it."""
        if self._held:
            self._held.append(data)
        else:
            self._transport.write(data)

    def write_message(self, data: bytes) -> None:
        """Send the first message of a turn at once, for its latency, and all others together; `sent` is called then."""
        if self._is_scheduled:
            self._held.append(data)
        else:
            self._schedule()
            self._transport.write(data)

    def close(self) -> None:
        """Send what is held back, then close."""
        self._send()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """How many bytes were written and not handed to the operating system."""
        size: int = self._transport.get_write_buffer_size()
        return size + sum(map(len, self._held))

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_scheduled = False
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self._transport.write(data)
        self._sent()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
