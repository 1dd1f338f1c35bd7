from waypost import Hub

hub = Hub("changing", version="1.0.0")


@hub.tool
async def learn(word: str) -> str:
    """Add a tool that says a word."""

    async def say() -> str:
        return word

    hub.tool(say, name=f"say_{word}", description=f"Say {word}")
    return f"There is a tool say_{word} now."


@hub.tool
async def forget(word: str) -> str:
    """Remove the tool again."""
    hub.remove(f"say_{word}")
    return f"There is no tool say_{word} any more."
