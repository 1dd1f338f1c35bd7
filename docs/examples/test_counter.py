import asyncio

import pytest

from waypost import Context, Hub, RemoteError
from waypost.testing import connect


def counter() -> Hub:
    hub = Hub("counter", version="1.0.0")

    @hub.tool
    async def count(to: int, ctx: Context) -> str:
        """Count aloud."""
        for number in range(1, to + 1):
            await ctx.progress(number, to)
        return f"Counted to {to}."

    return hub


def test_it_counts() -> None:
    async def scenario() -> None:
        async with connect(counter()) as client:
            result = await client.call_tool("count", {"to": 3})
            assert result.text == "Counted to 3."
            assert not result.is_error

    asyncio.run(scenario())


def test_it_reports_progress() -> None:
    async def scenario() -> None:
        async with connect(counter()) as client:
            await client.call_with_progress("count", {"to": 3})
            await client.assert_progress(1, 2, 3)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_clients_are_notified_of_new_tools(version: str) -> None:
    async def scenario() -> None:
        hub = counter()
        async with connect(hub, version) as client:
            hub.tool(lambda: "here", name="late", description="A late tool")
            await client.assert_notification("tools/list_changed")
            await client.refute_notification("prompts/list_changed")

    asyncio.run(scenario())


def test_streams_are_notified_of_new_tools() -> None:
    async def scenario() -> None:
        hub = counter()
        async with connect(hub, "2026-07-28") as client, client.listen(toolsListChanged=True):
            hub.tool(lambda: "here", name="late", description="A late tool")
            await client.assert_notification("tools/list_changed")

    asyncio.run(scenario())


def test_an_unknown_tool_is_an_error() -> None:
    async def scenario() -> None:
        async with connect(counter()) as client:
            with pytest.raises(RemoteError, match="Unknown tool: nope") as caught:
                await client.call_tool("nope")
            assert caught.value.code == -32602

    asyncio.run(scenario())
