"""A load balancer on loopback: requests in turn to any replica, and to the next one only what never began."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

_CONNECT_S: Final = 1.0
_CHECK_INTERVAL_S: Final = 0.5
_CHECK_S: Final = 1.0
_CHUNK_BYTES: Final = 65_536
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_REPLACED: Final = re.compile(rb"\r\n(?:host|connection):[^\r]*", re.IGNORECASE)
_REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
_GONE: Final = (OSError, EOFError, TimeoutError)


class Balancer:
    """Forwards each request to one replica; a connection carries one request."""

    def __init__(self) -> None:
        self.url = ""
        self._ports: dict[str, int] = {}
        self._unhealthy: set[str] = set()
        self._turn = 0
        self._connections: set[asyncio.Task[None]] = set()

    def add(self, name: str, url: str) -> None:
        """Send requests to a replica, in the place of an earlier one with that name."""
        self._ports[name] = urlsplit(url).port or 0
        self._unhealthy.discard(name)

    def remove(self, name: str) -> None:
        """Send nothing to a replica any longer."""
        self._ports.pop(name, None)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1])) if length else b""
            await self._answer(_REPLACED.sub(b"", head), body, writer)
        except _GONE:
            pass  # the client is gone, or the replica: then the client learns that its connection is lost
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        for port in self._in_turn():
            host = b"\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n" % port
            if await _forward(port, head.replace(b"\r\n", host, 1) + body, writer):
                return
        writer.write(_REFUSAL)
        await writer.drain()

    def _in_turn(self) -> list[int]:
        self._turn += 1
        names = [name for name in self._ports if name not in self._unhealthy] or list(self._ports)
        ports = [self._ports[name] for name in names]
        first = self._turn % len(ports) if ports else 0
        return ports[first:] + ports[:first]

    async def check_health(self) -> None:
        """Ask all replicas again and again whether they take work."""
        while True:
            for name, port in list(self._ports.items()):
                (self._unhealthy.discard if await _is_healthy(port) else self._unhealthy.add)(name)
            await asyncio.sleep(_CHECK_INTERVAL_S)

    async def close(self) -> None:
        """End all connections."""
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(port: int, request: bytes, client: asyncio.StreamWriter) -> bool:
    """Relay a request and its answer; false where it never began: no connection, or a replica that drains."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except (OSError, TimeoutError):
        return False
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 503") and b"\r\nretry-after:" in head.lower():
            return False
        client.write(head)
        while data := await reader.read(_CHUNK_BYTES):
            client.write(data)
            await client.drain()
        return True
    finally:
        writer.close()


async def _is_healthy(port: int) -> bool:
    with suppress(*_GONE):
        async with asyncio.timeout(_CHECK_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % port)
                return (await reader.readline()).startswith(b"HTTP/1.1 200")
            finally:
                writer.close()
    return False


@asynccontextmanager
async def balancing() -> AsyncIterator[Balancer]:
    """A balancer that listens until the block ends."""
    balancer = Balancer()
    server = await asyncio.start_server(balancer.serve, "127.0.0.1", 0)
    balancer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    checking = asyncio.create_task(balancer.check_health())
    try:
        yield balancer
    finally:
        checking.cancel()
        server.close()
        await balancer.close()
        await server.wait_closed()
