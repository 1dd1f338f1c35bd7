"""A lean HTTP/1.1 client: connections to one origin that are kept and shared, and server-sent events."""

from __future__ import annotations

import asyncio
import base64
import os
import select
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any, Final, cast
from urllib.parse import quote, unquote, urljoin, urlsplit

import httptools
from aiohappyeyeballs import AddrInfoType, start_connection

from waypost.loops import running_loop

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Bytes that a response, or one event of a stream, may have."""
MAX_OVERHEAD_BYTES: Final = 64 * 1024
"""Bytes that may arrive without any of them being part of a body."""
MAX_CONNECTIONS: Final = 100
CONNECT_TIMEOUT_S: Final = 10.0
IDLE_TIMEOUT_S: Final = 4.0
"""After which an unused connection is closed; most servers close theirs after five seconds."""
_NEXT_ADDRESS_AFTER_S: Final = 0.25
_CLOSE_TIMEOUT_S: Final = 1.0
_FRESH_S: Final = 1.0
"""How long an unused connection is trusted to be open without asking the kernel."""
_BODILESS: Final = frozenset({204, 304})
_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = "%/:@!$&'()*+,;=~-._?[]"
_BOM: Final = b"\xef\xbb\xbf"

Feed = Callable[[bytes], None]


class Reason(StrEnum):
    """Why there is no usable response; the value is how it is said, without the address."""

    REFUSED = "the connection was refused"
    UNKNOWN_HOST = "its name is not known"
    INVALID_ADDRESS = "the address is not valid"
    NO_TLS = "it does not speak TLS as it should"
    UNTRUSTED = "its certificate is not trusted"
    NOT_HTTP = "its response is not HTTP"
    NO_RESPONSE = "the connection was closed without a response"
    CUT_OFF = "the connection was closed in the middle of the response"
    CLOSED = "the connection was closed"
    TIMEOUT = "it took too long"
    OTHER = "no connection could be made"


class HttpError(Exception):
    """There is no usable response; `sent` when the server may have received the request."""

    def __init__(self, reason: Reason, message: str = "", *, sent: bool = True) -> None:
        super().__init__(message or reason.value)
        self.reason = reason
        self.sent = sent


class TooLarge(HttpError):
    """A response has more bytes than are accepted."""

    def __init__(self, limit: int) -> None:
        size = f"{limit // (1024 * 1024)} MiB" if limit >= 1024 * 1024 else f"{limit} bytes"
        super().__init__(Reason.OTHER, f"more than {size}")


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a URL that a request needs."""

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

    def resolve_redirect(self, location: str) -> Address | None:
        """Where a redirect leads, if it stays at this origin."""
        try:
            target = parse_address(urljoin(f"{self.scheme}://{self.authority}{self.target}", location))
        except (HttpError, ValueError):
            return None
        is_same = (target.scheme, target.host, target.port) == (self.scheme, self.host, self.port)
        return target if is_same else None


def parse_address(url: str) -> Address:
    """The address of a URL; an `HttpError` if it is not one of HTTP."""
    try:
        parts = urlsplit(url.strip())
        host = (parts.hostname or "").encode("ascii" if url.isascii() else "idna").decode()
        port = parts.port
    except (ValueError, UnicodeError):
        raise HttpError(Reason.INVALID_ADDRESS, sent=False) from None
    if parts.scheme not in _PORTS or not host or any(character.isspace() for character in host):
        raise HttpError(Reason.INVALID_ADDRESS, sent=False)
    query = f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
    credentials = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = base64.b64encode(pair.encode()).decode()
    target = (quote(parts.path, safe=_SAFE) or "/") + query
    return Address(parts.scheme, host, _PORTS[parts.scheme] if port is None else port, target, credentials)


def find_proxy(address: Address, environ: Mapping[str, str] = os.environ) -> Address | None:
    """The proxy that the environment names for an address: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, in either case.

    This machine is always reached directly. An `HttpError` for a proxy that cannot be used: going around it in silence
    could send what must not leave the network in any other way.
    """
    variable = f"{address.scheme}_proxy"
    # A CGI server puts the header `Proxy` of its client into HTTP_PROXY.
    is_forged = address.scheme == "http" and "REQUEST_METHOD" in environ
    url = environ.get(variable) or ("" if is_forged else environ.get(variable.upper(), ""))
    if not url.strip() or _bypasses_proxy(address, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    try:
        proxy = parse_address(url if "://" in url else f"http://{url}")
    except HttpError:
        proxy = None
    if proxy is None or proxy.scheme != "http":
        raise HttpError(Reason.OTHER, f"{variable.upper()} has to look like http://user:password@host:port", sent=False)
    return proxy


def _bypasses_proxy(address: Address, exceptions: str) -> bool:
    try:
        ip = ip_address(address.host)
    except ValueError:
        ip = None
    name = address.host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost") or (ip is not None and ip.is_loopback):
        return True
    for entry in exceptions.lower().replace(",", " ").split():
        if entry == "*":
            return True
        host, colon, port = entry.rpartition(":")
        if colon and port.isdigit() and ("]" in host or ":" not in host):
            if int(port) != address.port:
                continue
            entry = host
        suffix = entry.removeprefix("*").strip(".")
        if ip is None and suffix and f".{name}".endswith(f".{suffix}"):
            return True
        with suppress(ValueError):
            if ip is not None and ip in ip_network(entry.strip("[]"), strict=False):
                return True
    return False


class Response:
    """What a server answered; names of headers are in lower case."""

    __slots__ = ("body", "has_head", "headers", "is_complete", "keeps_alive", "reason", "status")

    def __init__(self) -> None:
        self.status = 0
        self.reason = ""
        self.headers: dict[bytes, bytes] = {}
        self.body: bytes = b""
        self.has_head = False
        self.is_complete = False
        self.keeps_alive = False

    @property
    def content_type(self) -> str:
        """The type of the content, without its parameters."""
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")

    @property
    def ends_with_connection(self) -> bool:
        """Whether only the end of the connection ends it: there is neither a length nor chunks."""
        headers = self.headers
        return not (b"content-length" in headers or b"transfer-encoding" in headers or self.status in _BODILESS)


class Request:
    """A request to be sent; subclasses handle its response. Both handlers are called from the loop, at most once."""

    __slots__ = ("connecting", "connection", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None

    def on_head(self, response: Response) -> Feed | None:
        """The head has arrived; the body goes to the function returned, or else whole into the response."""
        return None

    def on_end(self, response: Response | None, problem: Exception | None) -> None:
        """The response is complete, or never will be."""


class Connection(asyncio.Protocol):
    """Carries one request after the other; calls `on_free` when it can carry the next, `on_lost` when it is gone."""

    def __init__(
        self,
        on_free: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
        max_body: int = MAX_BODY_BYTES,
        proxied: tuple[bytes, bytes] | None = None,
    ) -> None:
        self.idle_since = 0.0
        self._on_free = on_free
        self._on_lost = on_lost
        self._max_body = max_body
        self._proxied = proxied
        """The origin and the login, where this is a connection to a proxy that sends requests on."""
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._request: Request | None = None
        self._response = Response()
        self._feed: Feed | None = None
        self._rest = bytearray()
        self._overhead = 0
        self._has_surplus = False

    def send(self, request: Request) -> None:
        """Send a request and hand it its response."""
        assert self._transport is not None
        request.connection, self._request = self, request
        self._response = Response()
        self._feed, self._overhead, self._has_surplus = None, 0, False
        self._rest.clear()
        data = request.data
        if self._proxied is not None:
            origin, login = self._proxied
            # The request line to a proxy has the whole URL.
            verb, target, rest = data.split(b" ", 2)
            data = b"%b %b%b %b" % (verb, origin, target, rest.replace(b"\r\n", b"\r\n" + login, 1))
        self._transport.write(data)

    def is_open(self) -> bool:
        """Whether nothing has arrived on an unused connection, not even its end."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if running_loop().time() - self.idle_since < _FRESH_S:
            return True
        # The server may have closed the connection while the loop was busy with other things. A request sent then
        # would fail, and whether the server had acted on it would be unknown, so the kernel is asked first.
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def is_busy_with(self, request: Request) -> bool:
        """Whether the response that comes next is for `request`."""
        return self._request is request

    def abort(self) -> None:
        """Close at once, without ending the request."""
        self._request = None
        if self._transport is not None:
            self._transport.abort()

    def fail(self, problem: Exception) -> None:
        """Close at once, and end the request with the problem."""
        request = self._request
        self.abort()
        if request is not None:
            request.on_end(None, problem)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the loop; a server that sends something without a request loses its connection."""
        if self._request is None:
            self.abort()
            return
        self._overhead += len(data)
        problem: Exception | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            problem = error.__context__ if isinstance(error.__context__, Exception) else error
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            problem = HttpError(Reason.NOT_HTTP)
        if self._response.is_complete:
            self._finish(is_clean=problem is None)
        elif problem is not None:
            self.fail(problem)
        elif self._overhead > MAX_OVERHEAD_BYTES:
            limit = f"the head of its response is longer than {MAX_OVERHEAD_BYTES // 1024} KiB"
            self.fail(HttpError(Reason.OTHER, limit))

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop; the end of the connection also ends a response that has neither length nor chunks."""
        request, self._request, self._transport = self._request, None, None
        self._on_lost(self)
        if request is None:
            return
        response = self._response
        if error is None and response.has_head and response.ends_with_connection:
            response.body += self._rest
            request.on_end(response, None)
        else:
            request.on_end(None, HttpError(Reason.CUT_OFF if response.has_head else Reason.NO_RESPONSE))

    # Called by the parser. After a complete response everything else is surplus: a server that answers twice could
    # otherwise have its second answer taken for that of the next request.

    def on_message_begin(self) -> None:
        """A response begins."""
        self._has_surplus = self._response.is_complete

    def on_status(self, reason: bytes) -> None:
        """The words of the status line, perhaps in parts."""
        if not self._response.is_complete:
            self._response.reason += reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; those after the body, the trailers, are left out."""
        if not self._response.has_head:
            self._response.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head is complete; one with a status of 1xx only announces another response."""
        status = self._parser.get_status_code()
        response = self._response
        if response.is_complete or status < 200:
            return
        response.status, response.has_head, self._overhead = status, True, 0
        encoding = response.headers.get(b"content-encoding", b"identity")
        if encoding.strip().lower() != b"identity":
            raise HttpError(Reason.OTHER, "it compressed its response, which was not asked for")
        assert self._request is not None
        self._feed = self._request.on_head(response)
        length = response.headers.get(b"content-length", b"")
        if self._feed is None and length.isdigit() and int(length) > self._max_body:
            raise TooLarge(self._max_body)

    def on_body(self, piece: bytes) -> None:
        """Part of the body."""
        response = self._response
        if response.is_complete:
            return
        if not response.has_head:
            # It would be taken for the beginning of the response that is announced.
            raise HttpError(Reason.NOT_HTTP)
        self._overhead = 0
        if self._feed is not None:
            self._feed(piece)
            return
        # Most bodies are one piece, which then is not copied.
        if not response.body:
            response.body = piece
        else:
            self._rest += piece
        if len(response.body) + len(self._rest) > self._max_body:
            raise TooLarge(self._max_body)

    def on_message_complete(self) -> None:
        """The response is complete; one that only announced another leaves no trace."""
        if self._response.has_head:
            # The parser forgets this when the callback returns.
            self._response.keeps_alive = self._parser.should_keep_alive()
            self._response.is_complete = True
        else:
            self._response = Response()

    def _finish(self, is_clean: bool) -> None:
        request, self._request = self._request, None
        transport, response = self._transport, self._response
        if request is None or transport is None:
            return
        if self._rest:
            response.body += self._rest
        # Kept only if both sides agree where the response ended, and the server has read the whole request.
        can_go_on = is_clean and not self._has_surplus and response.keeps_alive
        if can_go_on and not transport.is_closing() and not transport.get_write_buffer_size():
            # Before the request ends: a handler that sends the next one at once finds this connection.
            self._on_free(self)
        else:
            transport.abort()
        request.on_end(response, None)


class ConnectionPool:
    """Connections to one origin, up to a limit; requests beyond it wait for one in their order."""

    def __init__(
        self,
        address: Address,
        *,
        tls: ssl.SSLContext | None = None,
        max_connections: int = MAX_CONNECTIONS,
        max_body: int = MAX_BODY_BYTES,
        idle_timeout: float = IDLE_TIMEOUT_S,
        connect_timeout: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._address = address
        self._tls = tls
        self._max_connections = max_connections
        self._max_body = max_body
        self._idle_timeout = idle_timeout
        self._connect_timeout = connect_timeout
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        """In the order in which they were left, so the freshest is the last."""
        self._waiting: dict[Request, None] = {}
        self._connecting: dict[Request, asyncio.Task[None]] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None

    def send(self, request: Request, *, is_urgent: bool = False) -> None:
        """Send a request as soon as there is a connection; an urgent one ignores the limit."""
        if not is_urgent and self._busy >= self._max_connections:
            self._waiting[request] = None
            return
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open():
                connection.send(request)
                return
            connection.abort()
        # A connection outlives the call that opened it, so it must not run in the context of that call.
        task = running_loop().create_task(self._connect(request), context=Context())
        request.connecting = self._connecting[request] = task
        task.add_done_callback(lambda task: self._after_connecting(request, task))

    def cancel(self, request: Request) -> None:
        """Forget a request, whose handlers are not called any more; a connection that is busy with it is closed."""
        self._waiting.pop(request, None)
        if request.connection is not None:
            if request.connection.is_busy_with(request):
                request.connection.abort()
        elif request.connecting is not None:
            self._connecting.pop(request, None)
            request.connecting.cancel()

    async def close(self) -> None:
        """Close all connections and fail the requests that wait for a response."""
        self._emptied = asyncio.Event()
        unsent, tasks = [*self._waiting, *self._connecting], list(self._connecting.values())
        self._waiting.clear()
        for task in tasks:
            task.cancel()
        for request in unsent:
            request.on_end(None, HttpError(Reason.CLOSED, sent=False))
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for connection in tuple(self._connections):
            connection.fail(HttpError(Reason.CLOSED))
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                if tasks:
                    await asyncio.wait(tasks)
                if self._connections:
                    await self._emptied.wait()

    @property
    def _busy(self) -> int:
        """How many connections carry a request, or soon will."""
        return len(self._connections) - len(self._idle) + len(self._connecting)

    async def _connect(self, request: Request) -> None:
        address = self._address
        try:
            async with asyncio.timeout(self._connect_timeout):
                if address.scheme == "https" and self._tls is None:
                    # Reading all certificates of the system takes a while.
                    self._tls = await running_loop().run_in_executor(None, ssl.create_default_context)
                connection = await self._open(address, find_proxy(address))
        except Exception as error:  # whatever it is, the caller has to hear of it
            if isinstance(error, HttpError):
                problem = error
            elif type(error) is TimeoutError:
                problem = HttpError(Reason.TIMEOUT, f"no connection within {self._connect_timeout:g} s", sent=False)
            else:
                problem = HttpError(*explain_connect_error(error), sent=False)
            self._connecting.pop(request, None)
            request.on_end(None, problem)
            return
        self._connecting.pop(request, None)
        if connection.is_open():
            self._connections.add(connection)
            connection.send(request)
        else:
            connection.abort()
            request.on_end(None, HttpError(Reason.CLOSED, "the connection was closed at once", sent=False))

    async def _open(self, address: Address, proxy: Address | None) -> Connection:
        is_secret = address.scheme == "https"
        proxied = None
        if proxy is not None and not is_secret:
            proxied = f"http://{address.authority}".encode(), _login(proxy).encode()
        sock = await _open_socket(proxy or address)
        try:
            if proxy is not None and is_secret:
                await _open_tunnel(sock, proxy, address)
            _, connection = await running_loop().create_connection(
                lambda: Connection(self._reuse, self._discard, self._max_body, proxied),
                sock=sock,
                ssl=self._tls if is_secret else None,
                server_hostname=address.host if is_secret else None,
            )
        except BaseException:
            sock.close()
            raise
        return connection

    def _after_connecting(self, request: Request, task: asyncio.Task[None]) -> None:
        if self._connecting.get(request) is task:
            del self._connecting[request]
        self._send_waiting()

    def _reuse(self, connection: Connection) -> None:
        # Urgent requests may have exceeded the limit; a waiting one is only sent when it holds again.
        if self._waiting and self._busy <= self._max_connections:
            connection.send(self._pop_waiting())
            return
        connection.idle_since = running_loop().time()
        self._idle.append(connection)
        if self._idle_timer is None:
            self._idle_timer = running_loop().call_later(self._idle_timeout, self._close_idle)

    def _discard(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._emptied is None:
            self._send_waiting()
        elif not self._connections:
            self._emptied.set()

    def _send_waiting(self) -> None:
        while self._waiting and self._busy < self._max_connections:
            self.send(self._pop_waiting())

    def _pop_waiting(self) -> Request:
        request = next(iter(self._waiting))
        del self._waiting[request]
        return request

    def _close_idle(self) -> None:
        now, self._idle_timer = running_loop().time(), None
        while self._idle and self._idle[0].idle_since + self._idle_timeout <= now:
            self._idle.pop(0).abort()
        if self._idle:
            left = self._idle[0].idle_since + self._idle_timeout - now
            self._idle_timer = running_loop().call_later(left, self._close_idle)


async def look_up(host: str, port: int) -> list[AddrInfoType]:
    """All addresses of a host; a plain IPv4 address costs no thread."""
    try:
        address = str(IPv4Address(host))
    except ValueError:
        return cast("list[AddrInfoType]", await running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))]


async def _open_socket(address: Address) -> socket.socket:
    """A connected socket; an address that does not answer is given up for the next one soon (RFC 8305)."""
    infos = await look_up(address.host, address.port)
    return await start_connection(infos, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER_S, interleave=1)


async def _open_tunnel(sock: socket.socket, proxy: Address, address: Address) -> None:
    """Have a proxy connect a socket to an address."""
    loop = running_loop()
    host = f"[{address.host}]" if ":" in address.host else address.host
    target = f"{host}:{address.port}"
    await loop.sock_sendall(sock, f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{_login(proxy)}\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        piece = await loop.sock_recv(sock, 4096)
        head += piece
        if not piece or len(head) > MAX_OVERHEAD_BYTES:
            raise HttpError(Reason.NOT_HTTP, "the proxy did not answer as a proxy does", sent=False)
    status, _, reason = head.partition(b"\r\n")[0].partition(b" ")[2].partition(b" ")
    # The server does not speak first in TLS, so what follows the head could only come from the proxy itself.
    if not status.startswith(b"2") or not head.endswith(b"\r\n\r\n"):
        text = f"{status.decode('latin-1')} {reason.decode('latin-1')}".strip()[:100]
        raise HttpError(Reason.OTHER, f"the proxy refused to connect to it: {text}", sent=False)


def _login(proxy: Address) -> str:
    return f"Proxy-Authorization: Basic {proxy.credentials}\r\n" if proxy.credentials else ""


def explain_connect_error(error: Exception) -> tuple[Reason, str]:
    """Why there is no connection, and how that is said without the address."""
    reason = Reason.OTHER
    if isinstance(error, ConnectionRefusedError):
        reason = Reason.REFUSED
    elif isinstance(error, socket.gaierror):
        reason = Reason.UNKNOWN_HOST
    elif isinstance(error, ssl.SSLCertVerificationError):
        return Reason.UNTRUSTED, f"{Reason.UNTRUSTED}: {error.verify_message.partition(',')[0].rstrip('.')}"
    elif isinstance(error, ssl.SSLError):
        reason = Reason.NO_TLS
    elif isinstance(error, (OverflowError, UnicodeError)):
        reason = Reason.INVALID_ADDRESS
    return reason, reason.value


class EventStream:
    """Hands on the data of each server-sent event; the time it takes is linear in the bytes, however they are cut."""

    def __init__(self, receive: Callable[[bytes], None], max_bytes: int = MAX_BODY_BYTES) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._is_first = True
        self._is_after_return = False

    def feed(self, piece: bytes) -> None:
        """Take the next bytes; an event that is too large is a `TooLarge`."""
        if self._is_after_return or b"\r" in piece:
            piece = self._unify_line_ends(piece)
        *lines, rest = piece.split(b"\n")
        for line in lines:
            if self._line:
                self._line += line
                line = bytes(self._line)
                self._line.clear()
            self._take_line(line)
        self._line += rest
        if self._size + len(self._line) > self._max_bytes:
            raise TooLarge(self._max_bytes)

    def _unify_line_ends(self, piece: bytes) -> bytes:
        """The bytes with line feeds only; the two bytes of one line end may arrive in different pieces."""
        if not piece:
            return piece
        if self._is_after_return:
            piece = piece.removeprefix(b"\n")
        self._is_after_return = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take_line(self, line: bytes) -> None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._size += len(line)
        elif not line and self._data:
            body = b"\n".join(self._data)
            self._data.clear()
            self._size = 0
            if body:
                self._receive(body)
