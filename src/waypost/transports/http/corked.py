"""Responses that are sent in one go: uvicorn's own way takes a head and a body apart, and looks at each header anew."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from waypost.transports.http.asgi import Header, Send

_HEADS: Final = 256


class CorkedTransport:
    """Holds back what is written until the end of the loop's turn; everything else is the transport's own."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send, soon and together with what follows."""
        if not self._held:
            self._loop.call_soon(self._send)
        self._held.append(data)

    def close(self) -> None:
        """Send what is held back, then close."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class CorkedProtocol(HttpToolsProtocol):
    """uvicorn's own HTTP protocol on a corked transport, with a timer for each connection and not for each response."""

    _idle_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        """A client connected."""
        super().connection_made(CorkedTransport(transport, self.loop))  # type: ignore[arg-type]  # quacks like one

    def connection_lost(self, exc: Exception | None) -> None:
        """A client is gone."""
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        super().connection_lost(exc)

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def on_response_complete(self) -> None:
        """Go on with what the client has sent meanwhile, or wait a while for more."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_after(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that nothing came over for long enough."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._look_after(left)
        elif not self.transport.is_closing():
            self.transport.close()

    def _look_after(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)


def send_whole(send: Send, status: int, body: bytes, headers: tuple[Header, ...]) -> bool:
    """Send a whole response at once; false where `send` is not uvicorn's, or the response is special."""
    cycle = getattr(send, "__self__", None)
    transport: Any = getattr(cycle, "transport", None)
    if type(cycle) is not RequestResponseCycle or type(transport) is not CorkedTransport:
        return False
    if (
        cycle.response_started
        or cycle.disconnected
        or not cycle.keep_alive
        or cycle.flow.write_paused
        or cycle.access_log
        or cycle.default_headers
        or cycle.scope["method"] == "HEAD"
    ):
        return False
    head = _head(status, headers)
    if head is None:
        return False
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
    cycle.message_event.set()
    cycle.on_response()
    return True


@lru_cache(_HEADS)
def _head(status: int, headers: tuple[Header, ...]) -> bytes | None:
    """Everything before the length of the body; nothing where a header cannot be sent as it is."""
    if any(HEADER_RE.search(name) or HEADER_VALUE_RE.search(value) for name, value in headers):
        return None
    lines = b"".join(b"%b: %b\r\n" % (name.lower(), value) for name, value in headers)
    return b"%b%bcontent-length: " % (STATUS_LINE[status], lines)
