"""A call that waits for an elicitation releases its slot, and takes one again when the answer is there."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.protocol.conftest import asynchronous, until
from waypost import Context, Hub
from waypost.testing import connect


class Desk:
    """A hub with one slot, a tool that elicits, and a person who answers when the test says so."""

    def __init__(self) -> None:
        self.hub = Hub("desk", version="1", max_running=1)
        self.asked = 0
        self.answer = asyncio.Event()

        @self.hub.tool
        async def ask(ctx: Context) -> str:
            """Ask for a name."""
            return (await ctx.elicit("Your name?", {"name": "string"})).action

        @self.hub.tool
        async def quick() -> str:
            """Be done at once."""
            return "done"

        @self.hub.prompt
        async def hello(ctx: Context) -> str:
            """Ask whom to greet."""
            return (await ctx.elicit("Who?", {"name": "string"})).action

    async def person(self, _params: Any) -> dict[str, Any]:
        self.asked += 1
        await self.answer.wait()
        return {"action": "accept", "content": {"name": "Ann"}}

    @property
    def running(self) -> dict[str, int]:
        return self.hub.core.pipeline.slots._running


@asynchronous
async def test_a_call_that_waits_for_an_answer_does_not_block_other_calls() -> None:
    desk = Desk()
    async with connect(desk.hub, "2025-11-25", elicitation=desk.person) as one, connect(desk.hub, patience=60) as other:
        asking = [asyncio.create_task(one.call_tool("ask")) for _ in range(3)]
        asking.append(asyncio.create_task(one.get_prompt("hello")))
        await until(lambda: desk.asked == 4)

        assert (await other.call_tool("quick")).text == "done"
        desk.answer.set()
        assert [answer.text for answer in (await asyncio.gather(*asking))[:3]] == ["accept"] * 3
    assert desk.running == {}


@asynchronous
async def test_a_call_cancelled_while_it_waits_for_an_answer_releases_its_slot() -> None:
    desk = Desk()
    async with connect(desk.hub, "2025-11-25", elicitation=desk.person) as client:
        asking = asyncio.create_task(client.call_tool("ask"))
        await until(lambda: desk.asked == 1)
        asking.cancel()
        await until(lambda: desk.running == {})
        assert (await client.call_tool("quick")).text == "done"
    assert desk.running == {}
