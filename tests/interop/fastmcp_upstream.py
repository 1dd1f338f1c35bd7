"""A FastMCP server, on standard streams when run as a program."""

from __future__ import annotations

from fastmcp import Context, FastMCP

server = FastMCP("fast")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def fail() -> str:
    """Fail."""
    raise ValueError("out of paper")


@server.tool
async def count(to: int, ctx: Context) -> str:
    """Count, and tell how far it is."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"{number} of {to}")
    return "counted"


if __name__ == "__main__":
    server.run(show_banner=False)
