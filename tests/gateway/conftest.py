"""A hub with a gateway, a client of it, and an agent that follows the links in the answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from waypost import Hub
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE, Principal
from waypost.config.models import Workflow
from waypost.kinds import convert
from waypost.testing import TestClient, connect
from waypost.wire.versions import V2025_11_25, V2026_07_28

Json = dict[str, Any]

ERAS = (V2025_11_25, V2026_07_28)
eras = pytest.mark.parametrize("version", ERAS)
MALLORY = Principal("mallory")
RELEASE: Json = {
    "title": "Release a version",
    "description": "Build it, then publish it.",
    "tags": ["deploy"],
    "aliases": ["ship"],
    "inputSchema": {"type": "object", "properties": {"version": {"type": "string"}}},
    "initialState": "build",
    "states": {"build": {"goal": "A wheel", "transitions": {"publish": {"target": "out"}}}, "out": {"terminal": True}},
}


class Agent:
    """A user of the tools of a gateway."""

    def __init__(self, hub: Hub, client: TestClient) -> None:
        self.hub = hub
        self.client = client

    async def call(self, tool: str, by: Principal = ANONYMOUS, /, **arguments: Any) -> Json:
        """Call a tool through the client, or directly as another principal, and return its structured answer."""
        if by is ANONYMOUS:
            result = await self.client.call_tool(tool, arguments)
            answer: Json = result["structuredContent"]
            assert json.loads(result.text) == answer
            assert bool(result.get("isError")) == ("error" in answer)
            return answer
        message = await self.hub.runtime.invoke(tool, arguments, DetachedCaller(by, FROM_OUTSIDE))
        return dict(msgspec.to_builtins(message.structured))

    async def home(self, by: Principal = ANONYMOUS, **arguments: Any) -> Json:
        """The catalog."""
        return await self.call("gateway.home", by, **arguments)

    async def ids(self, by: Principal = ANONYMOUS) -> list[str]:
        """The ids in the catalog."""
        return [item["id"] for item in (await self.home(by))["items"]]

    async def search(self, query: str, by: Principal = ANONYMOUS, **arguments: Any) -> Json:
        """The answer of `gateway.search`."""
        return await self.call("gateway.search", by, query=query, **arguments)

    async def found(self, query: str, by: Principal = ANONYMOUS, **arguments: Any) -> list[str]:
        """The ids in the results of a search."""
        return [one["item"]["id"] for one in (await self.search(query, by, **arguments))["results"]]

    async def describe(self, id: str, by: Principal = ANONYMOUS) -> Json:
        """One item."""
        return await self.call("gateway.describe", by, id=id)

    async def start(self, by: Principal = ANONYMOUS, **given: Any) -> Json:
        """Use one capability."""
        return await self.call("workflow.start", by, definitionId="proxy_default", input=given)

    async def follow(self, link: Json, **more: Any) -> Json:
        """Make the call of a link, with additional arguments."""
        args = {**link["args"], **more}
        if link["method"] in ("prompts/get", "resources/read"):
            return dict(await self.client.request(link["method"], args))
        return await self.call(link["method"], **args)


@asynccontextmanager
async def agent(hub: Hub, version: str = V2026_07_28) -> AsyncIterator[Agent]:
    """Start a hub and connect an agent to it."""
    await hub.store.open()
    async with connect(hub, version) as client:
        try:
            yield Agent(hub, client)
        finally:
            await hub.stop()


def office(**options: Any) -> Hub:
    """A hub with one of every kind behind its gateway."""
    hub = Hub("office", version="1", **{"surface": "gateway", **options})
    hub.tool(name="mail.send", title="Send a mail", tags=["mail"], aliases=["post"], category="Mail")(send)
    hub.tool(name="skill:count", description="Count words.")(count)
    hub.tool(name="attic", description="Not listed.", hidden=True)(lambda: "dust")
    hub.prompt(name="greet", description="Compose a greeting.")(greet)
    hub.resource("docs://guide", name="guide", mime_type="text/markdown", description="How to.")(lambda: "# Guide")
    hub.resource("docs://logo", name="logo", mime_type="image/png")(lambda: b"png")
    hub.workflow("release", convert(RELEASE, Workflow))
    return hub


async def send(to: str, text: str = "") -> Json:
    """Send a mail to somebody."""
    return {"to": to, "text": text}


async def count(text: str = "") -> int:
    """Count words."""
    return len(text.split())


def greet(name: str, tone: str = "warm") -> str:
    """Compose a greeting."""
    return f"Greet {name}, {tone}."
