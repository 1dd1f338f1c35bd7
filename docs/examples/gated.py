from typing import Any

from waypost import Context, Hub, ToolError

hub = Hub("gated", version="1.0.0")


@hub.tool
async def unlock(code: str, ctx: Context) -> str:
    """Show the tools for administrators, in this session."""
    if code != "1234":
        raise ToolError("That is not the code.")
    await ctx.session.put("admin", True)
    await ctx.session.notify_changed("tools")
    return "Unlocked."


@hub.tool(hidden=True)
async def shut_down(ctx: Context) -> str:
    """Shut everything down."""
    if not ctx.session.assigns.get("admin"):
        raise ToolError("Unlock first.")
    return "Good night."


@hub.on("list_tools")
async def list_tools(cursor: str | None, ctx: Context) -> Any:
    return hub.list_registered("tools", cursor, include_hidden=ctx.session.assigns.get("admin", False))
