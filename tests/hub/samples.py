"""A hub to fill, one capability of each kind, and a client that is notified of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from waypost import Context, Hub, Prompt, Resource, Tool, Toolkit, tool
from waypost.capabilities.capability import Capability
from waypost.testing import TestClient, connect
from waypost.upstreams.jsonrpc import Reply
from waypost.wire.definitions import Definition
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

ERAS = [LATEST_LEGACY, V2026_07_28]
DEADLINE = 120.0


def empty(**options: Any) -> Hub:
    return Hub("test", version="1.0.0", **options)


def names(rows: list[Reply]) -> list[str]:
    return [row.name for row in rows]


def ids(hub: Hub, kind: Literal["tools", "prompts", "resources", "resource_templates"] = "tools") -> list[str]:
    return [capability.id for capability in hub.expand(kind)]


def definition(row: Capability | Definition) -> Definition:
    return row.definition if isinstance(row, Capability) else row


@asynccontextmanager
async def hearing(hub: Hub, version: str) -> AsyncIterator[TestClient]:
    """A client that is notified of every change, with the mechanism of its protocol version."""
    async with asyncio.timeout(DEADLINE), connect(hub, version) as client:
        if version != V2026_07_28:
            yield client
            return
        async with client.listen(toolsListChanged=True, promptsListChanged=True, resourcesListChanged=True):
            await client.assert_notification("subscriptions/acknowledged")
            yield client


class Arithmetic(Toolkit, category="Maths"):
    """Five tools."""

    @tool(description="Add")
    def add(self, a: int, b: int) -> int:
        return a + b

    @tool(description="Subtract")
    def subtract(self, a: int, b: int) -> int:
        return a - b

    @tool(description="Multiply")
    def multiply(self, a: int, b: int) -> int:
        return a * b

    @tool(description="Divide", visible=False)
    def divide(self, a: int, b: int) -> float:
        return a / b

    @tool(name="maths.power", description="Raise")
    def power(self, a: int, b: int) -> int:
        return int(a**b)


class Shout(Tool):
    """Say it louder."""

    words: str

    async def execute(self, ctx: Context) -> str:
        return self.words.upper()


class Readme(Resource, uri="docs://readme", subscribable=True):
    """How to use it."""

    async def read(self) -> str:
        return "# Hello"


class Greet(Prompt):
    """Compose a greeting."""

    name: str
    tone: Literal["warm", "cold", "wry"] = "warm"

    def messages(self) -> str:
        return f"Greet {self.name}, {self.tone}."


def resource_at(uri: str) -> type[Resource]:
    class Other(Resource, uri=uri):
        """Another one."""

        async def read(self) -> str:
            return uri

    return Other
