"""Who may talk to this server over HTTP, and in which form."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.transports.http.asgi import JSON, Receive, Send, respond
from waypost.wire import messages
from waypost.wire.hosts import is_loopback

if TYPE_CHECKING:
    from waypost.policy import Authentication


LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
ANY: Final = "*"

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_ORIGIN: Final = re.compile(rf"https?://{_HOST.pattern}")
_REMEMBERED: Final = 256
_TIMES: Final = 8
_WITHIN: Final = 5.0
"""How many times the limit a body that is refused may be before it is cut off, and how many seconds it may take."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is turned away."""

    status: int
    message: str
    code: int = -32600
    unread: bool = False


class Remembered:
    """A question about two header values, asked once for each pair that shows up again and again."""

    __slots__ = ("_ask", "_first", "_known", "_second")

    def __init__(
        self, ask: Callable[[bytes | None, bytes | None], Refusal | None], first: bytes, second: bytes
    ) -> None:
        self._ask = ask
        self._first = first
        self._second = second
        self._known: dict[tuple[bytes | None, bytes | None], Refusal | None] = {}

    def __call__(self, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """What is to be said about these headers."""
        values = (headers.get(self._first), headers.get(self._second))
        try:
            return self._known[values]
        except KeyError:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            answer = self._known[values] = self._ask(*values)
            return answer


class Gate:
    """Checks that come before anything is read from the body.

    `caller` says whether a request comes from where this server is meant to be used, `post` and `stream` whether it
    has the form the protocol wants.
    """

    def __init__(self, *, hosts: Iterable[str] = (), origins: Iterable[str] = (), max_body: int) -> None:
        self._hosts = LOOPBACK | {host.lower() for host in hosts}
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self.max_body = max_body
        self.caller = Remembered(self._caller, b"host", b"origin")
        self._form = Remembered(self._post_form, b"accept", b"content-type")

    def post(self, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """Whether a POST has the form and the size that this server takes."""
        length = headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length) > self.max_body:
            # Who asks whether to send the body at all is told right away.
            return self.too_large(unread=b"expect" not in headers)
        return self._form(headers)

    def _caller(self, host: bytes | None, origin: bytes | None) -> Refusal | None:
        if not self._allows_host(host or b""):
            return Refusal(403, "This Host is not allowed here; add it to the allowed hosts if it should be.")
        if origin is not None and not self._allows_origin(origin):
            return Refusal(403, "This Origin is not allowed here; add it to the allowed origins if it should be.")
        return None

    def _post_form(self, accept: bytes | None, kind: bytes | None) -> Refusal | None:
        if accept is not None and not (_accepts(accept, b"application/json") and _accepts(accept, _EVENTS)):
            return Refusal(406, "Not acceptable: accept both application/json and text/event-stream.")
        if kind is None or kind.split(b";")[0].strip().lower() != b"application/json":
            return Refusal(415, "Unsupported media type: send application/json.")
        return None

    def stream(self, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """Whether a GET asks for events."""
        accept = headers.get(b"accept")
        if accept is None or not _accepts(accept, _EVENTS):
            return Refusal(406, "Not acceptable: accept text/event-stream.")
        return None

    def too_large(self, *, unread: bool = False) -> Refusal:
        """The refusal of a body over the limit."""
        message = f"The request body is over the limit of {self.max_body} bytes (maxBodyBytes)."
        return Refusal(413, message, unread=unread)

    async def body(self, receive: Receive) -> bytes | Refusal | None:
        """The whole body; `None` when the client left before it was sent."""
        event = await receive()
        if event["type"] != "http.request":
            return None
        body: bytes = event.get("body", b"")
        if not event.get("more_body"):
            return body if len(body) <= self.max_body else self.too_large()
        parts = [body]
        size = len(body)
        while event.get("more_body"):
            if size > self.max_body:
                return self.too_large(unread=True)
            event = await receive()
            if event["type"] != "http.request":
                return None
            parts.append(event.get("body", b""))
            size += len(parts[-1])
        return b"".join(parts) if size <= self.max_body else self.too_large()

    async def discard(self, receive: Receive) -> None:
        """Read on without keeping anything, so that a client still sending gets to see its answer; within bounds."""
        left = _TIMES * self.max_body
        with suppress(TimeoutError):
            async with asyncio.timeout(_WITHIN):
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


def bound_hosts(host: str) -> tuple[str, ...]:
    """The Host names to expect at an address, besides the usual ones of loopback; any where others can reach it."""
    named = f"[{host}]" if ":" in host else host.lower()
    if is_loopback(host):
        return () if named in LOOPBACK else (named,)
    return named, ANY


async def authenticated(auth: Authentication | None, send: Send, headers: Mapping[bytes, bytes]) -> Principal | None:
    """Who is calling; nobody, when they were turned away."""
    from waypost.policy import Unauthorized

    if auth is None:
        return ANONYMOUS
    try:
        return await auth.authenticate(headers)
    except Unauthorized as error:
        challenge = () if error.challenge is None else ((b"www-authenticate", error.challenge.encode()),)
        await respond(send, error.status, messages.encode(error.body), (JSON, *challenge))
        return None
