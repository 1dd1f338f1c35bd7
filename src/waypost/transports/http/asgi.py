"""The few ASGI words the transport uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeAlias

from waypost.protocol.modern import REPEATED
from waypost.wire import messages

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

JSON: Final = (b"content-type", b"application/json")


_SINGLE: Final = frozenset(
    {b"authorization", b"content-length", b"content-type", b"host", b"last-event-id", b"mcp-session-id", b"origin"}
)


class KnownHeaders(list[Header]):
    """The headers of many requests, looked through once."""

    def __init__(self, pairs: Iterable[Header]) -> None:
        super().__init__(pairs)
        self.by_name: Final = _by_name(self)


def headers_of(scope: Scope) -> dict[bytes, bytes] | None:
    """The headers by name; `None` when one that can only have one value has several."""
    pairs: list[Header] = scope["headers"]
    return pairs.by_name if type(pairs) is KnownHeaders else _by_name(pairs)


def _by_name(pairs: list[Header]) -> dict[bytes, bytes] | None:
    headers = dict(pairs)
    if len(headers) == len(pairs):
        return headers
    joined: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name in joined and name in _SINGLE:
            return None
        if name in joined:
            joined[name] = REPEATED if name.startswith(b"mcp-") else joined[name] + b", " + value
        else:
            joined[name] = value
    return joined


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
