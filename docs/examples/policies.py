"""A hub in Python with policies, breakers, slots and an audit."""

from waypost import Context, Hub
from waypost.policy import Rule

hub = Hub(
    "workshop",
    version="1.0.0",
    policies=[
        Rule(name="few-prints", type="rate_limit", config={"max_calls": 2}, capabilities=("print",)),
        Rule(name="no-lathe", type="mcp_restriction", config={"tool_pattern": "lathe"}, hide=True),
    ],
    audit="store",
    breakers=True,
    max_running=16,
)


@hub.tool(name="print")
async def print_page(text: str) -> str:
    """Print a page."""
    return f"Printed {text}."


@hub.tool
async def lathe() -> str:
    """Turn something."""
    return "Turned."


@hub.tool
async def chair(ctx: Context) -> str:
    """Make a chair; the lathe is closed to clients, but not to this."""
    return (await ctx.invoke("lathe")).text


@hub.tool(permissions=["keys"])
async def unlock() -> str:
    """Open the door."""
    return "Open."


@hub.tool
async def saw() -> str:
    """Saw, with a blade that is gone."""
    raise OSError("no blade")
