"""A server that lets only some people in, and what each of them shows there."""

from __future__ import annotations

from waypost import Context, Hub
from waypost.identity import Authentication, Key, digest
from waypost.upstreams.pool import HUB, Upstreams

PEOPLE = ("ada", "bob", "eve", HUB)


def bearer(name: str) -> dict[str, str]:
    """What somebody shows."""
    return {"Authorization": f"Bearer key-of-{name}-0123456789"}


def guarded() -> Hub:
    """A server that lets only these people in and tells each who they are."""
    keys = [Key(name, digest(bearer(name)["Authorization"].removeprefix("Bearer "))) for name in PEOPLE]
    hub = Hub("inner", version="1", auth=Authentication(keys=keys))

    @hub.tool
    async def who(ctx: Context) -> str:
        """Tell who is calling."""
        return ctx.principal.id

    return hub


async def who(pool: Upstreams, principal: str) -> str:
    """Whom the server takes somebody for."""
    return str((await pool.call_tool("up", "who", {}, {}, principal=principal))["content"][0]["text"])
