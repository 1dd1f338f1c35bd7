"""The MCP servers of the configuration's connections, as sessions that last."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from waypost.config.executors import Connection, McpConnection
from waypost.errors import RemoteError
from waypost.upstreams.client import Client
from waypost.upstreams.replies import Reply
from waypost.upstreams.unavailable import UpstreamUnavailable
from waypost.upstreams.upstream import NOBODY, Limits, Listener, Standing, Upstream

DEFAULT_LIMITS: Final = Limits()
PROGRESS: Final = "notifications/progress"

Progress = Callable[[Mapping[str, Any]], None]
"""Hears how far a call is: the parameters of the notification."""
_Given = TypeVar("_Given")


class Upstreams(Listener):
    """One session for each connection, started when it is first used.

    Raises `UpstreamUnavailable`, which is a `ConnectionError`, when a server cannot be used, `TimeoutError` when it
    takes too long, and `RemoteError` when it answers with an error. Whoever is cancelled cancels the request.
    """

    def __init__(self, connections: Callable[[], Mapping[str, Connection]], limits: Limits = DEFAULT_LIMITS) -> None:
        self._connections = connections
        self._limits = limits
        self._upstreams: dict[str, Upstream] = {}
        self._retired: list[Upstream] = []
        self._progress: dict[tuple[str, str], Progress] = {}
        self._tokens = itertools.count(1)
        self.listener: Listener = NOBODY
        self._is_closed = False

    async def call_tool(
        self,
        connection: str,
        tool: str,
        arguments: dict[str, Any],
        meta: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Call a tool; its result as plain JSON data, with `content` and `isError` always there."""
        sent = dict(meta)
        if progress is None:
            result = await self._use(connection, lambda client: client.call_tool(tool, arguments, meta=sent))
        else:
            sent["progressToken"] = token = f"waypost-{next(self._tokens)}"
            self._progress[connection, token] = progress
            try:
                result = await self._use(connection, lambda client: client.call_tool(tool, arguments, meta=sent))
            finally:
                del self._progress[connection, token]
        if result.get("resultType", "complete") != "complete":
            raise RemoteError(f'"{tool}" of the connection "{connection}" asks for what nobody here can give.', -32000)
        return {"content": [], "isError": False} | {
            name: _plain(value) for name, value in result.items() if name != "resultType"
        }

    async def list_tools(self, connection: str) -> list[dict[str, Any]]:
        """The definitions of a server's tools, as plain JSON data."""
        tools = await self._use(connection, lambda client: client.list_tools())
        return [_plain(tool) for tool in tools]

    @property
    def wants_changes(self) -> bool:  # type: ignore[override]  # whoever listens here decides
        """Whether servers are to be asked to tell of changes."""
        return self.listener.wants_changes

    def begun(self, name: str) -> None:
        """Hand on that a session has begun."""
        self.listener.begun(name)

    def heard(self, name: str, note: Reply) -> None:
        """Hand a notification to the call it is about, or to whoever listens."""
        if note["method"] != PROGRESS:
            self.listener.heard(name, note)
            return
        given = note["params"]
        waiting = self._progress.get((name, str(given.get("progressToken")))) if isinstance(given, dict) else None
        if waiting is not None:
            waiting(given)

    def standing(self, name: str) -> Standing:
        """How it goes with the server of a connection; nothing is started for that."""
        upstream = self._upstreams.get(name)
        return Standing() if upstream is None else upstream.standing

    def retire(self, name: str) -> None:
        """Let a session end when its calls are done; the next call begins a new one, without a pause."""
        upstream = self._upstreams.pop(name, None)
        if upstream is not None:
            upstream.retire()
            self._retired = [old for old in (*self._retired, upstream) if not old.is_gone]

    async def close(self) -> None:
        """End all sessions; calls that are under way fail."""
        self._is_closed = True
        await asyncio.gather(*(upstream.close() for upstream in (*self._upstreams.values(), *self._retired)))
        self._upstreams.clear()
        self._retired.clear()

    async def _use(self, name: str, work: Callable[[Client], Awaitable[_Given]]) -> _Given:
        return await self._upstream(name).use(work)

    def _upstream(self, name: str) -> Upstream:
        """The upstream as it is configured now; one that was configured otherwise goes when its calls are done."""
        if self._is_closed:
            raise UpstreamUnavailable(f'The connection "{name}" was closed.')
        connection = self._connections().get(name)
        upstream = self._upstreams.get(name)
        if upstream is not None and upstream.connection == connection:
            return upstream
        self.retire(name)
        if not isinstance(connection, McpConnection) or not (connection.url or connection.command):
            raise UpstreamUnavailable(f'There is no connection "{name}" to an MCP server.')
        upstream = self._upstreams[name] = Upstream(name, connection, self._limits, self)
        return upstream


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
