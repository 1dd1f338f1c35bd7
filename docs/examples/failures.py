from waypost import Context, Hub, InvalidParams, ToolError, UnknownResource

hub = Hub("failures", version="1.0.0", tool_timeout=30.0)

STOCK = {"apple": 3}


@hub.tool
async def take(item: str, amount: int = 1) -> str:
    """Take something from the shelf."""
    if STOCK.get(item, 0) < amount:
        raise ToolError(f"There are only {STOCK.get(item, 0)} of {item}.")
    return f"{amount} of {item}"


@hub.tool
async def crash() -> str:
    """Fail unexpectedly."""
    return str(STOCK["pear"])


@hub.tool
async def refuse() -> str:
    """Answer with a protocol error instead of a result."""
    raise InvalidParams("Not like this.", data={"hint": "like that"})


@hub.tool
async def take_all(items: list[str], ctx: Context) -> str:
    """Take several things; what one call reports does not end the others."""
    results = [await ctx.invoke("take", {"item": item}) for item in items]
    return "\n".join(result.text for result in results if not result.is_error)


@hub.resource("stock://{item}")
async def stock(item: str) -> str:
    """How many there are."""
    if item not in STOCK:
        raise UnknownResource(f"stock://{item}")
    return str(STOCK[item])


@hub.prompt
async def sell(item: str) -> str:
    """Write an advertisement."""
    if item not in STOCK:
        raise ToolError(f"We do not sell {item}.")
    return f"Praise our {item}s."
