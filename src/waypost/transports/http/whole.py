"""Requests and responses in one piece: uvicorn's own way takes a head and a body apart, and looks at each header anew.

A `Turn` stands in for uvicorn's cycle of a request that came whole. An app that knows of it takes the body and sends
the response without a detour over events; any other app does not see a difference.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from waypost.corked import CorkedTransport
from waypost.transports.http.asgi import Event, Header, Receive, Scope, Send

if TYPE_CHECKING:
    from waypost.transports.http.connection import Connection

_HEADS: Final = 256


class Turn(RequestResponseCycle):
    """A request that is all there, and the response to it."""

    # Only looked at when the response is not sent whole.
    waiting_for_100_continue = False
    more_body = False
    chunked_encoding: bool | None = None
    expected_content_length = 0

    def __init__(self, connection: Connection, scope: Scope, body: bytes) -> None:
        self.scope = scope  # type: ignore[assignment]  # a scope by any other name
        self.whole: bytes | None = body
        self.disconnected = False
        self.keep_alive = True
        self.response_started = False
        self.response_complete = False
        self._changed: asyncio.Event | None = None
        self.transport = connection.transport
        self.flow = connection.flow
        self.logger = connection.logger
        self.access_logger = connection.access_logger
        self.access_log = connection.access_log
        self.default_headers = connection.server_state.default_headers
        self.on_response = connection.on_response_complete

    @property
    def message_event(self) -> asyncio.Event:  # type: ignore[override]  # made when first asked for
        """Rings when the client is gone, or has its answer."""
        if self._changed is None:
            self._changed = asyncio.Event()
        return self._changed

    async def receive(self) -> Event:  # type: ignore[override]  # the events of our own words
        """The whole request, then the end of it."""
        whole, self.whole = self.whole, None
        if whole is not None and not self.disconnected:
            return {"type": "http.request", "body": whole, "more_body": False}
        if not (self.disconnected or self.response_complete):
            await self.message_event.wait()
        return {"type": "http.disconnect"}

    def complete(self) -> None:
        """The response was written."""
        self.response_started = self.response_complete = True
        if self._changed is not None:
            self._changed.set()
        self.on_response()


def whole_body(receive: Receive) -> bytes | None:
    """The body of a request that came whole, once; nothing where it has to be waited for."""
    turn = getattr(receive, "__self__", None)
    if type(turn) is not Turn or turn.disconnected:
        return None
    whole, turn.whole = turn.whole, None
    return whole


def send_whole(send: Send, status: int, body: bytes, headers: tuple[Header, ...]) -> bool:
    """Send a whole response at once; false where the request did not come so, or the response is special."""
    turn = getattr(send, "__self__", None)
    if (
        type(turn) is not Turn
        or turn.response_started
        or turn.disconnected
        or not turn.keep_alive
        or turn.flow.write_paused
    ):
        return False
    head = _head(status, headers)
    if head is None:
        return False
    transport: Any = turn.transport
    assert type(transport) is CorkedTransport
    transport.write_whole(b"%b%d\r\n\r\n%b" % (head, len(body), body))
    turn.complete()
    return True


@lru_cache(_HEADS)
def _head(status: int, headers: tuple[Header, ...]) -> bytes | None:
    """Everything before the length of the body; nothing where a header cannot be sent as it is."""
    if any(HEADER_RE.search(name) or HEADER_VALUE_RE.search(value) for name, value in headers):
        return None
    lines = b"".join(b"%b: %b\r\n" % (name.lower(), value) for name, value in headers)
    return b"%b%bcontent-length: " % (STATUS_LINE[status], lines)
