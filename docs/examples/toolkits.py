from typing import Any

from waypost import Context, Hub, Toolkit, tool


class Notes(Toolkit, category="Notes"):
    """Short texts under a name."""

    def __init__(self) -> None:
        self._notes: dict[str, str] = {}

    @tool(name="notes.write", description="Keep a note")
    async def write(self, name: str, text: str) -> str:
        self._notes[name] = text
        return f"Kept {name}."

    @tool(
        name="notes.read",
        description="Read a note",
        input={"name": {"type": "string", "required": True}},
    )
    async def read(self, args: dict[str, Any], ctx: Context) -> str:
        await ctx.log("debug", "reading", {"name": args["name"]})
        return self._notes.get(args["name"], "")

    @tool(name="notes.count", description="Count the notes", category="Statistics")
    async def count(self) -> int:
        return len(self._notes)

    @tool(description="Forget everything", hidden=True)
    @tool(name="notes.clear", annotations={"destructive_hint": True})
    async def clear(self) -> None:
        self._notes.clear()


hub = Hub("notes", version="1.0.0")
hub.add(Notes)
