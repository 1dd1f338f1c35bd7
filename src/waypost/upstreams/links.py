"""The link that a connection of the configuration asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from waypost.config.executors import McpConnection
from waypost.errors import RemoteError
from waypost.upstreams import advice
from waypost.upstreams.http import EVENTS, JSON, HttpLink, LinkClosed, said_in
from waypost.upstreams.http1_connection import HttpError, Response, Take, TooLarge
from waypost.upstreams.http1_events import Events
from waypost.upstreams.link import Link
from waypost.upstreams.stdio import StdioLink
from waypost.upstreams.unavailable import NamedError, UpstreamUnavailable
from waypost.wire.messages import readable_id

_BUSY: Final = 429
_AGAIN: Final = 5.0
"""Seconds after which a stream that ended is opened again."""


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
