"""A hub with workers of this package, and an engine that sends exactly the messages of a test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve

from tests.ports import free_port
from tests.workers.wire import Json, address, at_work, hub_for_workers
from waypost import Hub
from waypost.worker import InvocationFailed, Reconnecting, Worker, register_worker

AT_ONCE = Reconnecting(first=0.01, longest=0.02)


@asynccontextmanager
async def working(hub: Hub, name: str = "one", **options: Any) -> AsyncIterator[Worker]:
    """A worker of a hub, which is shut down at the end."""
    defaults = {"reconnecting": AT_ONCE, "token": hub.workers.made_token}
    async with register_worker(address(hub), name=name, **{**defaults, **options}) as worker:
        yield worker


@asynccontextmanager
async def owner_and_seer(**options: Any) -> AsyncIterator[tuple[Hub, Worker, Worker]]:
    """A hub at work, a worker whose functions are observed, and one that observes them."""
    hub = hub_for_workers(**options)
    async with at_work(hub), working(hub, "owner") as owner, working(hub, "seer") as seer:
        yield hub, owner, seer


async def settled(worker: Worker) -> None:
    """Wait until the engine has handled everything that the worker sent."""
    await worker.trigger("engine::functions::list")


async def failure(answer: Any) -> InvocationFailed:
    """The error that a call ends with."""
    try:
        came_to = await answer
    except InvocationFailed as error:
        return error
    raise AssertionError(f"it came to {came_to}")


class Scripted:
    """An engine that only greets workers, and records their messages."""

    def __init__(self) -> None:
        self.visits: asyncio.Queue[Visit] = asyncio.Queue()
        self.headers: list[dict[str, str]] = []
        self._server: Server | None = None
        self.port = free_port()  # workers connect again and again while it is closed

    async def open(self) -> None:
        """Listen, at the same port as before."""
        self._server = await serve(self._visited, "127.0.0.1", self.port, max_size=None)

    async def close(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    @property
    def url(self) -> str:
        """The URL that workers connect to."""
        return f"ws://127.0.0.1:{self.port}"

    async def _visited(self, socket: ServerConnection) -> None:
        visit = Visit(socket)
        assert socket.request is not None
        self.headers.append(dict(socket.request.headers.raw_items()))
        await visit.send("workerregistered", worker_id=f"w{len(self.headers)}", reattach_token="t")
        self.visits.put_nowait(visit)
        await socket.wait_closed()


class Visit:
    """One connection of a worker."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket

    async def send(self, kind: str, **fields: Any) -> None:
        """Send a message to the worker."""
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def next(self, *kinds: str) -> Json:
        """The next message, of one of these kinds if any is named."""
        while True:
            message: Json = json.loads(await self.socket.recv())
            if not kinds or message["type"] in kinds:
                return message

    async def greeted(self) -> list[Json]:
        """The messages that a worker sends when it connects."""
        said = []
        while True:
            said.append(await self.next())
            if said[-1].get("function_id") == "engine::workers::register":
                return said


@asynccontextmanager
async def scripted() -> AsyncIterator[Scripted]:
    """Such an engine, closed at the end."""
    engine = Scripted()
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


@contextmanager
def threaded(url: str, **options: Any) -> Iterator[Worker]:
    """A worker in a thread of its own, made where no loop runs."""
    worker = register_worker(url, **options)
    try:
        yield worker
    finally:
        worker.shutdown().result(60)
