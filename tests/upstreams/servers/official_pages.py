"""A server on the official SDK's low-level class that sends people to pages, and says when they were there.

On standard streams when run as a program.
"""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import UrlElicitationRequiredError

Context = ServerRequestContext[Any]
URL = "https://example.com/login"


async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in ("log_in", "read_files", "confirm")]
    return types.ListToolsResult(tools=tools)


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    match params.name:
        case "log_in":
            answer = await ctx.session.elicit_url("Log in.", URL, "now", related_request_id=ctx.request_id)
            await ctx.session.send_elicit_complete("now", related_request_id=ctx.request_id)
            return text(answer.action)
        case "read_files":
            page = types.ElicitRequestURLParams(message="Log in.", url=URL, elicitation_id="later")
            raise UrlElicitationRequiredError([page])
        case _:
            for name in ("unheard of", "later"):
                await ctx.session.send_elicit_complete(name)
            return text("confirmed")


def text(value: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)])


def build() -> Server[Any]:
    """The server."""
    return Server("pages", version="1.0.0", on_list_tools=list_tools, on_call_tool=call_tool)


async def main() -> None:
    """Serve standard streams."""
    server = build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
