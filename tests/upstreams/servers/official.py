"""A server on the official SDK's low-level class, on standard streams when run as a program."""

from __future__ import annotations

import os
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

NUMBERS = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
Context = ServerRequestContext[Any]


async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[
            types.Tool(name="add", description="Add two numbers.", input_schema=NUMBERS),
            types.Tool(name="pid", description="Name the process.", input_schema={"type": "object"}),
        ]
    )


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    given = params.arguments or {}
    value = given["a"] + given["b"] if params.name == "add" else os.getpid()
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=str(value))], structured_content={"result": value}
    )


def build() -> Server[Any]:
    """The server."""
    return Server("official", version="1.0.0", on_list_tools=list_tools, on_call_tool=call_tool)


async def main() -> None:
    """Serve standard streams."""
    server = build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
