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
