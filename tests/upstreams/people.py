"""A server that accepts only some principals, and their credentials."""

from __future__ import annotations

from waypost import Context, Hub
from waypost.identity import Authentication, Key, digest
from waypost.upstreams.pool import HUB, Upstreams

PEOPLE = ("ada", "bob", "eve", HUB)


def bearer(name: str) -> dict[str, str]:
    """The credential of a principal."""
    return {"Authorization": f"Bearer key-of-{name}-0123456789"}


def guarded() -> Hub:
    """A server that accepts only these principals and has a tool that returns the caller."""
    keys = [Key(name, digest(bearer(name)["Authorization"].removeprefix("Bearer "))) for name in PEOPLE]
    hub = Hub("inner", version="1", auth=Authentication(keys=keys))

    @hub.tool
    async def who(ctx: Context) -> str:
        """Tell who is calling."""
        return ctx.principal.id

    return hub


async def who(pool: Upstreams, principal: str) -> str:
    """The principal that the server recognises in a call."""
    return str((await pool.call_tool("up", "who", {}, {}, principal=principal))["content"][0]["text"])
