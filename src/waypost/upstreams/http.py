"""The streamable HTTP transport: each message is a POST, and its answers come back as JSON or as events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from waypost.config.models import McpConnection
from waypost.errors import RemoteError
from waypost.loops import running_loop
from waypost.outbound.http1 import (
    Address,
    ConnectionPool,
    EventStream,
    Feed,
    HttpError,
    Reason,
    Request,
    Response,
    TooLarge,
    parse_address,
)
from waypost.upstreams.jsonrpc import CURRENT_CALL, run_as_call
from waypost.upstreams.transport import (
    NO_HEADERS,
    Ended,
    NamedError,
    Receive,
    UpstreamUnavailable,
    shorten,
    to_header_value,
)
from waypost.version import __version__
from waypost.wire.messages import find_id
from waypost.wire.versions import is_modern

EVENTS: Final = "text/event-stream"
JSON: Final = "application/json"
_OWN_HEADERS: Final = {
    "user-agent": f"waypost/{__version__}",
    "accept": f"{JSON}, {EVENTS}",
    # The HTTP client does not decompress.
    "accept-encoding": "identity",
    "content-type": JSON,
}
_RESERVED_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "transfer-encoding",
    }
)
"""Headers that say how a message is sent, which the configuration cannot set."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# All but the tab: a line break in a value would add headers of its own.
_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Only these keep the method and the body.
_FOLLOWED: Final = (307, 308)
_TOO_MANY_REQUESTS: Final = 429
_MAX_REDIRECTS: Final = 5
_NOTIFICATION_TIMEOUT_S: Final = 30.0
_END_SESSION_TIMEOUT_S: Final = 2.0
_REOPEN_STREAM_AFTER_S: Final = 5.0


class HttpTransport:
    """Talks to a server at a URL."""

    round_trips: Final = True

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self._url = url
        self._headers = headers or {}
        self.session_id: bytes | None = None
        self._pool: ConnectionPool | None = None
        self.receive: Receive = lambda _: None

    async def open(self, receive: Receive) -> None:
        """Get ready to send; connections are opened when they are needed."""
        self.receive = receive
        # The second era is tried over the same connections.
        if self._pool is not None:
            return
        try:
            self.address = parse_address(self._url)
            self._static = _build_headers(self.address, _OWN_HEADERS, self._headers)
            self._static_of_streams = _build_headers(self.address, {**_OWN_HEADERS, "accept": EVENTS}, self._headers)
        except HttpError as problem:
            raise self.to_error(problem) from None
        self._target = self.address.target.encode()
        self._pool = ConnectionPool(self.address)

    def start_request(
        self, data: bytes, version: str, method: str | None, name: str | None, extra: Mapping[str, str], ended: Ended
    ) -> RoundTrip:
        """Post one message and hand on what comes back; `ended` is called, later, when that was all."""
        head = _modern_headers(version, method, name) if is_modern(version) else self._session_headers(version)
        for header, value in extra.items():
            head += b"%b: %b\r\n" % (header.encode(), value.encode())
        if self._pool is None:
            raise self.to_error(HttpError(Reason.CLOSED, "the transport was closed", sent=False))
        request = b"POST %b HTTP/1.1\r\n%b%bContent-Length: %d\r\n\r\n%b" % (
            self._target,
            self._static,
            head,
            len(data),
            data,
        )
        # A notification or a response must not wait for a request, which may itself be waiting for it.
        return RoundTrip(self, self._pool, request, ended, is_urgent=method is None)

    async def send(
        self, data: bytes, version: str, method: str | None, name: str | None, extra: Mapping[str, str] = NO_HEADERS
    ) -> None:
        """Post one message, hand on what comes back, and wait until that was all."""
        done: asyncio.Future[None] = running_loop().create_future()
        started = self.start_request(data, version, method, name, extra, _resolve(done))
        try:
            async with asyncio.timeout(_NOTIFICATION_TIMEOUT_S if method is None else None):
                await done
        except TimeoutError:
            late = f"it did not accept a message within {_NOTIFICATION_TIMEOUT_S:g} s"
            raise self.to_error(HttpError(Reason.TIMEOUT, late)) from None
        finally:
            started.cancel()

    async def close(self) -> None:
        """End the session, if there is one, and all connections."""
        if self._pool is None:
            return
        if self.session_id is not None:
            await self._end_session(self._pool, self.session_id)
        pool, self._pool = self._pool, None
        await pool.close()

    def accept(self, response: Response) -> None:
        """Hand on a whole response, and raise what is wrong with it."""
        status, content_type = response.status, response.content_type
        if 300 <= status < 400:
            raise self.to_refusal(response)
        if content_type == JSON:
            self.receive(response.body)
        elif content_type == EVENTS:
            EventStream(self.receive).feed(response.body)
        elif response.body:
            raise self.to_refusal(response)
        # A JSON-RPC error in the body has answered the request by now, so that this error only counts if there was
        # none.
        if status >= 400:
            raise self.to_refusal(response)

    def to_refusal(self, response: Response) -> Exception:
        """The error for a response that is no answer."""
        status = response.status
        if 300 <= status < 400:
            return RemoteError(f"{self._url} answered {status}, a redirect that is not followed.", -32000)
        if response.content_type not in (JSON, EVENTS) and response.body:
            return RemoteError(f"{self._url} answered {status} with {response.content_type}, which is not MCP.", -32000)
        return RemoteError(f"{self._url} answered {status}: {_read_error(response)}", -32000, status=status)

    def to_error(self, problem: HttpError) -> Exception:
        """The error for a request without a response."""
        if isinstance(problem, TooLarge):
            return RemoteError(f"{self._url} answered with {problem}, which is refused.", -32000)
        return RemoteError(f"{self._url} cannot be reached: {problem}.", -32000)

    async def _end_session(self, pool: ConnectionPool, session_id: bytes) -> None:
        done: asyncio.Future[None] = running_loop().create_future()
        data = b"DELETE %b HTTP/1.1\r\n%bMcp-Session-Id: %b\r\n\r\n" % (self._target, self._static, session_id)
        started = RoundTrip(self, pool, data, _resolve(done), is_urgent=True)
        try:
            async with asyncio.timeout(_END_SESSION_TIMEOUT_S):
                await done
        except (RemoteError, OSError):
            return
        finally:
            started.cancel()

    def _session_headers(self, version: str) -> bytes:
        if self.session_id is None:
            return b""
        return b"MCP-Protocol-Version: %b\r\nMcp-Session-Id: %b\r\n" % (
            to_header_value(version).encode(),
            self.session_id,
        )


class UpstreamHttpTransport(HttpTransport):
    """The transport of a connection.

    Its errors name the connection instead of the URL, which may hold a key. A server that cannot be reached, or that
    has ended the session, is an `UpstreamUnavailable`.
    """

    def __init__(self, name: str, connection: McpConnection) -> None:
        super().__init__(connection.url or "", dict(connection.headers))
        self._name = name
        self._connection = connection

    async def follow(self, version: str) -> None:
        """Hand on what a server with sessions sends outside of responses, until it refuses such a stream."""
        while self._pool is not None and self.session_id is not None:
            head = _modern_headers(version, None, None) if is_modern(version) else self._session_headers(version)
            data = b"GET %b HTTP/1.1\r\n%b%b\r\n" % (self._target, self._static_of_streams, head)
            stream = _ServerStream(data, self.receive)
            self._pool.send(stream, is_urgent=True)
            try:
                await stream.is_over.wait()
            finally:
                if self._pool is not None:
                    self._pool.cancel(stream)
            if stream.is_refused:
                return
            await asyncio.sleep(_REOPEN_STREAM_AFTER_S)

    def accept(self, response: Response) -> None:
        """Hand on a whole response, and raise what is wrong with it or with the server."""
        status = response.status
        # Some servers answer requests of a session that they have forgotten with 400, and without an id.
        is_forgotten = status == 404 or (status == 400 and find_id(response.body) is None)
        if is_forgotten and self.session_id is not None:
            raise UpstreamUnavailable(f'The server of the connection "{self._name}" has ended the session.')
        # What the server answers itself is JSON; other content is that of a proxy whose server is down or overloaded.
        if (status >= 500 or status == _TOO_MANY_REQUESTS) and response.content_type != JSON:
            raise UpstreamUnavailable(self._explain_status(response), delivered=True)
        super().accept(response)

    def to_refusal(self, response: Response) -> Exception:
        """The error for a response that is no answer."""
        status = response.status
        server = f'The server of the connection "{self._name}"'
        if 300 <= status < 400:
            redirect = f"{server} answered {status}, a redirect that is not followed; set its url to where it leads."
            return NamedError(redirect, -32000)
        if status >= 400:
            return NamedError(self._explain_status(response), -32000)
        content = f"with {response.content_type}" if response.content_type else "without a type"
        return NamedError(f"{server} answered {status} {content}, which is not MCP; {_CORRECT_PATH}.", -32000)

    def to_error(self, problem: HttpError) -> Exception:
        """The error for a request without a response."""
        if problem.reason is Reason.CLOSED and self._pool is None:
            return UpstreamUnavailable(f'The connection "{self._name}" was closed.', delivered=problem.sent)
        if isinstance(problem, TooLarge):
            return RemoteError(f"The server answered with {problem}, which is refused.", -32000)
        advice = _ADVICE.get(problem.reason)
        reason = f"{problem}; {advice}" if advice else str(problem)
        return UpstreamUnavailable(
            f'The connection "{self._name}" cannot be reached: {reason}.', delivered=problem.sent
        )

    def _explain_status(self, response: Response) -> str:
        status = response.status
        advice = _STATUS_ADVICE.get(status, _SEE_LOG)
        if status == 401 and self._connection.credentials == "user":
            advice = f"`waypost upstreams login {self._name}` stores a credential"
        # A message that repeats the URL would give away a key in it.
        message = shorten(_read_error(response).replace(self._url, "its url"))
        return f'The server of the connection "{self._name}" answered {status}: {message}; {advice}.'


_SEE_LOG: Final = "look at its log"
_CORRECT_PATH: Final = "correct its url (most MCP servers are at a path such as /mcp)"
_ADVICE: Final = {
    Reason.REFUSED: "start its server, or correct its url",
    Reason.UNKNOWN_HOST: "correct the host in its url",
    Reason.INVALID_ADDRESS: "its url has to look like https://host/mcp",
    Reason.NO_TLS: "if it speaks none, its url has to begin with http:",
    Reason.UNTRUSTED: "let SSL_CERT_FILE name a file with the authority that signed it",
    Reason.NOT_HTTP: "correct the port in its url",
    Reason.NO_RESPONSE: f"{_SEE_LOG}, and check whether its url has to begin with https:",
    Reason.CUT_OFF: _SEE_LOG,
}
"""What to do about a server that cannot be reached."""
_STATUS_ADVICE: Final = {
    401: "put a credential that it accepts into the headers of the connection",
    403: "put a credential with sufficient rights into the headers of the connection",
    404: _CORRECT_PATH,
    405: f"{_CORRECT_PATH}, which has to accept messages by POST",
    407: "the proxy in front of it wants a login",
    429: "make fewer calls, or try again later",
}


class RoundTrip(Request):
    """One message and everything that comes back for it; sent when it is made."""

    __slots__ = ("_call", "_ended", "_is_urgent", "_pool", "_redirects", "_transport")

    def __init__(
        self, transport: HttpTransport, pool: ConnectionPool, data: bytes, ended: Ended, *, is_urgent: bool
    ) -> None:
        self.data = data
        self.connection = self.connecting = None
        self._transport = transport
        self._pool = pool
        self._ended = ended
        self._is_urgent = is_urgent
        # Responses are read in the context of the connection, which an earlier call may have opened.
        self._call = CURRENT_CALL.get()
        self._redirects = 0
        pool.send(self, is_urgent=is_urgent)

    def cancel(self) -> None:
        """Do not wait any longer; the connection is closed if the server is still busy with it."""
        self._pool.cancel(self)

    def on_head(self, response: Response) -> Feed | None:
        """Have events handed on as they arrive."""
        transport = self._transport
        transport.session_id = response.headers.get(b"mcp-session-id", transport.session_id)
        if response.status != 200 or response.content_type != EVENTS:
            return None
        return run_as_call(self._call, EventStream(transport.receive).feed)

    def on_end(self, response: Response | None, problem: Exception | None) -> None:
        """Hand on a whole response, and report the end."""
        try:
            if isinstance(problem, HttpError):
                problem = self._transport.to_error(problem)
            elif response is not None:
                if response.status in _FOLLOWED and self._follow_redirect(response):
                    return
                self._transport.accept(response)
        except HttpError as error:
            problem = self._transport.to_error(error)
        # What is wrong with one response must not reach the connection, whose parser calls this.
        except Exception as error:
            problem = error
        self._ended(problem)

    def _follow_redirect(self, response: Response) -> bool:
        """Whether the request was sent again, to another path of the same origin."""
        location = response.headers.get(b"location", b"").decode("latin-1")
        # Only on the same origin: the headers may hold credentials.
        target = self._transport.address.resolve_redirect(location)
        if target is None or self._redirects == _MAX_REDIRECTS:
            return False
        self._redirects += 1
        verb, _, rest = self.data.split(b" ", 2)
        self.data = b"%b %b %b" % (verb, target.target.encode(), rest)
        self.connection = self.connecting = None
        self._pool.send(self, is_urgent=self._is_urgent)
        return True


class _ServerStream(Request):
    """The stream of messages that a server sends outside of responses."""

    __slots__ = ("_receive", "is_over", "is_refused")

    def __init__(self, data: bytes, receive: Receive) -> None:
        super().__init__(data)
        self.is_over = asyncio.Event()
        self.is_refused = False
        self._receive = receive

    def on_head(self, response: Response) -> Feed | None:
        self.is_refused = response.status != 200 or response.content_type != EVENTS
        return None if self.is_refused else EventStream(self._receive).feed

    def on_end(self, _response: Response | None, _problem: Exception | None) -> None:
        self.is_over.set()


@lru_cache(1024)
def _modern_headers(version: str, method: str | None, name: str | None) -> bytes:
    """The headers by which proxies route a request of the stateless era."""
    head = f"MCP-Protocol-Version: {version}\r\n"
    if method:
        head += f"Mcp-Method: {to_header_value(method)}\r\n"
    if name:
        head += f"Mcp-Name: {to_header_value(name)}\r\n"
    return head.encode()


def _build_headers(address: Address, own: Mapping[str, str], given: Mapping[str, str]) -> bytes:
    """The headers that every request has; those of the configuration win, unless they are reserved."""
    headers = dict(own)
    if address.credentials:
        headers["authorization"] = f"Basic {address.credentials}"
    shown = {name: name.title() for name in headers}
    for name, value in given.items():
        if not _HEADER_NAME.fullmatch(name) or _CONTROL_CHARACTER.search(value):
            raise HttpError(Reason.OTHER, f"the header {name!r} holds what no header may hold", sent=False)
        if name.lower() not in _RESERVED_HEADERS:
            headers[name.lower()], shown[name.lower()] = value.strip(), name
    lines = [f"Host: {address.authority}\r\n", *(f"{shown[name]}: {value}\r\n" for name, value in headers.items())]
    return "".join(lines).encode()


def _resolve(future: asyncio.Future[None]) -> Ended:
    def ended(problem: Exception | None) -> None:
        if future.done():
            return
        if problem is None:
            future.set_result(None)
        else:
            future.set_exception(problem)

    return ended


def _read_error(response: Response) -> str:
    """The message in an error response, or else the reason in its status line."""
    try:
        error = msgspec.json.decode(response.body)["error"]
        error = error if isinstance(error, str) else error["message"]
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, KeyError):
        return response.reason
    return error if isinstance(error, str) else response.reason
