"""Heads of requests that were parsed before: a client sends the same one over and over, so it is looked up."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from waypost.corked import CorkedTransport
from waypost.transports.http.asgi import Event, Header, KnownHeaders, Receive, Scope, Send

END: Final = b"\r\n\r\n"
_MOST: Final = 512
_LONGEST: Final = 4096
_LARGEST: Final = 16_384
"""Bytes of a body that is waited for before anybody looks at its request."""
_SPECIAL: Final = frozenset((b"expect", b"transfer-encoding", b"upgrade"))
"""Headers that say how a request goes on; heads with one of them are parsed each time."""
_VERSION: Final = "1.1"


class Head(NamedTuple):
    """What a request is about, and how many bytes follow it."""

    about: dict[str, Any]
    """The part of an ASGI scope that does not depend on the connection."""
    length: int


class Heads:
    """The heads that were seen of late, by their bytes."""

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}
        self.get: Final = self._known.get

    def learn(self, data: bytes, scope: Scope) -> None:
        """Remember what a head came to, unless it is long or special, or much follows it."""
        is_plain = scope["http_version"] == _VERSION and scope["method"] != "HEAD"
        length = _length(scope["headers"]) if is_plain else None
        if length is None or length > _LARGEST or len(data) > _LONGEST:
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        about = {name: scope[name] for name in ("http_version", "method", "path", "raw_path", "query_string")}
        self._known[data] = Head({**about, "headers": KnownHeaders(scope["headers"])}, length)


def _length(headers: Iterable[Header]) -> int | None:
    """How long a body is; nothing where a look at the headers alone does not tell."""
    length = b"0"
    for name, value in headers:
        if name in _SPECIAL or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
        if name == b"content-length":
            length = value
    return int(length) if length.isdigit() else None


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
