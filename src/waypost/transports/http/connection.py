"""One client's connection: uvicorn's own protocol, with shortcuts for what nearly all clients do.

A client sends requests one after the other, each with a head that it sent before. Such a request goes straight to the
app; everything else goes to uvicorn's parser. A connection has one timer, and not one for each response.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from waypost.corked import CorkedTransport
from waypost.transports.http.asgi import Scope
from waypost.transports.http.heads import END, Head, Heads
from waypost.transports.http.whole import Turn

_heads: Final = Heads()
_UPGRADE: Final = re.compile(rb"\r\n(?:upgrade|http2-settings):[^\r\n]*", re.IGNORECASE)
"""An offer to speak something else, which may be passed over; the parser would drop the body behind it."""


class Connection(HttpToolsProtocol):
    """Parses what comes, unless it is known, and looks after the connection."""

    _idle_since: float | None = None
    _is_within = False
    """Whether the parser waits for the rest of a request."""
    _begun = 0
    """How many requests the parser began with, in what it saw last."""
    _head: Head | None = None
    """A known head whose body is still to come."""
    _held = b""
    """What came of such a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        """A client connected."""
        super().connection_made(CorkedTransport(transport, self.loop))  # type: ignore[arg-type]  # quacks like one
        self._is_plain = not (self.access_log or self.server_state.default_headers)
        self._about = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
        }

    def connection_lost(self, exc: Exception | None) -> None:
        """A client is gone."""
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start on a request that is whole and known, or have the parser look at what came."""
        self._idle_since = None
        cycle = self.cycle
        if self._is_within or not (self._is_plain and (cycle is None or cycle.response_complete)):
            return super().data_received(data)
        if self._head is not None:
            data, self._held = self._held + data, b""
        end = data.find(END) + len(END)
        head = self._head or _heads.get(data[:end])
        self._head = None
        if head is None:
            self._parse(data, end)
        elif len(data) == end + head.length:
            self._start(head, data[end:])
        elif len(data) < end + head.length:
            self._head, self._held = head, data
        else:
            super().data_received(data)
        return None

    def _parse(self, data: bytes, end: int) -> None:
        """Have the parser look at what nobody knows, and remember the head if that is what it was."""
        if b"pgrade" in data[:end]:
            plain = _UPGRADE.sub(b"", data[:end])
            data, end = plain + data[end:], len(plain)
        before, self._begun = self.cycle, 0
        super().data_received(data)
        if self.cycle is not before and self._begun == 1 and end > len(END):
            _heads.learn(data[:end], cast("Scope", self.scope))

    def _start(self, head: Head, body: bytes) -> None:
        scope = {**self._about, **head.about, "state": self.app_state.copy()}
        turn = self.cycle = Turn(self, scope, body)
        self._start_asgi_task(turn, self.app)

    def on_message_begin(self) -> None:
        """The parser begins with a request."""
        self._is_within = True
        self._begun += 1
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """The parser has a whole request."""
        self._is_within = False
        super().on_message_complete()

    def shutdown(self) -> None:
        """Let the client go when it has its answer; half a request still gets one."""
        if self._head is not None:
            self._head = None
            super().data_received(self._held)
        super().shutdown()

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def on_response_complete(self) -> None:
        """Go on with what the client has sent meanwhile, or wait a while for more."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
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
