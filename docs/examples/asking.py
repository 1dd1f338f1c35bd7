from waypost import Context, Hub

hub = Hub("asking", version="1.0.0")
orders: list[str] = []


@hub.tool
async def order(item: str, ctx: Context) -> str:
    """Order something, after asking how much of it."""
    await ctx.once("reserve", lambda: orders.append(item))
    answer = await ctx.elicit(f"How many {item}s?", {"amount": {"type": "integer", "min": 1, "required": True}})
    if not answer.accepted or answer.content is None:
        return "Nothing ordered."
    return f"Ordered {answer.content['amount']} {item}s."


@hub.tool
async def summarize(text: str, ctx: Context) -> str:
    """Have the client's model sum up a text."""
    answer = await ctx.sample(text, max_tokens=200, system_prompt="Sum up in one sentence.")
    return answer.text


@hub.tool
async def places(ctx: Context) -> list[str]:
    """Say where the client works."""
    return [root.uri for root in await ctx.roots()]
