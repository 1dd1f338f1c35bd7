"""A TCP proxy to PostgreSQL's socket that can stop forwarding without closing a connection, as a frozen server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import asyncpg

_CHUNK_BYTES = 65_536


class FreezingProxy:
    """Forwards bytes in both directions while it is not frozen."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._thawed = asyncio.Event()
        self._thawed.set()
        self.connections: set[asyncio.Task[None]] = set()

    def freeze(self) -> None:
        """Forward nothing from now on; connections are still accepted."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Forward again, what was sent meanwhile first."""
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
            answers, requests = await asyncio.open_unix_connection(self._path)
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
async def freezing_proxy(url: str) -> AsyncIterator[tuple[FreezingProxy, str]]:
    """A proxy to the server of a URL, and the URL that leads through it."""
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    (folder,) = options.pop("host")
    connection = await asyncpg.connect(url)
    server_port = await connection.fetchval("SHOW port")
    await connection.close()
    proxy = FreezingProxy(f"{folder}/.s.PGSQL.{server_port}")
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    user = parts.netloc.rpartition("@")[0] or "postgres"
    query = urlencode({**options, "sslmode": "disable"}, doseq=True)
    try:
        yield proxy, urlunsplit((parts.scheme, f"{user}@127.0.0.1:{port}", parts.path, query, ""))
    finally:
        server.close()
        proxy.drop()
        await server.wait_closed()
