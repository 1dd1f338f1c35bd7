import asyncio

from fastmcp import Client


async def main() -> None:
    async with Client("http://127.0.0.1:8420/mcp") as client:
        print([tool.name for tool in await client.list_tools()])
        result = await client.call_tool("add", {"a": 1, "b": 2})
        print(result.structured_content)


if __name__ == "__main__":
    asyncio.run(main())
