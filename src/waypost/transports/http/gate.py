"""Checks of an HTTP request before its body is read: host and origin, credentials, form and size."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import DeadlineExceeded
from waypost.execution.limits import Deadline
from waypost.loops import run_to_pause
from waypost.settings import Limits, is_loopback
from waypost.transports.http.asgi import JSON, Event, Header, Receive, Send, respond
from waypost.transports.http.pending import headers_too_large
from waypost.wire import messages

if TYPE_CHECKING:
    from waypost.identity import Authentication


LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
ANY: Final = "*"

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_ORIGIN: Final = re.compile(rf"https?://{_HOST.pattern}")
_MAX_CACHED_CHECKS: Final = 256
_MAX_DISCARDED_FACTOR: Final = 8
_CLOSING: Final = (408, 413, 431)
_DISCARD_TIMEOUT_S: Final = 5.0
"""How much of a refused body is read, as a multiple of the limit, and for how long."""


class Refusal(msgspec.Struct, frozen=True):
    """The status and the JSON-RPC error of a request that is refused."""

    status: int
    message: str
    code: int = -32600
    is_unread: bool = False

    @property
    def headers(self) -> tuple[Header, ...]:
        """Headers of the response; where the rest of a request is not read, the connection is closed."""
        return ((b"connection", b"close"),) if self.status in _CLOSING else ()


class CachedChecks(dict[tuple[bytes | None, bytes | None], Refusal | None]):
    """The refusals of two headers by their values, which clients repeat; a dict, so that a known pair costs no call."""

    def __init__(self, check: Callable[[bytes | None, bytes | None], Refusal | None]) -> None:
        self._check = check

    def __missing__(self, values: tuple[bytes | None, bytes | None]) -> Refusal | None:
        # Clients choose the values.
        if len(self) >= _MAX_CACHED_CHECKS:
            self.clear()
        answer = self[values] = self._check(*values)
        return answer


class Gate:
    """The checks of requests, and the limit of their bodies.

    `callers` protects from DNS rebinding: a page in a browser may reach a local server under another host name.
    """

    def __init__(
        self, *, hosts: Iterable[str] = (), origins: Iterable[str] = (), max_body: int, limits: Limits | None = None
    ) -> None:
        self._hosts = LOOPBACK | {host.lower() for host in hosts}
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self.max_body = max_body
        self.limits = limits or Limits()
        self.callers = CachedChecks(self._check_caller)
        """The refusals of callers by the headers `Host` and `Origin`."""
        self._forms = CachedChecks(self._check_post_form)

    def check_post(self, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """The refusal of a POST by its form or size, if any."""
        length = headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length) > self.max_body:
            # A client that sent `Expect: 100-continue` has not sent its body yet, so there is nothing to discard.
            return self.too_large(is_unread=b"expect" not in headers)
        return self._forms[headers.get(b"accept"), headers.get(b"content-type")]

    def _check_caller(self, host: bytes | None, origin: bytes | None) -> Refusal | None:
        if not self._allows_host(host or b""):
            return Refusal(403, "This Host is not allowed here; add it to the allowed hosts if it should be.")
        if origin is not None and not self._allows_origin(origin):
            return Refusal(403, "This Origin is not allowed here; add it to the allowed origins if it should be.")
        return None

    def is_same_origin(self, headers: Mapping[bytes, bytes], refusal: Refusal) -> bool:
        """Whether a request was refused only for the origin of a page that this host served.

        Behind a name of its own the console is such a page. MCP and the API stay closed to it: behind an address that
        takes any host name, a page of another site could give itself the same name.
        """
        host, origin = headers.get(b"host", b""), headers.get(b"origin", b"")
        return refusal.status == 403 and self._allows_host(host) and origin.partition(b"://")[2] == host

    def _check_post_form(self, accept: bytes | None, kind: bytes | None) -> Refusal | None:
        # A request without `Accept` accepts anything (RFC 9110).
        if accept is not None and not (_accepts(accept, b"application/json") and _accepts(accept, _EVENTS)):
            return Refusal(406, "Not acceptable: accept both application/json and text/event-stream.")
        if kind is None or kind.split(b";")[0].strip().lower() != b"application/json":
            return Refusal(415, "Unsupported media type: send application/json.")
        return None

    def check_stream(self, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """The refusal of a GET that does not accept events."""
        accept = headers.get(b"accept")
        if accept is None or not _accepts(accept, _EVENTS):
            return Refusal(406, "Not acceptable: accept text/event-stream.")
        return None

    def too_large(self, *, is_unread: bool = False) -> Refusal:
        """The refusal of a body over the limit."""
        message = f"The request body is over the limit of {self.max_body} bytes (maxBodyBytes)."
        return Refusal(413, message, is_unread=is_unread)

    def headers_too_large(self) -> Refusal:
        """The refusal of headers over the limit."""
        return Refusal(431, headers_too_large(self.limits.max_header_bytes))

    async def read_body(self, receive: Receive) -> bytes | Refusal | None:
        """The whole body; `None` when the client left before it was sent."""
        body, rest = self.begin_body(receive)
        return body if rest is None else await rest

    def begin_body(
        self, receive: Receive
    ) -> tuple[bytes | Refusal | None, Coroutine[Any, Any, bytes | Refusal | None] | None]:
        """The body, as in `read_body`, if it came with its headers; else what is left to await for it."""
        event, rest = run_to_pause(receive())
        if event is None or event.get("more_body"):
            return None, self._await_body(receive, event, rest)
        body: bytes | None = event.get("body", b"") if event["type"] == "http.request" else None
        return (body if body is None or len(body) <= self.max_body else self.too_large()), None

    async def _await_body(
        self, receive: Receive, event: Event | None, first: Awaitable[Event]
    ) -> bytes | Refusal | None:
        try:
            with Deadline(self.limits.body_timeout_ms / 1000):  # cheaper than a timer for each request
                return await self._read_rest(receive, await first if event is None else event)
        except DeadlineExceeded:
            seconds = self.limits.body_timeout_ms / 1000
            return Refusal(408, f"The request body did not arrive within {seconds:g} s (bodyTimeoutMs).")

    async def _read_rest(self, receive: Receive, event: Event) -> bytes | Refusal | None:
        parts: list[bytes] = []
        size = 0
        while event["type"] == "http.request":
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            if not event.get("more_body"):
                return b"".join(parts) if size <= self.max_body else self.too_large()
            if size > self.max_body:
                return self.too_large(is_unread=True)
            event = await receive()
        return None

    async def discard(self, receive: Receive) -> None:
        """Read and drop the rest of a body, within bounds: many clients send it all before they read a response."""
        left = _MAX_DISCARDED_FACTOR * self.max_body
        with suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_TIMEOUT_S):
                while left > 0:
                    event = await receive()
                    if event["type"] != "http.request" or not event.get("more_body"):
                        return
                    left -= len(event.get("body", b""))

    def _allows_host(self, value: bytes) -> bool:
        found = _HOST.fullmatch(value.decode("latin-1").lower())
        return found is not None and (ANY in self._hosts or found[1] in self._hosts or found[0] in self._hosts)

    def _allows_origin(self, value: bytes) -> bool:
        origin = value.decode("latin-1").lower()
        if ANY in self._origins or origin in self._origins:
            return True
        found = _ORIGIN.fullmatch(origin)
        return found is not None and found[1] in LOOPBACK


_EVENTS: Final = b"text/event-stream"


def _accepts(accept: bytes, kind: bytes) -> bool:
    ranges = {part.split(b";")[0].strip().lower() for part in accept.split(b",")}
    return bool(ranges & {kind, kind.split(b"/")[0] + b"/*", b"*/*"})


def find_bound_hosts(host: str) -> tuple[str, ...]:
    """The host names to allow at an address besides those of loopback; any name where other machines can reach it."""
    named = f"[{host}]" if ":" in host else host.lower()
    if is_loopback(host):
        return () if named in LOOPBACK else (named,)
    return named, ANY


async def authenticate(auth: Authentication | None, send: Send, headers: Mapping[bytes, bytes]) -> Principal | None:
    """The principal of a request; `None` when the refusal was sent."""
    from waypost.identity import Unauthorized

    if auth is None:
        return ANONYMOUS
    try:
        return await auth.authenticate(headers)
    except Unauthorized as error:
        challenge = () if error.challenge is None else ((b"www-authenticate", error.challenge.encode()),)
        await respond(send, error.status, messages.encode(error.body), (JSON, *challenge))
        return None
