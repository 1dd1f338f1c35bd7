"""Clients in memory, of a hub with every kind of capability and of scripted servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.upstreams.conftest import DEADLINE
from waypost import Context, Hub, ToolError
from waypost.testing import MemoryLink
from waypost.upstreams.client import Client


def sample(**options: Any) -> Hub:
    """A hub with every kind of capability."""
    hub = Hub("sample", version="3.2.1", instructions="Ask nicely.", **options)

    @hub.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @hub.tool
    async def refuse() -> str:
        """Fail."""
        raise ToolError("Not today.")

    @hub.tool
    async def chatter(ctx: Context) -> str:
        """Log at two levels."""
        await ctx.log("debug", "quiet")
        await ctx.log("error", "loud")
        return "said"

    @hub.resource("docs://readme", subscribable=True)
    async def readme() -> str:
        return "# Hello"

    @hub.resource("notes://{number}")
    async def note(number: str) -> str:
        return f"note {number}"

    @hub.prompt
    def greet(name: str) -> str:
        """Compose a greeting."""
        return f"Greet {name}."

    return hub


@asynccontextmanager
async def opened(hub: Hub, version: str, **options: Any) -> AsyncIterator[Client]:
    """A client of a started hub, in memory."""
    async with asyncio.timeout(DEADLINE):
        await hub.start()
        client = Client(MemoryLink(hub.engine), version=version, **options)
        await client.open()
        try:
            yield client
        finally:
            await client.close()
            await hub.stop()


class ScriptedLink:
    """A link to a server whose messages come from the function `answer`."""

    round_trips = False

    def __init__(self, answer: Callable[[dict[str, Any]], list[Any]]) -> None:
        self.sent: list[dict[str, Any]] = []
        self.closed = False
        self._answer = answer
        self._receive: Callable[[bytes], None] = lambda _: None

    async def open(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive

    async def send(self, data: bytes, version: str, method: str | None, name: str | None, *more: Any) -> None:
        message = json.loads(data)
        self.sent.append(message)
        for reply in self._answer(message):
            self._receive(reply if isinstance(reply, bytes) else json.dumps(reply).encode())

    async def close(self) -> None:
        self.closed = True


def result(message: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """An answer to a message."""
    return {"jsonrpc": "2.0", "id": message["id"], "result": value}


def error(message: dict[str, Any], code: int, text: str) -> dict[str, Any]:
    """An error in answer to a message."""
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}}


def silent(_message: dict[str, Any]) -> list[Any]:
    """Never answer."""
    return []
