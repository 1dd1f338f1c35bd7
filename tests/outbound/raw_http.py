"""HTTP servers that write exact bytes, and requests that record their outcome."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from waypost.outbound.http1 import Address, ConnectionPool, Feed, Request, Response

DEADLINE = 120.0
ASKED = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\nok"


class Talk:
    """One connection as its server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.number = number
        self._reader = reader
        self._writer = writer

    async def asked(self) -> bytes:
        """The next request, head and body; the end of the connection is an `IncompleteReadError`."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return head + (await self._reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b"")

    async def say(self, *pieces: bytes) -> None:
        """Write, piece by piece."""
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()

    async def ended(self) -> None:
        """Wait until the other side has closed."""
        with suppress(ConnectionError):
            while await self._reader.read(65536):
                pass


class Server:
    """The state of a server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self.left = asyncio.Event()

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def pool(self, **options: float) -> ConnectionPool:
        """A pool of connections to it."""
        return ConnectionPool(Address("http", "127.0.0.1", self.port, "/mcp"), **options)  # type: ignore[arg-type]  # as given


Converse = Callable[[Talk], Awaitable[None]]


@asynccontextmanager
async def speaking(
    converse: Converse, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Server]:
    """A server on which `converse` runs for each connection, which is closed when it returns."""
    server = Server(0)
    writers: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        server.open += 1
        server.most_open = max(server.most_open, server.open)
        writers[writer] = asyncio.current_task()
        with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            await converse(Talk(reader, writer, server.connections))
        server.open -= 1
        server.left.set()
        if tls is not None:
            writer.transport.abort()  # a clean TLS shutdown would wait for the other side
            return
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    listening = await asyncio.start_server(serve, host, 0, ssl=tls, backlog=1024)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        async with asyncio.timeout(DEADLINE):
            yield server
    finally:
        listening.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(task for task in writers.values() if task is not None))
        await listening.wait_closed()


def always(*pieces: bytes) -> Converse:
    """Answer every request with the same bytes."""

    async def converse(talk: Talk) -> None:
        while True:
            await talk.asked()
            await talk.say(*pieces)

    return converse


def once(*pieces: bytes) -> Converse:
    """Answer one request, then close."""

    async def converse(talk: Talk) -> None:
        await talk.asked()
        await talk.say(*pieces)

    return converse


class Caught(Request):
    """A request that records its outcome; with `streams`, piece by piece."""

    def __init__(self, data: bytes = ASKED, *, streams: bool = False) -> None:
        super().__init__(data)
        self.response: Response | None = None
        self.problem: Exception | None = None
        self.pieces: list[bytes] = []
        self.begins = asyncio.Event()
        self.is_over = asyncio.Event()
        self._streams = streams

    def on_head(self, response: Response) -> Feed | None:
        """Called with the head of the response."""
        self.begins.set()
        return self.pieces.append if self._streams else None

    def on_end(self, response: Response | None, problem: Exception | None) -> None:
        """Called once at the end."""
        assert not self.is_over.is_set()
        self.response, self.problem = response, problem
        self.is_over.set()

    async def outcome(self) -> Response:
        """Wait for the response, or raise its error."""
        await self.is_over.wait()
        if self.problem is not None:
            raise self.problem
        assert self.response is not None
        return self.response


async def ask(pool: ConnectionPool, data: bytes = ASKED) -> Response:
    """Make a request and wait for its response."""
    caught = Caught(data)
    pool.send(caught)
    return await caught.outcome()
