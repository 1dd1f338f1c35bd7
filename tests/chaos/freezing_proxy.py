"""A TCP proxy to a server that can stop forwarding without closing a connection, as a frozen server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import asyncpg

_CHUNK_BYTES = 65_536
Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Connects to the server."""


class FreezingProxy:
    """Forwards bytes in both directions while it is not frozen."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._thawed = asyncio.Event()
        self._thawed.set()
        self.connections: set[asyncio.Task[None]] = set()

    def freeze(self) -> None:
        """Forward nothing from now on; connections are still accepted."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Forward again, beginning with the bytes sent meanwhile."""
        self._thawed.set()

    def drop(self) -> None:
        """End all connections."""
        for task in list(self.connections):
            task.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client to the server."""
        task = asyncio.current_task()
        assert task is not None
        self.connections.add(task)
        try:
            await self._thawed.wait()
            answers, requests = await self._connect()
            try:
                await asyncio.gather(self._forward(reader, requests), self._forward(answers, writer))
            finally:
                requests.close()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.connections.discard(task)
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self._thawed.wait()
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.close()


@asynccontextmanager
async def proxying(connect: Connect) -> AsyncIterator[tuple[FreezingProxy, int]]:
    """A proxy, and the port on loopback that it listens on."""
    proxy = FreezingProxy(connect)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        proxy.drop()
        await server.wait_closed()


@asynccontextmanager
async def freezing_proxy(url: str) -> AsyncIterator[tuple[FreezingProxy, str]]:
    """A proxy to the PostgreSQL of a URL, and the URL that leads through it."""
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    (folder,) = options.pop("host")
    connection = await asyncpg.connect(url)
    server_port = await connection.fetchval("SHOW port")
    await connection.close()
    user = parts.netloc.rpartition("@")[0] or "postgres"
    query = urlencode({**options, "sslmode": "disable"}, doseq=True)
    async with proxying(partial(asyncio.open_unix_connection, f"{folder}/.s.PGSQL.{server_port}")) as (proxy, port):
        yield proxy, urlunsplit((parts.scheme, f"{user}@127.0.0.1:{port}", parts.path, query, ""))
