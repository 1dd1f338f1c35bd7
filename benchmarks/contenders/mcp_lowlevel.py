"""The official SDK's low-level server at its best: JSON answers, uvloop, a settled heap, and the schema lookup that
spares it a walk over all tools on every 2026-07-28 call.
"""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from benchmarks.contenders.common import extra_tools, options, serve, settle

ADD_SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    "required": ["a", "b"],
}
LOOKUP_SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
    "required": ["query"],
}
Context = ServerRequestContext[Any]


def build(total: int) -> Server[Any]:
    tools = [types.Tool(name="add", description="Add two numbers.", input_schema=ADD_SCHEMA)]
    for name, description in extra_tools(total):
        tools.append(types.Tool(name=name, description=description, input_schema=LOOKUP_SCHEMA))
    schemas = {tool.name: tool.input_schema for tool in tools}
    listing = types.ListToolsResult(tools=tools)

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return listing

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        value = arguments["a"] + arguments["b"]
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=str(value))], structured_content={"result": value}
        )

    return Server(
        "bench",
        version="1.0.0",
        get_tool_input_schema=schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    chosen = options()
    bench = build(chosen.tools)
    settle()
    if chosen.stdio:
        anyio.run(serve_stdio, bench, backend_options={"use_uvloop": True})
    else:
        serve(bench.streamable_http_app(json_response=True), chosen.port)
