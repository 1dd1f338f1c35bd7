"""The port for transports of an MCP client, and the table of transports that a connection can use.

A transport is one module: a class that follows `Transport`, and a row in `TRANSPORTS`. Which transport a connection
uses is decided in `McpConnection.transport` and nowhere else.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from waypost.capabilities.capability import HeaderParameter, read_header_parameters
from waypost.config.models import McpConnection
from waypost.errors import DefinitionError, RemoteError

NO_HEADERS: Final[Mapping[str, str]] = {}
_MAX_QUOTE: Final = 200

Receive = Callable[[bytes], None]
Ended = Callable[[Exception | None], None]
"""Called once when a round trip is over, with the reason if it failed."""


class UpstreamUnavailable(ConnectionError):
    """The server behind a connection cannot be used right now; `delivered` when it may have received the request."""

    def __init__(self, message: str, *, delivered: bool = False) -> None:
        super().__init__(message)
        self.delivered = delivered


class NamedError(RemoteError):
    """An error response whose message already names the connection."""


class Transport(Protocol):
    """Carries messages to a server; incoming messages go to the receiver that `open` is given.

    With `round_trips`, `send` lasts until everything that answers the message has been received. Such a transport may
    also have `start_request`, which does the same without a task per message, and `follow`, which hands on what the
    server sends outside of responses.
    """

    @property
    def round_trips(self) -> bool: ...
    async def open(self, receive: Receive) -> None: ...
    async def send(
        self, data: bytes, version: str, method: str | None, name: str | None, extra: Mapping[str, str] = ...
    ) -> None: ...
    async def close(self) -> None: ...


class Cancellable(Protocol):
    """A message that is being sent or answered."""

    def cancel(self) -> object: ...


StartRequest = Callable[[bytes, str, str | None, str | None, Mapping[str, str], Ended], Cancellable]
"""Sends a message without waiting; the last argument is called when its round trip is over."""
Lost = Callable[[UpstreamUnavailable], None]
"""Called when a server goes away by itself."""


# The imports are local, so that a hub whose upstreams are never used loads neither TLS nor the HTTP parser.


def _build_http(name: str, connection: McpConnection, _lost: Lost) -> Transport:
    from waypost.upstreams.http import UpstreamHttpTransport

    return UpstreamHttpTransport(name, connection)


def _build_stdio(name: str, connection: McpConnection, lost: Lost) -> Transport:
    from waypost.upstreams.stdio import StdioTransport

    return StdioTransport(name, connection, lost)


class Kind(NamedTuple):
    """One kind of transport."""

    setting: str
    """The setting of a connection that says where its server is."""
    build: Callable[[str, McpConnection, Lost], Transport]


TRANSPORTS: Final[Mapping[str, Kind]] = {"http": Kind("url", _build_http), "stdio": Kind("command", _build_stdio)}


def transport_kind(connection: McpConnection) -> Kind:
    """The kind of transport that a connection uses."""
    return TRANSPORTS[connection.transport or "stdio"]


def shorten(text: str) -> str:
    """The beginning of a server's text, to stand inside a sentence."""
    line = " ".join(text.split())
    return (line if len(line) <= _MAX_QUOTE else f"{line[:_MAX_QUOTE]}...").rstrip(". ")


def to_header_value(text: str) -> str:
    """`text` as an HTTP header value, in base64 where it would not survive as it is."""
    plain = text.isascii() and text.isprintable() and text == text.strip()
    # A text that looks encoded already has to be encoded, or the other side would decode it.
    if plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def find_header_parameters(tools: Iterable[Any]) -> dict[str, tuple[HeaderParameter, ...]]:
    """The header parameters of tools by tool name; a malformed definition has none."""
    found: dict[str, tuple[HeaderParameter, ...]] = {}
    for tool in tools:
        name, schema = (tool.get("name"), tool.get("inputSchema")) if isinstance(tool, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(schema, dict):
            continue
        try:
            found[name] = read_header_parameters(schema)
        except DefinitionError:
            found[name] = ()
    return found


def to_headers(parameters: Iterable[HeaderParameter], arguments: Any) -> dict[str, str]:
    """The arguments of a call that its tool wants repeated as headers."""
    headers = {}
    for parameter in parameters:
        value = arguments
        for name in parameter.path:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            headers[f"Mcp-Param-{parameter.header}"] = to_header_value(text)
    return headers
