"""A client in the same process, with which tests see a hub as over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec

from waypost import Hub
from waypost.protocol.connection import Connection
from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from waypost.wire.versions import V2025_11_25, V2026_07_28


class Client:
    """Sends requests over one connection and collects notifications."""

    def __init__(self, hub: Hub, version: str) -> None:
        self.version = version
        self.notifications: list[dict[str, Any]] = []
        self._ids = count(1)
        self._waiting: dict[object, asyncio.Future[dict[str, Any]]] = {}
        self._connection = Connection(hub.engine, self._written)

    def _written(self, data: bytes) -> None:
        message = msgspec.json.decode(data)
        if "method" in message:
            self.notifications.append(message)
        else:
            self._waiting.pop(message["id"]).set_result(message)

    async def request(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The whole response, result or error."""
        number = next(self._ids)
        if self.version == V2026_07_28:
            envelope = {PROTOCOL_VERSION: self.version, CLIENT_CAPABILITIES: {}}
            params["_meta"] = params.get("_meta", {}) | envelope
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._connection.receive(
            msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        )
        return await asyncio.wait_for(answer, 60)

    def notify(self, method: str, /, **params: Any) -> None:
        """Send a one-way message."""
        self._connection.receive(msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params}))

    async def result(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The result of a request that must succeed."""
        response = await self.request(method, **params)
        assert "error" not in response, response["error"]
        result: dict[str, Any] = response["result"]
        return result

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a tool call."""
        return await self.result("tools/call", name=name, arguments=arguments)

    async def names(self, method: str = "tools/list") -> list[str]:
        """The names on the first page of a list."""
        (rows,) = [value for value in (await self.result(method)).values() if isinstance(value, list)]
        return [row["name"] for row in rows]

    async def close(self) -> None:
        """Hang up."""
        await self._connection.close()


@asynccontextmanager
async def connected(hub: Hub, version: str = V2025_11_25) -> AsyncIterator[Client]:
    """A client of a hub, which may have other clients."""
    await hub.start()
    client = Client(hub, version)
    if version != V2026_07_28:
        await client.result(
            "initialize", protocolVersion=version, capabilities={}, clientInfo={"name": "test", "version": "1"}
        )
    try:
        yield client
    finally:
        await client.close()


def request(hub: Hub, method: str, version: str = V2025_11_25, /, **params: Any) -> dict[str, Any]:
    """The response to a single request."""

    async def ask() -> dict[str, Any]:
        async with connected(hub, version) as client:
            return await client.request(method, **params)

    return asyncio.run(ask())


def call(hub: Hub, name: str, version: str = V2025_11_25, /, **arguments: Any) -> dict[str, Any]:
    """The result of a single tool call."""
    response = request(hub, "tools/call", version, name=name, arguments=arguments)
    assert "error" not in response, response["error"]
    result: dict[str, Any] = response["result"]
    return result


def listed(hub: Hub, kind: str = "tools", version: str = V2025_11_25) -> dict[str, dict[str, Any]]:
    """The first page of a list, by name."""
    method = "resources/templates/list" if kind == "resourceTemplates" else f"{kind}/list"
    return {row["name"]: row for row in request(hub, method, version)["result"][kind]}


def new_hub(*sources: Any) -> Hub:
    """A hub with these capabilities."""
    hub = Hub("test", version="1.0.0")
    for source in sources:
        hub.add(source)
    return hub


def text(result: dict[str, Any]) -> str:
    """The one text block of a result."""
    (block,) = result["content"]
    assert block["type"] == "text"
    return str(block["text"])
