"""A hub with slow tools, and clients that call them as tasks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.protocol.conftest import Json
from waypost import Context, Hub, InvalidParams, RemoteError, ToolError
from waypost.protocol.tasks import TASKS_EXTENSION
from waypost.testing import TestClient, connect
from waypost.wire.versions import ALL, V2025_11_25, is_modern

ABLE: Json = {"extensions": {TASKS_EXTENSION: {}}, "elicitation": {}}
FORM: Json = {"type": "object", "properties": {"name": {"type": "string"}}}
QUICKLY = 0.1
WITHOUT_TASKS = [version for version in ALL if not is_modern(version) and version != V2025_11_25]


def accepted(**content: Any) -> Json:
    """The answer of a person who accepts a form."""
    return {"action": "accept", "content": content}


class Work:
    """Counts the calls of the tools of a hub."""

    def __init__(self) -> None:
        self.started = 0
        self.stopped = 0
        self.gate = asyncio.Event()


def busy_hub(**options: Any) -> tuple[Hub, Work]:
    """A hub with tools that may, must and must not be tasks."""
    hub = Hub("busy", version="1", **{"task_after": QUICKLY, **options})
    work = Work()

    @hub.tool(task="optional")
    async def wait() -> str:
        """Wait until the gate opens."""
        work.started += 1
        try:
            await work.gate.wait()
        except asyncio.CancelledError:
            work.stopped += 1
            raise
        return "through"

    @hub.tool(task="optional")
    async def quick() -> str:
        """Be done at once."""
        return "quick"

    @hub.tool(task="required")
    async def job() -> str:
        """Be a task, however quick."""
        return "done"

    @hub.tool(task="required")
    async def broken() -> str:
        """Fail as a tool does."""
        raise ToolError("no")

    @hub.tool(task="required")
    async def refused() -> str:
        """Fail as a request does."""
        raise InvalidParams("bad", {"why": "because"})

    @hub.tool
    async def plain() -> str:
        """Never be a task."""
        return "plain"

    @hub.tool(task="required")
    async def pair(ctx: Context) -> str:
        """Ask two things at once."""
        both = await asyncio.gather(ctx.elicit("A?", FORM, key="a"), ctx.elicit("B?", FORM, key="b"))
        return " ".join(str(answer.content) for answer in both)

    @hub.tool(task="optional")
    async def ask_then_wait(ctx: Context) -> str:
        """Ask, then take long."""
        answer = await ctx.elicit("Who?", FORM, key="who")
        await work.gate.wait()
        return f"through with {answer.content}"

    return hub, work


@asynccontextmanager
async def served(hub: Hub, version: str | None = None, **options: Any) -> AsyncIterator[TestClient]:
    """A client of a hub that is stopped at the end; without a version, one that supports tasks."""
    given: Json = {"capabilities": ABLE, **options} if version is None else {"version": version, **options}
    try:
        async with connect(hub, **given) as client:
            yield client
    finally:
        await hub.stop()


async def reached(client: TestClient, task_id: str, *states: str) -> Json:
    """The task once it is in one of these states."""
    async with asyncio.timeout(60):
        while True:
            task = await client.request("tasks/get", {"taskId": task_id})
            if task["status"] in states:
                return task
            await asyncio.sleep(0.01)


async def refusal(request: Awaitable[Any]) -> RemoteError:
    """The error that a request is answered with."""
    with pytest.raises(RemoteError) as caught:
        await request
    return caught.value
