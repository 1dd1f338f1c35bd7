from waypost import Hub
from waypost.identity import Authentication, Key
from waypost.policy import Rule

auth = Authentication(
    keys=[
        Key(
            "agent",
            "sha256:6ccc2aa48bc1f67fb0d063cf95ea1dda36fadefd70ee106f053294182b9384cb",
            roles=("agent",),
        ),
    ],
    anonymous=False,
)
hub = Hub(
    "warehouse",
    version="1.0.0",
    auth=auth,
    audit="store",
    breakers=True,
    policies=[Rule(name="nothing-is-thrown-away", type="mcp_restriction", config={"tool_pattern": "discard"})],
)


@hub.tool
async def count(item: str) -> int:
    """Count what is there of an item."""
    return 3


@hub.tool(permissions=["ship"])
async def ship(item: str) -> str:
    """Send an item away."""
    return f"{item} is on its way."


@hub.tool
async def discard(item: str) -> str:
    """Throw an item away."""
    return f"{item} is gone."
