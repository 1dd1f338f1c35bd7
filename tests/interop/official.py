"""Helpers for the client of the official SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.session import IncomingMessage

MODERN = "2026-07-28"

Server: TypeAlias = str | StdioServerParameters
Connect: TypeAlias = Callable[..., Client]


class Inbox:
    """The notifications that a client received, to wait for."""

    def __init__(self) -> None:
        self._received: asyncio.Queue[types.ServerNotification] = asyncio.Queue()

    async def __call__(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ServerNotification):
            self._received.put_nowait(message)

    async def next(self) -> types.ServerNotification:
        with anyio.fail_after(10):
            return await self._received.get()


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def all_tools(client: Client) -> dict[str, types.Tool]:
    page = await client.list_tools(cache_mode="bypass")
    tools = list(page.tools)
    while page.next_cursor is not None:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return {tool.name: tool for tool in tools}
