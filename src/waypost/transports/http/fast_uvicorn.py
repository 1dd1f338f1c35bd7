"""Shortcuts through uvicorn's private names, for what nearly all clients do; optional, and the only such module.

A client sends one request after another, each with the same head. Such a request skips the parser: its head is looked
up, and the app takes the body and sends the response without ASGI events. Everything else takes uvicorn's own way.

Importing this module checks every private name it relies on. Where one is missing the import fails with `ImportError`
and `server` serves on uvicorn's public protocol class instead: slower, with the same answers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from inspect import signature
from typing import Any, Final, NamedTuple, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from waypost.loops import CorkedTransport
from waypost.transports.http.asgi import Event, Header, KnownHeaders, Scope, WholeRequest
from waypost.transports.http.pending import IdleConnections, LimitedConnection, PendingRequests, SlowReaders

# Every private name of uvicorn that is used here, or set in place of uvicorn's own code.
_PROTOCOL_METHODS: Final = """
    connection_made connection_lost data_received on_body on_header on_headers_complete on_message_begin
    on_message_complete on_response_complete on_url send_400_response shutdown timeout_keep_alive_handler
    _unset_keepalive_if_required
"""
_PROTOCOL_ATTRIBUTES: Final = """
    access_log access_logger app app_state client config cycle flow logger loop pipeline root_path scheme scope
    server server_state tasks timeout_keep_alive timeout_keep_alive_task transport
"""
_CYCLE_ATTRIBUTES: Final = """
    access_log access_logger body chunked_encoding default_headers disconnected expected_content_length flow
    keep_alive logger message_event more_body on_response response_complete response_started scope transport
    waiting_for_100_continue
"""
_FLOW_ATTRIBUTES: Final = "read_paused write_paused"


def check_uvicorn() -> None:
    """Raise `ImportError`, naming what differs, unless this uvicorn has the private parts that are used here."""
    methods = sorted(_PROTOCOL_METHODS.split())
    problems = [f"HttpToolsProtocol.{name}" for name in methods if not hasattr(HttpToolsProtocol, name)]
    # The names that a function's code uses include every attribute it sets, so no connection has to be made for this.
    for kind, needed in ((HttpToolsProtocol, _PROTOCOL_ATTRIBUTES), (FlowControl, _FLOW_ATTRIBUTES)):
        missing = set(needed.split()) - set(kind.__init__.__code__.co_names)
        problems += [f"{kind.__name__}.{name}" for name in sorted(missing)]
    # `FastRequest` sets the attributes of a cycle itself: one that is new would be missing there, an old one gone.
    cycle: Any = RequestResponseCycle(**dict.fromkeys(signature(RequestResponseCycle).parameters))  # type: ignore[arg-type]  # any value will do
    problems += [f"RequestResponseCycle.{name}" for name in sorted(vars(cycle).keys() ^ set(_CYCLE_ATTRIBUTES.split()))]
    if problems:
        raise ImportError(f"uvicorn's private parts have changed: {', '.join(problems)}")


check_uvicorn()

HEAD_END: Final = b"\r\n\r\n"
_HEADER_PUNCTUATION: Final = len(b": \r\n")
_MAX_CACHED_HEADS: Final = 512
_MAX_HEAD_BYTES: Final = 4096
_MAX_WAITING_BODY_BYTES: Final = 16_384
"""How large a body may be that is collected before its request is started."""
_LARGE_BYTES: Final = 65_536
"""From this size on, a body is written without being copied behind its head."""
_FRAMING_HEADERS: Final = frozenset((b"expect", b"transfer-encoding", b"upgrade"))
"""Headers that change how the bytes after the head are read; heads with one of them are parsed each time."""
_UPGRADE: Final = re.compile(rb"\r\n(?:upgrade|http2-settings):[^\r\n]*", re.IGNORECASE)
"""An offer to switch protocols (Java clients offer h2c). A server may ignore it, but the parser drops the body then."""

_NOT_IN_NAME: Final = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_NOT_IN_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class CachedHead(NamedTuple):
    """The part of an ASGI scope that a head decides, and how many bytes of body follow it."""

    scope: dict[str, Any]
    length: int


class HeadCache:
    """Parsed heads by their bytes, for all connections; emptied when it is full."""

    def __init__(self) -> None:
        self._heads: dict[bytes, CachedHead] = {}
        self.get: Final = self._heads.get

    def add(self, data: bytes, scope: Scope) -> None:
        """Remember what a head was parsed to, unless it is long, its body large, or its framing special."""
        # HTTP/1.0 closes the connection after the response, and HEAD has a response without its body.
        is_plain = scope["http_version"] == "1.1" and scope["method"] != "HEAD"
        length = _body_length(scope["headers"]) if is_plain else None
        if length is None or length > _MAX_WAITING_BODY_BYTES or len(data) > _MAX_HEAD_BYTES:
            return
        # Clients choose their heads, so there may be any number of them.
        if len(self._heads) >= _MAX_CACHED_HEADS:
            self._heads.clear()
        known = {name: scope[name] for name in ("http_version", "method", "path", "raw_path", "query_string")}
        self._heads[data] = CachedHead({**known, "headers": KnownHeaders(scope["headers"])}, length)


def _body_length(headers: Iterable[Header]) -> int | None:
    """The length of the body; `None` where the headers alone do not decide it."""
    length = b"0"
    for name, value in headers:
        if name in _FRAMING_HEADERS or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
        if name == b"content-length":
            length = value
    return int(length) if length.isdigit() else None


_heads: Final = HeadCache()


class FastRequest(RequestResponseCycle, WholeRequest):
    """Stands in for uvicorn's cycle of a request that came whole; any other app sees no difference."""

    # Attributes that uvicorn's `send` and `receive` read, and that never differ for such a request.
    waiting_for_100_continue = False
    more_body = False
    chunked_encoding: bool | None = None
    expected_content_length = 0

    def __init__(self, connection: FastConnection, scope: Scope, body: bytes) -> None:
        # uvicorn's own `__init__` is not called: it makes an `asyncio.Event`, which few requests need.
        self.scope = scope  # type: ignore[assignment]  # uvicorn declares a TypedDict
        self.unread_body = body
        self.disconnected = False
        self.keep_alive = True
        self.response_started = False
        self.response_complete = False
        self._event: asyncio.Event | None = None
        self.transport = connection.transport
        self.flow = connection.flow
        self.logger = connection.logger
        self.access_logger = connection.access_logger
        self.access_log = connection.access_log
        self.default_headers = connection.server_state.default_headers
        self.on_response = connection.on_response_complete

    @property
    def message_event(self) -> asyncio.Event:  # type: ignore[override]  # made when it is first asked for
        """Set when the client disconnected or the response is complete."""
        if self._event is None:
            self._event = asyncio.Event()
        return self._event

    async def receive(self) -> Event:  # type: ignore[override]  # our name for ASGI's events
        """The whole body in one event, then the disconnect."""
        body, self.unread_body = self.unread_body, None
        if body is not None and not self.disconnected:
            return {"type": "http.request", "body": body, "more_body": False}
        if not (self.disconnected or self.response_complete):
            await self.message_event.wait()
        return {"type": "http.disconnect"}

    def send_response(self, status: int, body: bytes, headers: tuple[Header, ...]) -> bool:
        """Write a whole response; false where it has to go the usual way, by `send`."""
        # A closing connection gets another header, and a slow reader has to be waited for.
        if self.response_started or self.disconnected or not self.keep_alive or self.flow.write_paused:
            return False
        head = _response_head(status, headers)
        if head is None:
            return False
        transport: Any = self.transport
        if len(body) < _LARGE_BYTES:
            transport.write_whole(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        else:  # without a copy of the body; the transport sends both together
            transport.write_whole(b"%b%d\r\n\r\n" % (head, len(body)))
            transport.write_whole(body)
        self.response_started = self.response_complete = True
        if self._event is not None:
            self._event.set()
        self.on_response()
        return True


@lru_cache(256)
def _response_head(status: int, headers: tuple[Header, ...]) -> bytes | None:
    """A response up to the value of its content-length; `None` for headers that uvicorn would refuse."""
    if any(_NOT_IN_NAME.search(name) or _NOT_IN_VALUE.search(value) for name, value in headers):
        return None
    lines = b"".join(b"%b: %b\r\n" % (name.lower(), value) for name, value in headers)
    return b"HTTP/1.1 %d %b\r\n%bcontent-length: " % (status, HTTPStatus(status).phrase.encode(), lines)


class HeadersTooLarge(Exception):
    """Raised in a callback of the parser, which stops it; uvicorn then asks for a response."""


class FastConnection(LimitedConnection, HttpToolsProtocol):
    """uvicorn's connection, which parses only heads it has not seen, and has one timer instead of one per response.

    It is among `pending` from its first moment, or from the first byte of a later request, until that is complete.
    """

    _idle_since: float | None = None
    _is_parsing = False
    """Whether the parser is in the middle of a request."""
    _is_in_body = False
    """Whether the parser has the headers of that request."""
    _awaits: str | None = None
    """What is counted as missing: `head` or `body`."""
    _head_bytes = 0
    """The size of the URL, headers and trailers that the parser reported of the current request."""
    _unreported = 0
    """How many bytes the parser took since it last reported anything."""
    _parsed_requests = 0
    """How many requests began in the bytes that the parser was fed last."""
    _head: CachedHead | None = None
    """A cached head whose body is still incomplete."""
    _received = b""
    """The bytes of that request so far, with the head."""

    def __init__(
        self,
        *args: Any,
        pending: PendingRequests | None = None,
        slow_readers: SlowReaders | None = None,
        idle: IdleConnections | None = None,
        **more: Any,
    ) -> None:
        self._body_parts: list[bytes] = []
        # The parser is made by `super().__init__` and calls this for each chunk. A chunk may be one byte, and a method
        # in Python for each of them would take five times as long; the parts are joined once for each read.
        self.on_body = self._body_parts.append  # type: ignore[method-assign, assignment]  # called by the parser, by position
        super().__init__(*args, **more)
        idle = IdleConnections() if idle is None else idle
        self.limit_by(pending or PendingRequests(), slow_readers or SlowReaders(), idle)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        """A client connected."""
        super().connection_made(CorkedTransport(transport, self.loop))  # type: ignore[arg-type]  # it has the same methods
        # The access log and default headers are added in uvicorn's `send`, which whole responses do not use.
        self._is_plain = not (self.access_log or self.server_state.default_headers)
        self._scope = {
            "type": "http",
            "asgi": {"version": self.config.asgi_version, "spec_version": "2.3"},
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
        }
        self._await("head")

    def connection_lost(self, exc: Exception | None) -> None:
        """The client disconnected."""
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start a request that is whole and whose head is cached; feed everything else to the parser."""
        if self._idle_since is not None:
            self._idle_since = None
            self.idle.pop(self, None)
        cycle = self.cycle
        # While a response is due, more requests (pipelining) are uvicorn's to queue; in mid-request, its parser's.
        if self._is_parsing or not (self._is_plain and (cycle is None or cycle.response_complete)):
            return self._feed(data)
        if self._head is not None:
            data, self._received = self._received + data, b""
        # Where the head is incomplete, this is too short to be found in the cache, or to be added to it.
        end = data.find(HEAD_END) + len(HEAD_END)
        head = self._head or _heads.get(data[:end])
        self._head = None
        if head is None:
            self._parse(data, end)
        elif len(data) == end + head.length:
            if self._awaits is not None:
                self._await(None)
            # A new dict, because apps write to it; the list of headers in it is shared by all requests with this head.
            scope = {**self._scope, **head.scope, "state": self.app_state.copy()}
            request = self.cycle = FastRequest(self, scope, data[end:])
            self._start(request, self.app)
        elif len(data) < end + head.length:
            self._head, self._received = head, data
            self._await("body")
        else:
            # More than one request came at once.
            self._feed(data)
        return None

    def _parse(self, data: bytes, end: int) -> None:
        """Feed the parser, and cache the head if that is what the data begins with."""
        # Finds `Upgrade` and `upgrade` without the cost of the expression.
        if b"pgrade" in data[:end]:
            plain = _UPGRADE.sub(b"", data[:end])
            data, end = plain + data[end:], len(plain)
        before, self._parsed_requests = self.cycle, 0
        self._feed(data)
        # One new request from data with a whole head: the first `end` bytes were that head and nothing else.
        if self.cycle is not before and self._parsed_requests == 1 and end > len(HEAD_END):
            _heads.add(data[:end], cast("Scope", self.scope))

    def _feed(self, data: bytes) -> None:
        """Feed the parser, and see whether it has a whole request then."""
        if self.is_refused:
            return
        self._unreported += len(data)
        super().data_received(data)
        self._pass_body_on()
        if self._unreported > self.pending.max_header_bytes:
            # The parser collects a header, a trailer or the extension of a chunk until it ends.
            self.refuse_headers()
        else:
            self._await(self._find_missing())

    def _find_missing(self) -> str | None:
        """What the client still has to send; nothing while it waits for an earlier response."""
        cycle, is_in_body = self.cycle, self._is_parsing and self._is_in_body
        if self.pipeline or not (is_in_body or cycle is None or cycle.response_complete):
            return None
        return "body" if is_in_body else "head"  # also where only line ends came, which may precede a request

    def _await(self, part: str | None) -> None:
        """Count the connection among those that have to send the rest of a request, or no longer."""
        if part == self._awaits:
            return
        self._awaits = part
        if part is None:
            self.pending.discard(self)
        else:
            self.pending.add(self, self.pending.body_timeout if part == "body" else self.pending.header_timeout)

    def has_part(self) -> bool:
        """Whether the parser, or `_received`, has a part of a request."""
        return self._is_parsing or self._head is not None

    def time_out(self) -> None:
        """Close the connection; an app that waits for the rest of the request sees a disconnect."""
        cycle = None if self._head is not None else self.cycle
        # A response is under way: the client would take a 408 for a part of it.
        if cycle is not None and (cycle.response_started or cycle.response_complete) and self._is_in_body:
            self.transport.abort()
            return
        super().time_out()
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

    def refuse(self, status: int, message: str) -> None:
        """Send an error; what comes after it goes to `_feed`, which drops it."""
        super().refuse(status, message)
        self._is_parsing, self._head, self._received = True, None, b""

    def _start(self, cycle: RequestResponseCycle, app: Any) -> None:
        # As uvicorn does it, but in a method of ours: its own has another name in each version.
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_message_begin(self) -> None:
        """The parser begins with a request."""
        self._is_parsing, self._is_in_body = True, False
        self._head_bytes = self._unreported = 0
        self._parsed_requests += 1
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """The parser has a part of the URL."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has a header or a trailer."""
        self._count(len(name) + len(value) + _HEADER_PUNCTUATION)
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._unreported = 0
        self._head_bytes += size
        if self._head_bytes > self.pending.max_header_bytes:
            raise HeadersTooLarge

    def on_headers_complete(self) -> None:
        """The parser has the headers; the app starts, whether the body is there or not."""
        self._is_in_body = True
        super().on_headers_complete()
        if self.is_draining:
            self._make_last(self.cycle)

    def _pass_body_on(self) -> None:
        """Add the parts of the body that the parser has reported to the request."""
        if self._body_parts:
            body = b"".join(self._body_parts)
            self._body_parts.clear()
            self._unreported = 0
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The parser has a whole request."""
        self._pass_body_on()
        self._is_parsing = False
        self._unreported = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser does not take."""
        if self._head_bytes > self.pending.max_header_bytes:
            self.refuse_headers()
        else:
            super().send_400_response(msg)

    def shutdown(self) -> None:
        """Close after the response, or soon where none is due; a request that came in part is still answered."""
        self._is_plain = False  # from now on requests go through the parser, which knows `_make_last`
        if self._head is not None:
            self._head = None
            self._feed(self._received)
        if self.is_busy():
            self._make_last(self.cycle)
        super().shutdown()

    def is_busy(self) -> bool:
        """Whether a response is due."""
        return not (self.cycle is None or self.cycle.response_complete)

    def _make_last(self, cycle: RequestResponseCycle) -> None:
        """Have a response close the connection, and say so."""
        cycle.keep_alive = False
        cycle.default_headers = [*cycle.default_headers, (b"connection", b"close")]

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def on_response_complete(self) -> None:
        """Start the next pipelined request, or the wait for one."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start(*self.pipeline.pop())
            self._await(self._find_missing())
            return
        if self._is_parsing:
            self._await(self._find_missing())
        # uvicorn sets a timer for each response and cancels it at the next request. Here one timer runs on and looks
        # at the time of the last response when it fires.
        self._idle_since = self.loop.time()
        if not self._is_parsing:
            self.idle.add(self)
        if self.timeout_keep_alive_task is None:
            self._set_timer(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle for long enough; a busy one sets the timer after its next response."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._set_timer(left)
        elif not self.transport.is_closing():
            self.transport.close()

    def _set_timer(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)
