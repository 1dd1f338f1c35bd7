"""FastMCP with JSON answers and a settled heap, on the same uvicorn settings as the others."""

from __future__ import annotations

import anyio
from fastmcp import FastMCP

from benchmarks.contenders.common import extra_tools, lookup, options, serve, settle


def build(total: int) -> FastMCP:
    mcp = FastMCP("bench", version="1.0.0")

    @mcp.tool
    async def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    for name, description in extra_tools(total):
        mcp.tool(lookup, name=name, description=description)
    return mcp


async def serve_stdio(mcp: FastMCP) -> None:
    await mcp.run_stdio_async(show_banner=False, log_level="WARNING")


if __name__ == "__main__":
    chosen = options()
    bench = build(chosen.tools)
    settle()
    if chosen.stdio:
        anyio.run(serve_stdio, bench, backend_options={"use_uvloop": True})
    else:
        serve(bench.http_app(json_response=True), chosen.port)
