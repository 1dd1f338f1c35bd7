import asyncio
from typing import Any

import pytest

from waypost import Context, Hub
from waypost.testing import connect


def shop() -> Hub:
    hub = Hub("shop", version="1.0.0")

    @hub.tool
    async def order(item: str, ctx: Context) -> str:
        """Order something, after asking how much of it."""
        answer = await ctx.elicit(f"How many {item}s?", {"amount": {"type": "integer", "required": True}})
        return f"Ordered {answer.content['amount']} {item}s." if answer.content else "Nothing ordered."

    return hub


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_it_orders_what_the_user_says(version: str) -> None:
    def three(params: dict[str, Any]) -> dict[str, Any]:
        assert params["message"] == "How many cups?"
        return {"action": "accept", "content": {"amount": 3}}

    async def scenario() -> None:
        async with connect(shop(), version, elicitation=three) as client:
            assert (await client.call_tool("order", {"item": "cup"})).text == "Ordered 3 cups."

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_it_orders_nothing_when_the_user_declines(version: str) -> None:
    async def scenario() -> None:
        async with connect(shop(), version, elicitation=lambda _: {"action": "decline"}) as client:
            assert (await client.call_tool("order", {"item": "cup"})).text == "Nothing ordered."

    asyncio.run(scenario())
