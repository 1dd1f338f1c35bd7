"""Connections to the sample server with unprocessed messages, without a client."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeAlias

import aiohttp
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tests.interop import sample_server
from waypost import Hub
from waypost.protocol.connection import Connection

Message: TypeAlias = dict[str, Any]

ACCEPT = "application/json, text/event-stream"


class Wire(Protocol):
    """A connection to a hub, in one version."""

    def exchange(self, method: str, params: Message) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        """The messages for a request, with the response last."""

    def unasked(self) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        """The messages without a request."""

    async def raw(self, data: bytes) -> Message:
        """The answer to arbitrary bytes."""


def request(version: str, method: str, params: Message, number: int) -> Message:
    if version in MODERN_PROTOCOL_VERSIONS:
        envelope = {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
        }
        params = {**params, "_meta": {**envelope, **params.get("_meta", {})}}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def initialize(version: str) -> Message:
    client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
    return request(version, "initialize", client, 0)


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Memory:
    """A connection without any transport."""

    def __init__(self, hub: Hub, version: str) -> None:
        self.version = version
        self._log: list[Message] = []
        self._news = asyncio.Event()
        self._ids = itertools.count(1)
        self._connection = Connection(hub.engine, self._written)

    def _written(self, data: bytes) -> None:
        self._log.append(json.loads(data))
        self._news.set()

    def _send(self, message: Message) -> None:
        self._connection.receive(json.dumps(message).encode())

    async def open(self) -> Message | None:
        if self.version in MODERN_PROTOCOL_VERSIONS:
            return None
        self._send(initialize(self.version))
        welcome = await anext(self._messages(0))
        self._send(INITIALIZED)
        return welcome

    async def close(self) -> None:
        await self._connection.close()

    @asynccontextmanager
    async def exchange(self, method: str, params: Message) -> AsyncIterator[AsyncIterator[Message]]:
        before = len(self._log)
        self._send(request(self.version, method, params, next(self._ids)))
        yield self._messages(before)

    @asynccontextmanager
    async def unasked(self) -> AsyncIterator[AsyncIterator[Message]]:
        yield (message async for message in self._messages(len(self._log)) if "id" not in message)

    async def raw(self, data: bytes) -> Message:
        before = len(self._log)
        self._connection.receive(data)
        return await anext(self._messages(before))

    async def _messages(self, position: int) -> AsyncIterator[Message]:
        while True:
            while position < len(self._log):
                position += 1
                yield self._log[position - 1]
            self._news.clear()
            await self._news.wait()


class Http:
    """Plain HTTP requests to a server in another process."""

    def __init__(self, url: str, version: str) -> None:
        self.version = version
        self._url = url
        self._client = aiohttp.ClientSession()
        self._ids = itertools.count(1)
        self._headers = {"Accept": ACCEPT, "Content-Type": "application/json"}

    async def open(self) -> Message | None:
        if self.version in MODERN_PROTOCOL_VERSIONS:
            self._headers["MCP-Protocol-Version"] = self.version
            return None
        async with self._client.post(self._url, json=initialize(self.version), headers=self._headers) as response:
            welcome: Message = await response.json()
            self._headers["Mcp-Session-Id"] = response.headers["Mcp-Session-Id"]
        if self.version >= "2025-06-18":
            self._headers["MCP-Protocol-Version"] = self.version
        async with self._client.post(self._url, json=INITIALIZED, headers=self._headers) as response:
            assert response.status == 202
        return welcome

    async def close(self) -> None:
        if "Mcp-Session-Id" in self._headers:
            await self._client.delete(self._url, headers=self._headers)
        await self._client.close()

    @asynccontextmanager
    async def exchange(self, method: str, params: Message) -> AsyncIterator[AsyncIterator[Message]]:
        headers = {**self._headers, "Mcp-Method": method, "Mcp-Name": str(params.get("name", params.get("uri", "")))}
        body = request(self.version, method, params, next(self._ids))
        async with self._client.post(self._url, json=body, headers=headers) as response:
            yield self._messages(response)

    @asynccontextmanager
    async def unasked(self) -> AsyncIterator[AsyncIterator[Message]]:
        async with self._client.get(self._url, headers=self._headers) as response:
            yield self._messages(response)

    async def raw(self, data: bytes) -> Message:
        async with self._client.post(self._url, data=data, headers=self._headers) as response:
            return await anext(self._messages(response))

    async def _messages(self, response: aiohttp.ClientResponse) -> AsyncIterator[Message]:
        if response.content_type == "application/json":
            yield await response.json()
            return
        async for line in response.content:
            if line.startswith(b"data: ") and line.strip() != b"data:":
                yield json.loads(line.removeprefix(b"data: "))


@asynccontextmanager
async def in_memory(version: str) -> AsyncIterator[tuple[Wire, Message | None]]:
    hub = importlib.reload(sample_server).hub
    await hub.start()
    wire = Memory(hub, version)
    try:
        yield wire, await wire.open()
    finally:
        await wire.close()
        await hub.stop()


@asynccontextmanager
async def over_http(url: str, version: str) -> AsyncIterator[tuple[Wire, Message | None]]:
    wire = Http(url, version)
    try:
        yield wire, await wire.open()
    finally:
        await wire.close()
