"""What carries the messages of a client."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from waypost.capabilities.capability import HeaderParameter, header_parameters
from waypost.config.executors import McpConnection
from waypost.errors import DefinitionError, RemoteError


class Link(Protocol):
    """Carries messages to a server; what comes back is handed to the receiver given to `open`.

    On a link of round trips `send` lasts until everything that answers the message has come back.
    """

    @property
    def round_trips(self) -> bool: ...
    async def open(self, receive: Callable[[bytes], None]) -> None: ...
    async def send(
        self, data: bytes, version: str, method: str | None, name: str | None, extra: Mapping[str, str] = ...
    ) -> None: ...
    async def close(self) -> None: ...


class Sending(Protocol):
    """A message on its way, and what comes back for it."""

    def cancel(self) -> object: ...


Begin = Callable[
    [bytes, str, str | None, str | None, Mapping[str, str], Callable[[Exception | None], None]],
    Sending,
]
"""How a link of round trips may offer to send without a task for each message; the last one hears of the end."""


class NamedError(RemoteError):
    """An error of a server whose text says already which connection it is about."""


class UpstreamUnavailable(ConnectionError):
    """The server behind a connection cannot be used right now; `delivered` when it may have got the request."""

    def __init__(self, message: str, *, delivered: bool = False) -> None:
        super().__init__(message)
        self.delivered = delivered


def header_value(text: str) -> str:
    """`text` as an HTTP header value, wrapped where it would not survive as it is."""
    plain = text.isascii() and text.isprintable() and text == text.strip()
    if plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def parameters_of(tools: Iterable[Any]) -> dict[str, tuple[HeaderParameter, ...]]:
    """The header parameters of tools by their names; definitions that make no sense have none."""
    found: dict[str, tuple[HeaderParameter, ...]] = {}
    for tool in tools:
        name, schema = (tool.get("name"), tool.get("inputSchema")) if isinstance(tool, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(schema, dict):
            continue
        try:
            found[name] = header_parameters(schema)
        except DefinitionError:
            found[name] = ()
    return found


def repeated(parameters: Iterable[HeaderParameter], arguments: Any) -> dict[str, str]:
    """The arguments of a call that its tool wants repeated, as headers."""
    headers = {}
    for parameter in parameters:
        value = arguments
        for name in parameter.path:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            headers[f"Mcp-Param-{parameter.header}"] = header_value(text)
    return headers


def link_to(name: str, connection: McpConnection, lost: Callable[[UpstreamUnavailable], None]) -> Link:
    """A link to the server behind a connection; `lost` hears of the end of one that has an end of its own."""
    # A hub whose servers are never used need not load what talks to them.
    if connection.url is not None:
        from waypost.upstreams.http import UpstreamHttpLink

        return UpstreamHttpLink(name, connection)
    from waypost.upstreams.stdio import StdioLink

    return StdioLink(name, connection, lost)
