"""Pools with one connection, and proxy apps for servers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from tests.upstreams.conftest import DEADLINE, Uvicorn
from tests.upstreams.programs import nothing_left
from tests.upstreams.servers import official
from waypost.config.models import Connection
from waypost.upstreams.pool import Upstreams
from waypost.upstreams.upstream import Limits

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


@asynccontextmanager
async def pooled(connection: Connection, **limits: float) -> AsyncIterator[Upstreams]:
    """A pool with one connection, `up`, that leaves no process behind."""
    with nothing_left():
        async with asyncio.timeout(DEADLINE * 2):
            pool = Upstreams({"up": connection}, Limits(**limits))
            try:
                yield pool
            finally:
                await pool.stop()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert [task for task in others if "Upstream" in repr(task) or "Client" in repr(task)] == []


@asynccontextmanager
async def listening(app: Asgi, port: int = 0) -> AsyncIterator[str]:
    """The URL at which an ASGI app is served."""
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    own.bind(("127.0.0.1", port))
    server = Uvicorn(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1, ws="none"))
    running = asyncio.get_running_loop().create_task(server.serve([own]))
    try:
        await server.is_up.wait()
        yield f"http://127.0.0.1:{own.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await running
        own.close()


class Recorded:
    """A proxy app that records the requests and may refuse the stateless era."""

    def __init__(self, app: Asgi, *, sessions_only: bool = False) -> None:
        self.versions: list[str] = []
        self.inner = app
        self._sessions_only = sessions_only

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
            self.versions.append(version)
            if self._sessions_only and version == "2026-07-28":
                await send({"type": "http.response.start", "status": 400, "headers": []})
                await send({"type": "http.response.body", "body": b"Bad Request: Unsupported protocol version"})
                return
        await self.inner(scope, receive, send)


def official_app() -> Asgi:
    app: Asgi = official.build().streamable_http_app()
    return app


async def add(pool: Upstreams, a: int = 1, b: int = 2) -> Any:
    return (await pool.call_tool("up", "add", {"a": a, "b": b}, {}))["structuredContent"]["result"]


async def failure(call: asyncio.Future[Any]) -> BaseException | None:
    await asyncio.wait({call})
    return call.exception()
