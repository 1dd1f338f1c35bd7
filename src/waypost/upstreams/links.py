"""The link that a connection of the configuration asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import aiohttp

from waypost.config.executors import McpConnection
from waypost.errors import RemoteError
from waypost.upstreams.client import Link
from waypost.upstreams.http import NO_HEADERS, HttpLink
from waypost.upstreams.stdio import StdioLink
from waypost.upstreams.unavailable import UpstreamUnavailable
from waypost.wire.messages import readable_id

_PARTING: Final = 2.0
_BUSY: Final = 429
_AGAIN: Final = 5.0
"""Seconds after which a stream that ended is opened again."""
_NOT_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)


def link_to(name: str, connection: McpConnection, lost: Callable[[UpstreamUnavailable], None]) -> Link:
    """A link to the server behind a connection; `lost` hears of the end of one that has an end of its own."""
    if connection.url is not None:
        return UpstreamHttpLink(name, connection)
    return StdioLink(name, connection, lost)


class UpstreamHttpLink(HttpLink):
    """Tells a server that cannot be reached, or has forgotten the session, from one that answers with an error."""

    def __init__(self, name: str, connection: McpConnection) -> None:
        super().__init__(connection.url or "", dict(connection.headers))
        self._name = name

    async def send(
        self, data: bytes, version: str, method: str | None, name: str | None, extra: Mapping[str, str] = NO_HEADERS
    ) -> None:
        """Post one message and hand on what comes back."""
        if self._http is None:
            raise UpstreamUnavailable(f'The connection "{self._name}" was closed.')
        try:
            await super().send(data, version, method, name, extra)
        except RemoteError as error:
            cause = error.__context__
            if not isinstance(cause, aiohttp.ClientError):
                raise RemoteError(self._discreet(error.message), error.code, error.data) from None
            raise UpstreamUnavailable(
                f'The connection "{self._name}" cannot be reached: {self._discreet(str(cause))}.',
                delivered=not isinstance(cause, _NOT_SENT),
            ) from None

    async def follow(self, version: str) -> None:
        """Hand on what a server says beside its answers, until it refuses to say anything that way."""
        while self._http is not None and self._session_id is not None:
            headers = {**self._routing(version, None, None), "Accept": "text/event-stream"}
            with suppress(aiohttp.ClientError):
                async with self._http.get(self._url, headers=headers) as response:
                    if response.status >= 400 or response.content_type != "text/event-stream":
                        return
                    await self._read_events(response)
            await asyncio.sleep(_AGAIN)

    def _discreet(self, text: str) -> str:
        """A message without the address, which may hold a key and is nobody's business but the operator's."""
        return text.replace(self._url, "the server")

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        if self._session_id is not None and response.status in (400, 404) and await _is_forgotten(response):
            raise UpstreamUnavailable(f'The server of the connection "{self._name}" has ended the session.')
        if (response.status >= 500 or response.status == _BUSY) and response.content_type != "application/json":
            raise UpstreamUnavailable(
                f'The server of the connection "{self._name}" answered {response.status}: {response.reason}.',
                delivered=True,
            )
        await super()._read(response)

    async def _end_session(self, http: aiohttp.ClientSession) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARTING):
                await super()._end_session(http)


async def _is_forgotten(response: aiohttp.ClientResponse) -> bool:
    """Whether a refusal within a session is about the session; some servers say so with 400 and without an id."""
    return response.status == 404 or readable_id(await response.read()) is None
