"""A lean HTTP/1.1 client: connections to one origin that are kept and shared."""

from __future__ import annotations

import asyncio
import base64
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast
from urllib.parse import quote, unquote, urljoin, urlsplit

import httptools

from waypost.loops import running_loop

MOST_BODY: Final = 64 * 1024 * 1024
"""Bytes that a response, or one event of a stream, may have."""
MOST_OVERHEAD: Final = 64 * 1024
"""Bytes that may come without any of them being part of a body."""
_FRESH: Final = 1.0
"""Seconds for which a connection that nobody used is surely still open as far as the loop knows."""
_BODILESS: Final = frozenset({204, 304})

Take = Callable[[bytes], None]


class HttpError(Exception):
    """No response that can be used; `sent` when the server may have got the request."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class TooLarge(HttpError):
    """A response that has more bytes than anybody wants to keep."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most // (1024 * 1024)} MiB" if most >= 1024 * 1024 else f"more than {most} bytes")


class Response:
    """What a server answered; names of headers are in lower case."""

    __slots__ = ("body", "headers", "reason", "status")

    def __init__(self) -> None:
        self.status = 0
        self.reason = ""
        self.headers: dict[bytes, bytes] = {}
        self.body: bytes = b""

    @property
    def kind(self) -> str:
        """The type of the content, without its parameters."""
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")

    @property
    def has_no_length(self) -> bool:
        """Whether only the end of the connection ends it."""
        headers = self.headers
        return not (b"content-length" in headers or b"transfer-encoding" in headers or self.status in _BODILESS)


class Reader(Protocol):
    """Whoever waits for a response; both are called from the loop and at most once."""

    def begun(self, response: Response) -> Take | None:
        """The head is there; the body goes to the function returned, or else as a whole into the response."""

    def ended(self, response: Response | None, problem: Exception | None) -> None:
        """The response is complete, or will never be."""


class Connection(asyncio.Protocol):
    """Carries one exchange after the other; `freed` hears when it can carry the next, `lost` when it is gone."""

    _response: Response
    _take: Take | None
    _first: bytes
    _more: bytearray
    _overhead: int
    _is_begun: bool
    _is_complete: bool
    _is_surplus: bool
    _is_reusable: bool

    def __init__(
        self, freed: Callable[[Connection], None], lost: Callable[[Connection], None], most: int = MOST_BODY
    ) -> None:
        self.idle_since = 0.0
        self._freed = freed
        self._lost = lost
        self._most = most
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._reader: Reader | None = None
        self._begin_response()

    def send(self, data: bytes, reader: Reader) -> None:
        """Send a request; `reader` hears what comes back."""
        assert self._transport is not None
        self._reader = reader
        self._begin_response()
        self._transport.write(data)

    def is_open(self) -> bool:
        """Whether nothing has come, not even an end, on a connection that nobody uses."""
        if self._transport is None or self._transport.is_closing():
            return False
        return running_loop().time() - self.idle_since < _FRESH or self._is_silent(self._transport)

    def is_busy_with(self, reader: Reader) -> bool:
        """Whether the response that comes next is for `reader`."""
        return self._reader is reader

    def abort(self) -> None:
        """Close at once; a reader hears nothing more."""
        self._reader = None
        if self._transport is not None:
            self._transport.abort()

    def fail(self, problem: Exception) -> None:
        """Close at once, and tell whoever reads why."""
        reader = self._reader
        self.abort()
        if reader is not None:
            reader.ended(None, problem)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read what came; a server that speaks without being asked has lost its connection."""
        if self._reader is None:
            self.abort()
            return
        self._overhead += len(data)
        problem: Exception | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            problem = error.__context__ if isinstance(error.__context__, Exception) else error
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            problem = HttpError("what it answers is not HTTP")
        if self._is_complete:
            self._finish(is_clean=problem is None)
        elif problem is not None:
            self.fail(problem)
        elif self._overhead > MOST_OVERHEAD:
            self.fail(HttpError(f"the head of its response is longer than {MOST_OVERHEAD // 1024} KiB"))

    def connection_lost(self, error: Exception | None) -> None:
        """The end of the connection; of a response too, where it has no other."""
        reader, self._reader, self._transport = self._reader, None, None
        self._lost(self)
        if reader is None:
            return
        if error is None and self._is_begun and self._response.has_no_length:
            reader.ended(self._whole(), None)
        elif self._is_begun:
            reader.ended(None, HttpError("the connection was closed in the middle of the response"))
        else:
            reader.ended(None, HttpError("the connection was closed without a response"))

    # What the parser finds

    def on_message_begin(self) -> None:
        """A response begins; a second one was not asked for."""
        self._is_surplus = self._is_complete

    def on_status(self, reason: bytes) -> None:
        """The words of the status line, maybe in parts."""
        if not self._is_complete:
            self._response.reason += reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one line after the body, which nobody needs."""
        if not self._is_begun:
            self._response.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head is there."""
        status = self._parser.get_status_code()
        if self._is_complete or status < 200:
            return
        response, self._is_begun, self._overhead = self._response, True, 0
        response.status = status
        encoding = response.headers.get(b"content-encoding", b"identity")
        if encoding.strip().lower() != b"identity":
            raise HttpError("it compressed its response, which was not asked for")
        length = response.headers.get(b"content-length", b"")
        assert self._reader is not None
        self._take = self._reader.begun(response)
        if self._take is None and length.isdigit() and int(length) > self._most:
            raise TooLarge(self._most)

    def on_body(self, piece: bytes) -> None:
        """Part of the body."""
        if self._is_complete:
            return
        self._overhead = 0
        if self._take is not None:
            self._take(piece)
            return
        if not self._first:
            self._first = piece
        else:
            self._more += piece
        if len(self._first) + len(self._more) > self._most:
            raise TooLarge(self._most)

    def on_message_complete(self) -> None:
        """The response is complete; one that only announces another leaves no trace."""
        if self._is_begun:
            self._is_complete = True
            self._is_reusable = self._parser.should_keep_alive()
        else:
            self._response = Response()

    def _begin_response(self) -> None:
        self._response = Response()
        self._take = None
        self._first = b""
        self._more = bytearray()
        self._overhead = 0
        self._is_begun = self._is_complete = self._is_surplus = self._is_reusable = False

    def _whole(self) -> Response:
        self._response.body = self._first + self._more if self._more else self._first
        return self._response

    def _finish(self, is_clean: bool) -> None:
        reader, self._reader = self._reader, None
        transport = self._transport
        if reader is None or transport is None:
            return
        response = self._whole()
        can_go_on = is_clean and self._is_reusable and not self._is_surplus and not transport.is_closing()
        if can_go_on and not transport.get_write_buffer_size():
            self._freed(self)
        else:
            transport.abort()
        reader.ended(response, None)

    def _is_silent(self, transport: asyncio.Transport) -> bool:
        """Whether there is nothing to read; the loop may not have got round to the end of a connection."""
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)


MOST_CONNECTIONS: Final = 100
CONNECT_WITHIN: Final = 10.0
IDLE: Final = 4.0
"""Seconds until a connection that nobody uses is closed; most servers wait five."""
_CLOSE_WITHIN: Final = 1.0
_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = "%/:@!$&'()*+,;=~-._?[]"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a URL leads."""

    scheme: str
    host: str
    port: int
    target: str
    credentials: str = ""

    @property
    def authority(self) -> str:
        """The value of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def led_to(self, location: str) -> Address | None:
        """Where a redirection leads, if it stays at this origin."""
        try:
            there = address_of(urljoin(f"{self.scheme}://{self.authority}{self.target}", location))
        except (HttpError, ValueError):
            return None
        is_here = (there.scheme, there.host, there.port) == (self.scheme, self.host, self.port)
        return there if is_here else None


def address_of(url: str) -> Address:
    """The parts of a URL; one that leads nowhere is an `HttpError`."""
    try:
        parts = urlsplit(url.strip())
        host = (parts.hostname or "").encode("ascii" if url.isascii() else "idna").decode()
        port = parts.port
    except (ValueError, UnicodeError):
        raise HttpError("the address makes no sense", sent=False) from None
    if parts.scheme not in _PORTS or not host or any(character.isspace() for character in host):
        raise HttpError("the address makes no sense", sent=False)
    query = f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
    credentials = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = base64.b64encode(pair.encode()).decode()
    target = (quote(parts.path, safe=_SAFE) or "/") + query
    return Address(parts.scheme, host, _PORTS[parts.scheme] if port is None else port, target, credentials)


class Exchange:
    """A request on its way: waiting for a connection, or on one."""

    __slots__ = ("_pool", "connecting", "connection", "data", "reader")

    def __init__(self, pool: Pool, data: bytes, reader: Reader) -> None:
        self.data = data
        self.reader = reader
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self._pool = pool

    def cancel(self) -> None:
        """Give it up; its reader hears nothing more."""
        self._pool.give_up(self)


class Pool:
    """Connections to one origin, at most so many; requests beyond that wait for one in their order."""

    def __init__(
        self,
        address: Address,
        *,
        tls: ssl.SSLContext | None = None,
        most: int = MOST_CONNECTIONS,
        most_body: int = MOST_BODY,
        idle: float = IDLE,
        connect_within: float = CONNECT_WITHIN,
    ) -> None:
        self._address = address
        self._tls = tls
        self._most = most
        self._most_body = most_body
        self._idle_for = idle
        self._connect_within = connect_within
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        self._waiting: dict[Exchange, None] = {}
        self._connecting: dict[Exchange, asyncio.Task[None]] = {}
        self._look: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None

    def start(self, data: bytes, reader: Reader, *, is_urgent: bool = False) -> Exchange:
        """Send a request as soon as there is a connection; an urgent one gets one of its own if it has to."""
        exchange = Exchange(self, data, reader)
        if is_urgent or self._busy < self._most:
            self._send(exchange)
        else:
            self._waiting[exchange] = None
        return exchange

    def give_up(self, exchange: Exchange) -> None:
        """Forget a request; a connection that is busy with it is closed."""
        self._waiting.pop(exchange, None)
        if exchange.connection is not None:
            if exchange.connection.is_busy_with(exchange.reader):
                exchange.connection.abort()
        elif exchange.connecting is not None:
            self._connecting.pop(exchange, None)
            exchange.connecting.cancel()

    async def close(self) -> None:
        """Close all connections; whoever waits for a response waits no longer."""
        self._emptied = asyncio.Event()
        left, tasks = [*self._waiting, *self._connecting], list(self._connecting.values())
        self._waiting.clear()
        for task in tasks:
            task.cancel()
        for exchange in left:
            exchange.reader.ended(None, HttpError("the connection was closed", sent=False))
        if self._look is not None:
            self._look.cancel()
        for connection in tuple(self._connections):
            connection.fail(HttpError("the connection was closed"))
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                if tasks:
                    await asyncio.wait(tasks)
                if self._connections:
                    await self._emptied.wait()

    @property
    def _busy(self) -> int:
        """How many connections there are that carry something, or soon will."""
        return len(self._connections) - len(self._idle) + len(self._connecting)

    def _send(self, exchange: Exchange) -> None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open():
                self._carry(connection, exchange)
                return
            connection.abort()
        self._connect(exchange)

    def _carry(self, connection: Connection, exchange: Exchange) -> None:
        exchange.connection = connection
        connection.send(exchange.data, exchange.reader)

    def _connect(self, exchange: Exchange) -> None:
        # A connection carries many calls and must not take itself for part of the first one.
        task = running_loop().create_task(self._connected(exchange), context=Context())
        exchange.connecting = self._connecting[exchange] = task
        task.add_done_callback(lambda _: self._settled(exchange))

    def _settled(self, exchange: Exchange) -> None:
        self._connecting.pop(exchange, None)
        self._let_next()

    async def _connected(self, exchange: Exchange) -> None:
        address = self._address
        try:
            async with asyncio.timeout(self._connect_within):
                tls = await self._context() if address.scheme == "https" else None
                _, connection = await running_loop().create_connection(
                    lambda: Connection(self._freed, self._gone, self._most_body), address.host, address.port, ssl=tls
                )
        except Exception as error:  # whatever it is, somebody waits to hear of it
            reason = f"no connection within {self._connect_within:g} s"
            said = reason if type(error) is TimeoutError else why_not(error)
            self._connecting.pop(exchange, None)
            exchange.reader.ended(None, HttpError(said, sent=False))
            return
        self._connecting.pop(exchange, None)
        if connection.is_open():
            self._connections.add(connection)
            self._carry(connection, exchange)
        else:
            connection.abort()
            exchange.reader.ended(None, HttpError("the connection was closed at once", sent=False))

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            # Reading all certificates of the system takes a while.
            self._tls = await running_loop().run_in_executor(None, ssl.create_default_context)
        return self._tls

    def _freed(self, connection: Connection) -> None:
        if self._waiting and self._busy <= self._most:
            self._carry(connection, self._next())
            return
        connection.idle_since = running_loop().time()
        self._idle.append(connection)
        if self._look is None:
            self._look = running_loop().call_later(self._idle_for, self._close_idle)

    def _gone(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._emptied is not None:
            if not self._connections:
                self._emptied.set()
        else:
            self._let_next()

    def _let_next(self) -> None:
        """Send what waits first, if there may be one more."""
        while self._waiting and self._busy < self._most:
            self._send(self._next())

    def _next(self) -> Exchange:
        exchange = next(iter(self._waiting))
        del self._waiting[exchange]
        return exchange

    def _close_idle(self) -> None:
        """Close the connections that nobody used for long; the list is in the order in which they were left."""
        now, self._look = running_loop().time(), None
        while self._idle and self._idle[0].idle_since + self._idle_for <= now:
            self._idle.pop(0).abort()
        if self._idle:
            left = self._idle[0].idle_since + self._idle_for - now
            self._look = running_loop().call_later(left, self._close_idle)


def why_not(error: Exception) -> str:
    """Why there is no connection, without the address."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, socket.gaierror):
        return "its name is not known"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.partition(',')[0].rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        return "it does not speak TLS as it should"
    if isinstance(error, (OverflowError, UnicodeError)):
        return "the address makes no sense"
    return "no connection could be made"


_BOM: Final = b"\xef\xbb\xbf"


class Events:
    """Hands on the data of each event; the time it takes is linear in the bytes, however they are cut."""

    def __init__(self, receive: Callable[[bytes], None], most: int = MOST_BODY) -> None:
        self._receive = receive
        self._most = most
        self._line = bytearray()
        self._data: list[bytes] = []
        self._kept = 0
        self._is_first = True
        self._is_after_return = False

    def feed(self, piece: bytes) -> None:
        """Take the next bytes; an event that is too large is refused."""
        if self._is_after_return or b"\r" in piece:
            piece = self._with_one_line_end(piece)
        *lines, rest = piece.split(b"\n")
        for line in lines:
            if self._line:
                self._line += line
                line = bytes(self._line)
                self._line.clear()
            self._take(line)
        self._line += rest
        if self._kept + len(self._line) > self._most:
            raise TooLarge(self._most)

    def _with_one_line_end(self, piece: bytes) -> bytes:
        """The bytes with line feeds only; the two halves of one line end may come in different pieces."""
        if self._is_after_return:
            piece = piece.removeprefix(b"\n")
        self._is_after_return = piece.endswith(b"\r") or (self._is_after_return and not piece)
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take(self, line: bytes) -> None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._kept += len(line)
        elif not line and self._data:
            body = b"\n".join(self._data)
            self._data.clear()
            self._kept = 0
            if body:
                self._receive(body)
