import asyncio
import time

from waypost import Context, Hub

hub = Hub("deadlines", version="1.0.0", tool_timeout=30.0)


@hub.tool(timeout=0.05)
async def sleepy() -> str:
    """Take longer than allowed."""
    try:
        await asyncio.sleep(3600)
    finally:
        await release_what_it_holds()
    return "awake"


@hub.tool
def digest(text: str, ctx: Context) -> str:
    """Work without awaiting: this runs in a thread."""
    for _ in range(3):
        if ctx.cancelled:
            break
        time.sleep(0.001)
    return text[::-1]


async def release_what_it_holds() -> None:
    """Cleaning up may await."""
