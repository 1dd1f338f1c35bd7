"""ASGI: its types, request headers by name, and responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeAlias

from waypost.protocol.modern import REPEATED_HEADER
from waypost.wire import messages

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

JSON: Final = (b"content-type", b"application/json")


_SINGLE: Final = frozenset(
    {b"authorization", b"content-length", b"content-type", b"host", b"last-event-id", b"mcp-session-id", b"origin"}
)


class KnownHeaders(list[Header]):
    """The headers of many equal requests, indexed once."""

    def __init__(self, pairs: Iterable[Header]) -> None:
        super().__init__(pairs)
        self.by_name: Final = index_headers(self)


def headers_of(scope: Scope) -> dict[bytes, bytes] | None:
    """The headers by name; `None` when one that may have only one value is repeated."""
    pairs: list[Header] = scope["headers"]
    return pairs.by_name if type(pairs) is KnownHeaders else index_headers(pairs)


def index_headers(pairs: list[Header]) -> dict[bytes, bytes] | None:
    """The headers by name; `None` when one that may have only one value is repeated."""
    headers = dict(pairs)
    if len(headers) == len(pairs):
        return headers
    joined: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name in joined and name in _SINGLE:
            return None
        if name in joined:
            # A proxy may have gone by either value, so a repeated MCP header must not match any body.
            joined[name] = REPEATED_HEADER if name.startswith(b"mcp-") else joined[name] + b", " + value
        else:
            joined[name] = value
    return joined


class WholeRequest:
    """A request that was read completely, whose response can be written in one piece; only `fast_uvicorn` makes them.

    The app finds it as the object whose methods `receive` and `send` are. An entry in the scope would tie scope and
    request into a cycle that the garbage collector has to find, for each request. Where other middleware has wrapped
    `receive` or `send` it is not found, and the usual events go through that middleware.
    """

    unread_body: bytes | None
    disconnected: bool

    def send_response(self, status: int, body: bytes, headers: tuple[Header, ...]) -> bool:
        """Write a whole response; false where it has to be sent by events."""
        raise NotImplementedError


def take_body(receive: Receive) -> bytes | None:
    """The body of a whole request, once; `None` where it has to be received."""
    request = getattr(receive, "__self__", None)
    if not isinstance(request, WholeRequest) or request.disconnected:
        return None
    body, request.unread_body = request.unread_body, None
    return body


def send_whole(send: Send, status: int, body: bytes, headers: tuple[Header, ...]) -> bool:
    """Write the response to a whole request; false where it has to be sent by events."""
    request = getattr(send, "__self__", None)
    return isinstance(request, WholeRequest) and request.send_response(status, body, headers)


async def respond(send: Send, status: int, body: bytes = b"", headers: tuple[Header, ...] = (JSON,)) -> None:
    """Send a whole response."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def refuse(
    send: Send, status: int, message: str, *, code: int = -32600, headers: tuple[Header, ...] = ()
) -> None:
    """Send a JSON-RPC error that belongs to no request."""
    await respond(send, status, messages.error(None, code, message), (JSON, *headers))


async def refuse_operator(send: Send, status: int, message: str, *, headers: tuple[Header, ...] = ()) -> None:
    """Send an error of the HTTP API."""
    await respond(send, status, messages.encode({"error": message}), (JSON, *headers))
