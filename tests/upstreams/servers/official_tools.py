"""A server on the official SDK's class for tools, one of which asks in the middle, on standard streams."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("official tools")


class Answer(BaseModel):
    """What is asked for."""

    colour: str


@server.tool()
async def paint(ctx: Context) -> str:
    """Ask for the colour."""
    answer = await ctx.elicit("Which colour?", Answer)
    return answer.data.colour if answer.action == "accept" else answer.action


if __name__ == "__main__":
    server.run("stdio")
