"""A hub over real HTTP in the test's event loop, and servers with other answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

import uvicorn

from waypost import Hub
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

ERAS = [LATEST_LEGACY, V2026_07_28]
DEADLINE = 120.0
LOOK_EVERY = 0.005

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


async def until(condition: Callable[[], object], within: float = DEADLINE) -> None:
    """Poll until a condition holds."""
    for _ in range(int(within / LOOK_EVERY)):
        if condition():
            return
        await asyncio.sleep(LOOK_EVERY)
    raise AssertionError(f"it did not happen within {within:g} s")


class Uvicorn(uvicorn.Server):
    """A server with an event for its start."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


@asynccontextmanager
async def served(hub: Hub, *, lifespan: Literal["on", "off"] = "on") -> AsyncIterator[str]:
    """The URL at which the hub's ASGI app is served."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(hub.asgi(), lifespan=lifespan, log_config=None, timeout_graceful_shutdown=1, ws="none")
    server = Uvicorn(config)
    running = asyncio.get_running_loop().create_task(server.serve([listening]))
    try:
        await server.is_up.wait()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        await hub.stop()
        server.should_exit = True
        await running
        listening.close()


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """The URL of a server that reads one HTTP request per connection and answers with the bytes of `answer`."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""
        await answer(body, writer)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()
        await server.wait_closed()


def response(body: bytes, *, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """A whole HTTP response."""
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode() + body
