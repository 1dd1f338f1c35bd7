import asyncio

from mcp import Client, StdioServerParameters

HUB = StdioServerParameters(command="/path/to/.venv/bin/waypost", args=["serve", "/path/to/server.py:hub", "--stdio"])


async def main() -> None:
    async with Client(HUB) as client:
        print((await client.call_tool("add", {"a": 1, "b": 2})).structured_content)


if __name__ == "__main__":
    asyncio.run(main())
