import asyncio

from tour import hub

from waypost.testing import connect


def test_it_finds_books() -> None:
    async def scenario() -> None:
        async with connect(hub) as client:
            result = await client.call_tool("search", {"text": "wizard"})
            assert result.text == "[3]"
            assert not result.is_error

    asyncio.run(scenario())
