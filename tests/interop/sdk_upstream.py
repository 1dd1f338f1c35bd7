"""A server on the official SDK's high-level class, on standard streams when run as a program."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("sdk", version="1.0.0")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("out of paper")


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Count, and tell how far it is."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"{number} of {to}")
    return "counted"


if __name__ == "__main__":
    server.run()
