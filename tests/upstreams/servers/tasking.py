"""A hub whose tools run as tasks, in the one version that its argument names.

As a program it speaks on standard streams.
"""

from __future__ import annotations

import asyncio
import sys

from tests.upstreams.servers.curious import COLOUR, Dated
from waypost import Context, ToolError
from waypost.errors import InvalidParams


def tasking(version: str) -> Dated:
    """The hub."""
    hub = Dated("tasking", version)
    _working(hub)
    _asking(hub)
    return hub


def _working(hub: Dated) -> None:
    calls, released = hub.calls, asyncio.Event()

    @hub.tool(task="required")
    async def pack(files: int) -> dict[str, int]:
        """Pack files."""
        calls.append("pack")
        return {"packed": files}

    @hub.tool(task="required")
    async def refuse() -> str:
        """Fail."""
        raise ToolError("Not today.")

    @hub.tool(task="required")
    async def misuse() -> str:
        """Fail as a request fails."""
        raise InvalidParams("Wrong in itself.")

    @hub.tool(task="required")
    async def hang() -> str:
        """Wait until it is cancelled, and remember that."""
        calls.append("hang")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            calls.append("cancelled")
            raise
        return ""

    @hub.tool(task="required")
    async def wait_for_release() -> str:
        """Wait until another call releases it."""
        calls.append("waiting")
        await released.wait()
        return "released"

    @hub.tool()
    async def release() -> str:
        """End the wait of all others."""
        released.set()
        return ""

    @hub.tool(task="required")
    async def report(ctx: Context) -> str:
        """Say how far it is."""
        await ctx.progress(1, 2, "half")
        return "done"

    @hub.tool(task="optional")
    async def sum_up(ctx: Context) -> str:
        """Run as whoever calls likes."""
        return "summed up"


def _asking(hub: Dated) -> None:
    calls = hub.calls

    @hub.tool(task="required")
    async def paint(what: str, ctx: Context) -> str:
        """Paint something, after asking for two colours."""
        calls.append("paint")
        try:
            first = await ctx.elicit(f"Which colour for {what}?", COLOUR)
            second = await ctx.elicit(f"And the rim of {what}?", COLOUR)
        except asyncio.CancelledError:
            calls.append("cancelled")
            raise
        return " ".join(answer.content["colour"] if answer.content else answer.action for answer in (first, second))


if __name__ == "__main__":
    tasking(sys.argv[1]).run("stdio")
