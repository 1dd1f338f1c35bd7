"""A worker without an SDK, which sends exactly the messages of a test, and a hub that it connects to."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial

from waypost import Hub
from waypost.testing import TestClient, connect

Json: TypeAlias = dict[str, Any]

_numbers = itertools.count(1)


def hub_for_workers(**options: Any) -> Hub:
    """A hub with a free port for workers."""
    return Hub("hub", version="1.0.0", **{"workers": {"port": 0}, **options})


@asynccontextmanager
async def at_work(hub: Hub) -> AsyncIterator[TestClient]:
    """A client of a hub that is stopped at the end."""
    try:
        async with connect(hub, patience=120.0) as client:
            yield client
    finally:
        await hub.stop()


def address(hub: Hub) -> str:
    """The URL that workers connect to."""
    found = hub.workers.address
    assert found is not None
    return found


class Wire:
    """One end of a socket, and the messages that were received and not taken yet."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.seen: list[Json] = []
        self.id = self.token = ""

    async def raw(self, data: str | bytes) -> None:
        """Send raw bytes or text."""
        await self.socket.send(data)

    async def send(self, kind: str, **fields: Any) -> None:
        """Send a message."""
        await self.raw(json.dumps({"type": kind, **fields}))

    async def next(self, kind: str, **fields: Any) -> Json:
        """Wait for the first message of a kind with these fields, and take it out."""
        while True:
            for message in self.seen:
                if message["type"] == kind and all(message.get(key) == value for key, value in fields.items()):
                    self.seen.remove(message)
                    return message
            self.seen.append(json.loads(await self.socket.recv()))

    async def introduce(self, name: str = "wire", **about: Any) -> None:
        """Introduce the worker with a name, and wait until the hub knows it."""
        fields = {"invocation_id": f"name-{next(_numbers)}", "function_id": "engine::workers::register"}
        await self.send("invokefunction", **fields, data={"name": name, **about})
        await self.next("invocationresult", invocation_id=fields["invocation_id"])

    async def offer(self, *functions: str, name: str = "wire", **more: Any) -> None:
        """Offer functions, then introduce the worker."""
        for function in functions:
            await self.send("registerfunction", id=function, **more)
        await self.introduce(name)

    async def ask(self, function: str, data: Any = None, **more: Any) -> str:
        """Call a function and return the id of the call."""
        invocation = f"call-{next(_numbers)}"
        await self.send("invokefunction", function_id=function, data=data, invocation_id=invocation, **more)
        return invocation

    async def call(self, function: str, data: Any = None, **more: Any) -> Json:
        """Call a function and wait for its end."""
        return await self.next("invocationresult", invocation_id=await self.ask(function, data, **more))

    async def result(self, function: str, data: Any = None, **more: Any) -> Any:
        """Call a function and wait for its result."""
        answer = await self.call(function, data, **more)
        assert "error" not in answer, answer
        return answer["result"]

    async def error(self, function: str, data: Any = None, **more: Any) -> Json:
        """Call a function and wait for its error."""
        answer = await self.call(function, data, **more)
        assert "result" not in answer, answer
        error: Json = answer["error"]
        return error

    async def answer(self, invocation: Json, result: Any) -> None:
        """Answer a call."""
        fields = {key: invocation[key] for key in ("invocation_id", "function_id")}
        await self.send("invocationresult", **fields, result=result)

    async def serve(self, function: str, result: Any) -> Json:
        """Wait for a call of a function, answer it, and return the call."""
        call = await self.next("invokefunction", function_id=function)
        await self.answer(call, result)
        return call

    async def settled(self) -> None:
        """Wait until the hub has handled every message sent so far."""
        await self.send("ping")
        await self.next("pong")


@asynccontextmanager
async def wired(hub: Hub, path: str = "", **options: Any) -> AsyncIterator[Wire]:
    """A worker that has been greeted."""
    async with dial(address(hub) + path, max_size=None, **options) as socket:
        wire = Wire(socket)
        greeting = await wire.next("workerregistered")
        wire.id, wire.token = greeting["worker_id"], greeting["reattach_token"]
        yield wire


def rows(hub: Hub) -> dict[str, int]:
    """How many records of each kind a hub holds for workers."""
    workers = hub.workers
    return {
        "workers": len(workers.connected),
        "functions": sum(one.owner is not None for one in workers.functions),
        "tools": sum(1 for tool in hub.registry.tools if tool.metadata.category == "Workers" and tool.owner != None),  # noqa: E711
        "kinds": sum(kind.worker is not None for kind in workers.triggers.types),
        "bindings": len(list(workers.triggers.bindings)),
        "channels": len(workers.channels),
        "running": workers.calls.running,
        "unanswered": sum(worker.unanswered for worker in workers.connected),
    }
