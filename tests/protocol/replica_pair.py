"""Two hubs on one PostgreSQL, and a client that may send each message to either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.protocol.conftest import Json, initialization
from tests.transports.http.conftest import Call, Visitor, Web
from waypost import Context, Hub
from waypost.settings import Bus, Settings

DEADLINE: Final = 120.0
FORM: Final = {"type": "object", "properties": {"name": {"type": "string"}}}
ABLE: Final[Json] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run under a deadline."""
    asyncio.run(asyncio.wait_for(scenario, DEADLINE))


async def until(holds: Callable[[], bool]) -> None:
    """Poll until a condition holds that no event announces."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


class Side:
    """One of the two hubs."""

    def __init__(self, store: str, settings: Settings) -> None:
        self.hub = Hub("side", version="1", store=store, settings=settings)
        self.web = Web(self.hub)
        self.entered = asyncio.Event()
        self.stopped = asyncio.Event()
        self.release = asyncio.Event()

        @self.hub.tool
        async def greet(ctx: Context) -> str:
            """Ask for a name, and greet."""
            answer = await ctx.elicit("Who are you?", FORM)
            return f"Hello, {(answer.content or {}).get('name')}!"

        self.hub.tool(name="greet-as-task", task="optional", description="The same, as a task.")(greet)

        @self.hub.tool
        async def model(ctx: Context) -> str:
            """Ask the model of the client."""
            return str((await ctx.sample("Say something.")).text)

        @self.hub.resource("note://one", subscribable=True)
        def note() -> str:
            """A note."""
            return "one"

        @self.hub.tool(task="optional")
        async def wait(ctx: Context) -> str:
            """Wait."""
            self.entered.set()
            await ctx.progress(1)
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.stopped.set()
                raise
            return "waited"

    def visit(self, session_id: str, version: str) -> Visitor:
        """The client of a session at this hub."""
        return Visitor(self.web, session_id, version)


class Pair:
    """Two hubs, and the same session at both."""

    def __init__(self, a: Side, b: Side) -> None:
        self.a, self.b = a, b

    async def visitors(self, version: str = "2025-11-25") -> tuple[Visitor, Visitor]:
        """A client that initialized at the first hub, at both."""
        opening = initialization(version)
        opening["params"]["capabilities"] = ABLE
        call = await self.a.web.post(opening)
        found = call.headers["mcp-session-id"]
        return self.a.visit(found, version), self.b.visit(found, version)


@asynccontextmanager
async def running_pair(store: str, settings: Settings) -> AsyncIterator[Pair]:
    """Two running hubs that are stopped at the end."""
    sides = Side(store, settings), Side(store, settings)
    try:
        for side in sides:
            await side.hub.start()
        yield Pair(*sides)
    finally:
        for side in sides:
            await side.hub.stop()
            for call in side.web.calls:
                call.leave()
            await asyncio.gather(*(call.task for call in side.web.calls), return_exceptions=True)


async def next_message(call: Call, method: str | None = None) -> Json:
    """The next message of a stream, or the next one with a method."""
    while True:
        event = await call.event()
        if event.data and (method is None or event.message.get("method") == method):
            return event.message


@pytest.fixture(params=["postgres", "nats"])
def settings(request: pytest.FixtureRequest) -> Settings:
    """With the bus of the store, and with NATS."""
    return Settings() if request.param == "postgres" else Settings(bus=Bus(url=request.getfixturevalue("nats_url")))
