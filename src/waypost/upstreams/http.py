"""The HTTP link: each message is a POST, its answers come back as JSON or as events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from waypost.config.executors import McpConnection
from waypost.errors import RemoteError
from waypost.loops import running_loop
from waypost.upstreams import advice
from waypost.upstreams.http1 import (
    Address,
    Events,
    Exchange,
    HttpError,
    Pool,
    Reader,
    Response,
    Take,
    TooLarge,
    address_of,
)
from waypost.upstreams.server_requests import HERE, on_stream_of
from waypost.upstreams.transport import NamedError, UpstreamUnavailable, header_value
from waypost.version import __version__
from waypost.wire.messages import readable_id
from waypost.wire.versions import is_modern

NO_HEADERS: Final[Mapping[str, str]] = {}
EVENTS: Final = "text/event-stream"
JSON: Final = "application/json"
_OWN: Final = {
    "user-agent": f"waypost/{__version__}",
    "accept": f"{JSON}, {EVENTS}",
    "accept-encoding": "identity",
    "content-type": JSON,
}
_SPOKEN_FOR: Final = frozenset(
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
"""Headers that say how a message is sent, which is not for the configuration to say."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FOLLOWED: Final = (307, 308)
_MOST_REDIRECTIONS: Final = 5
_NOTE_WITHIN: Final = 30.0
"""Seconds in which a server has to take a message that has no answer."""

_PART_WITHIN: Final = 2.0
"""Seconds in which it has to take that a session is over."""

Ended = Callable[[Exception | None], None]


class LinkClosed(HttpError):
    """A link that is not open, or no longer."""

    def __init__(self) -> None:
        super().__init__("the link was closed", sent=False)


class HttpLink:
    """Talks to a server at a URL."""

    round_trips: Final = True

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self._url = url
        self._headers = headers or {}
        self._session_id: bytes | None = None
        self._pool: Pool | None = None
        self._receive: Callable[[bytes], None] = lambda _: None

    async def open(self, receive: Callable[[bytes], None]) -> None:
        """Get ready to send."""
        self._receive = receive
        if self._pool is not None:
            return
        try:
            self.address = address_of(self._url)
            self._static = _static(self.address, _OWN, self._headers)
            self._static_of_streams = _static(self.address, {**_OWN, "accept": EVENTS}, self._headers)
        except HttpError as problem:
            raise self.failure(problem) from None
        self._target = self.address.target.encode()
        self._pool = Pool(self.address)

    def begin(
        self,
        data: bytes,
        version: str,
        method: str | None,
        name: str | None,
        extra: Mapping[str, str],
        ended: Ended,
    ) -> Round:
        """Post one message and hand on what comes back; `ended` is called, later, when that was all."""
        head = self._routing(version, method, name)
        for header, value in extra.items():
            head += b"%b: %b\r\n" % (header.encode(), value.encode())
        head += b"Content-Length: %d\r\n" % len(data)
        # What is no request never waits for one, which may be waiting for it.
        started = Round(self, ended, is_urgent=method is None)
        started.go(self.asking(b"POST", head, data))
        return started

    async def send(
        self, data: bytes, version: str, method: str | None, name: str | None, extra: Mapping[str, str] = NO_HEADERS
    ) -> None:
        """Post one message, hand on what comes back, and wait until that was all."""
        done: asyncio.Future[None] = running_loop().create_future()
        started = self.begin(data, version, method, name, extra, _settles(done))
        try:
            async with asyncio.timeout(_NOTE_WITHIN if method is None else None):
                await done
        except TimeoutError:
            raise self.failure(HttpError(f"it took longer than {_NOTE_WITHIN:g} s to take a message")) from None
        finally:
            started.cancel()

    async def close(self) -> None:
        """End the session, if there is one, and all connections."""
        if self._pool is None:
            return
        if self._session_id is not None:
            await self._end_session()
        pool, self._pool = self._pool, None
        await pool.close()

    def start(self, data: bytes, reader: Reader, *, is_urgent: bool) -> Exchange:
        """Send the bytes of a request."""
        if self._pool is None:
            raise self.failure(LinkClosed())
        return self._pool.start(data, reader, is_urgent=is_urgent)

    def taker(self, response: Response) -> Take | None:
        """Whatever takes the body of a response as it comes: events do not wait for the end."""
        self._session_id = response.headers.get(b"mcp-session-id", self._session_id)
        return Events(self._receive).feed if response.status == 200 and response.kind == EVENTS else None

    def conclude(self, response: Response) -> None:
        """Hand on a whole response, and raise what is wrong with it."""
        status, kind, body = response.status, response.kind, response.body
        if 300 <= status < 400:
            raise self.refusal(response)
        if kind == JSON:
            self._receive(body)
        elif kind == EVENTS:
            Events(self._receive).feed(body)
        elif body:
            raise self.refusal(response)
        if status >= 400:
            raise self.refusal(response)

    def refusal(self, response: Response) -> Exception:
        """What is raised where a response is no answer."""
        status = response.status
        if 300 <= status < 400:
            return RemoteError(f"{self._url} answered {status}, which leads elsewhere and is not followed.", -32000)
        if response.kind not in (JSON, EVENTS) and response.body:
            return RemoteError(f"{self._url} answered {status} with {response.kind}, which is not MCP.", -32000)
        return RemoteError(f"{self._url} answered {status}: {said_in(response)}", -32000)

    def failure(self, problem: HttpError) -> Exception:
        """What is raised where there is no response."""
        if isinstance(problem, TooLarge):
            return RemoteError(f"{self._url} answered with {problem}, which is refused.", -32000)
        return RemoteError(f"{self._url} cannot be reached: {problem}.", -32000)

    async def _end_session(self) -> None:
        done: asyncio.Future[None] = running_loop().create_future()
        head = b"Mcp-Session-Id: %b\r\n" % (self._session_id or b"")
        started = Round(self, _settles(done), is_urgent=True)
        try:
            async with asyncio.timeout(_PART_WITHIN):
                started.go(self.asking(b"DELETE", head))
                await done
        except (RemoteError, OSError):
            return
        finally:
            started.cancel()

    def asking(self, verb: bytes, head: bytes, data: bytes = b"") -> bytes:
        """A whole request."""
        if self._pool is None:
            raise self.failure(LinkClosed())
        static = self._static_of_streams if verb == b"GET" else self._static
        return b"%b %b HTTP/1.1\r\n%b%b\r\n%b" % (verb, self._target, static, head, data)

    def _routing(self, version: str, method: str | None, name: str | None) -> bytes:
        if is_modern(version):
            return _modern_routing(version, method, name)
        if self._session_id is None:
            return b""
        return b"MCP-Protocol-Version: %b\r\nMcp-Session-Id: %b\r\n" % (
            header_value(version).encode(),
            self._session_id,
        )


class Round:
    """One message and everything that comes back for it."""

    __slots__ = ("_call", "_data", "_ended", "_exchange", "_hops", "_is_urgent", "_link")

    def __init__(self, link: HttpLink, ended: Ended, is_urgent: bool) -> None:
        self._link = link
        self._ended = ended
        self._is_urgent = is_urgent
        self._call = HERE.get()
        self._hops = 0
        self._data = b""
        self._exchange: Exchange | None = None

    def go(self, data: bytes) -> None:
        """Send the request."""
        self._data = data
        self._exchange = self._link.start(data, self, is_urgent=self._is_urgent)

    def cancel(self) -> None:
        """Wait for nothing more; a server that is still at it loses the connection."""
        if self._exchange is not None:
            self._exchange.cancel()

    def begun(self, response: Response) -> Take | None:
        """The head of the response is there."""
        take = self._link.taker(response)
        return None if take is None else on_stream_of(self._call, take)

    def ended(self, response: Response | None, problem: Exception | None) -> None:
        """Everything is there, or never will be."""
        try:
            if isinstance(problem, HttpError):
                problem = self._link.failure(problem)
            elif response is not None and not self._is_led_on(response):
                self._link.conclude(response)
            elif response is not None:
                return
        except HttpError as error:
            problem = self._link.failure(error)
        except Exception as error:
            problem = error
        self._ended(problem)

    def _is_led_on(self, response: Response) -> bool:
        """Whether the server sent us to another place of its own, and we went."""
        if response.status not in _FOLLOWED or self._hops == _MOST_REDIRECTIONS:
            return False
        there = self._link.address.led_to(response.headers.get(b"location", b"").decode("latin-1"))
        if there is None:
            return False
        self._hops += 1
        verb, _, rest = self._data.split(b" ", 2)
        self.go(b"%b %b %b" % (verb, there.target.encode(), rest))
        return True


@lru_cache(1024)
def _modern_routing(version: str, method: str | None, name: str | None) -> bytes:
    head = f"MCP-Protocol-Version: {version}\r\n"
    if method:
        head += f"Mcp-Method: {header_value(method)}\r\n"
    if name:
        head += f"Mcp-Name: {header_value(name)}\r\n"
    return head.encode()


def _static(address: Address, own: Mapping[str, str], given: Mapping[str, str]) -> bytes:
    """The headers that every request has; what the configuration says wins, where it may."""
    headers = dict(own)
    if address.credentials:
        headers["authorization"] = f"Basic {address.credentials}"
    shown = {name: name.title() for name in headers}
    for name, value in given.items():
        if not _TOKEN.fullmatch(name) or _CONTROL.search(value):
            raise HttpError(f"the header {name!r} holds what no header may hold", sent=False)
        if name.lower() not in _SPOKEN_FOR:
            headers[name.lower()], shown[name.lower()] = value.strip(), name
    lines = [f"Host: {address.authority}\r\n", *(f"{shown[name]}: {value}\r\n" for name, value in headers.items())]
    return "".join(lines).encode()


def _settles(future: asyncio.Future[None]) -> Ended:
    def ended(problem: Exception | None) -> None:
        if future.done():
            return
        if problem is None:
            future.set_result(None)
        else:
            future.set_exception(problem)

    return ended


def said_in(response: Response) -> str:
    """What an error response says in words."""
    try:
        said = msgspec.json.decode(response.body)["error"]
        said = said if isinstance(said, str) else said["message"]
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, KeyError):
        return response.reason
    return said if isinstance(said, str) else response.reason


_BUSY: Final = 429
_AGAIN: Final = 5.0
"""Seconds after which a stream that ended is opened again."""


class UpstreamHttpLink(HttpLink):
    """Tells a server that cannot be reached, or has forgotten the session, from one that answers with an error."""

    def __init__(self, name: str, connection: McpConnection) -> None:
        super().__init__(connection.url or "", dict(connection.headers))
        self._name = name
        self._connection = connection

    async def follow(self, version: str) -> None:
        """Hand on what a server says beside its answers, until it refuses to say anything that way."""
        while self._pool is not None and self._session_id is not None:
            stream = Stream(self._receive)
            exchange = self.start(self.asking(b"GET", self._routing(version, None, None)), stream, is_urgent=True)
            try:
                await stream.is_over.wait()
            finally:
                exchange.cancel()
            if stream.is_refused:
                return
            await asyncio.sleep(_AGAIN)

    def conclude(self, response: Response) -> None:
        """Hand on a whole response, and raise what is wrong with it or with the server."""
        status = response.status
        if self._session_id is not None and _is_forgotten(response):
            raise UpstreamUnavailable(f'The server of the connection "{self._name}" has ended the session.')
        if (status >= 500 or status == _BUSY) and response.kind != JSON:
            raise UpstreamUnavailable(self._refused(response), delivered=True)
        super().conclude(response)

    def refusal(self, response: Response) -> Exception:
        """What is raised where a response is no answer."""
        status = response.status
        if 300 <= status < 400:
            return NamedError(advice.led_elsewhere(self._name, status), -32000)
        if status >= 400:
            return NamedError(self._refused(response), -32000)
        return NamedError(advice.not_mcp(self._name, status, response.kind), -32000)

    def failure(self, problem: HttpError) -> Exception:
        """What is raised where there is no response."""
        if isinstance(problem, LinkClosed):
            return UpstreamUnavailable(f'The connection "{self._name}" was closed.')
        if isinstance(problem, TooLarge):
            return RemoteError(f"The server answered with {problem}, which is refused.", -32000)
        return UpstreamUnavailable(advice.unreached(self._name, str(problem)), delivered=problem.sent)

    def _refused(self, response: Response) -> str:
        """A sentence without the address, which may hold a key and is nobody's business but the operator's."""
        said = said_in(response).replace(self._url, "its url")
        return advice.refused(self._name, self._connection, response.status, said)


class Stream:
    """Reads what a server says of its own accord."""

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self.is_over = asyncio.Event()
        self.is_refused = False
        self._receive = receive

    def begun(self, response: Response) -> Take | None:
        """The head of the response is there."""
        self.is_refused = response.status != 200 or response.kind != EVENTS
        return None if self.is_refused else Events(self._receive).feed

    def ended(self, _response: Response | None, _problem: Exception | None) -> None:
        """The stream is over, whatever ended it."""
        self.is_over.set()


def _is_forgotten(response: Response) -> bool:
    """Whether a refusal within a session is about the session; some servers say so with 400 and without an id."""
    return response.status == 404 or (response.status == 400 and readable_id(response.body) is None)
