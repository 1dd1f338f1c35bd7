from typing import Any

from waypost import Context, Hub, Session

hub = Hub("hooks", version="1.0.0")
calls: list[str] = []


@hub.tool
async def whoami(ctx: Context) -> str:
    """Return the name of the client."""
    return str(ctx.session.assigns.get("greeting", "An unknown client."))


@hub.on("init")
async def greet(client_info: Any, session: Session) -> None:
    await session.put("greeting", f"You are {client_info.name}.")


@hub.on("tool_call")
async def count(name: str, arguments: dict[str, Any], ctx: Context) -> Any:
    calls.append(name)
    return await Hub.on_tool_call(hub, name, arguments, ctx)


@hub.on("call")
async def look_up(request: str, session: Session) -> Any:
    return session.assigns.get(request)
