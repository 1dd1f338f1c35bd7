"""A transport that sends in one go what is written in one turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class CorkedTransport:
    """Holds back what is written until the end of the loop's turn; everything else is the transport's own."""

    def __init__(
        self, transport: Any, loop: asyncio.AbstractEventLoop, sent: Callable[[], None] = lambda: None
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._sent = sent
        self._held: list[bytes] = []
        self._is_due = False
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Send, soon and together with what follows; `sent` is called then."""
        self._wait()
        self._held.append(data)

    def write_whole(self, data: bytes) -> None:
        """Send what nothing follows."""
        if self._held:
            self._held.append(data)
        else:
            self._transport.write(data)

    def write_message(self, data: bytes) -> None:
        """Send the first message of a turn at once, and all others of it together; `sent` is called then."""
        if self._is_due:
            self._held.append(data)
        else:
            self._wait()
            self._transport.write(data)

    def close(self) -> None:
        """Send what is held back, then close."""
        self._send()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """How many bytes were written and are not on their way."""
        size: int = self._transport.get_write_buffer_size()
        return size + sum(map(len, self._held))

    def _wait(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self._transport.write(data)
        self._sent()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
