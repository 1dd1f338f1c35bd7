"""The few ASGI words the transport uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from waypost.wire import messages

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

JSON: Final = (b"content-type", b"application/json")


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
