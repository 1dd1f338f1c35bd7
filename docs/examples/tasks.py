import asyncio

from waypost import Context, Hub
from waypost.testing import connect

hub = Hub("archive", version="1.0.0", task_after=0.2)
removed: list[str] = []


@hub.tool(task="optional")
async def pack(files: int) -> str:
    """Pack files; many of them take long."""
    for _ in range(files):
        await asyncio.sleep(0.01)
    return f"Packed {files} files."


@hub.tool(task="required")
async def remove(name: str, ctx: Context) -> str:
    """Remove an archive, after the user agreed."""
    answer = await ctx.elicit(f"Remove {name}?", {"sure": {"type": "boolean", "required": True}}, key="sure")
    if not answer.accepted or answer.content is None or not answer.content["sure"]:
        return f"{name} stays."
    removed.append(name)
    return f"{name} is gone."


async def packed(files: int) -> str:
    """Return the result of packing, as a task if it takes long."""
    async with connect(hub, capabilities={"extensions": {"io.modelcontextprotocol/tasks": {}}}) as client:
        answer = await client.call_tool("pack", {"files": files})
        while answer.get("status") == "working":
            await asyncio.sleep(0.05)
            answer = await client.request("tasks/get", {"taskId": answer["taskId"]})
        text: str = answer.get("result", answer)["content"][0]["text"]
        return text
