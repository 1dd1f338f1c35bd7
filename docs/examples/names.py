from waypost import Hub

hub = Hub("names", version="1.0.0", names="portable")


@hub.tool(name="git:push.force")
async def push() -> str:
    """Push, whatever is there."""
    return "pushed"
