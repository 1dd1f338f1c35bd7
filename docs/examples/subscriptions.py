from waypost import Context, Hub, Resource

hub = Hub("board", version="1.0.0")
lines: list[str] = []


class Board(Resource, uri="board://main", mime_type="text/plain", subscribable=True):
    """The lines on the board."""

    async def read(self) -> str:
        return "\n".join(lines)


@hub.tool
async def write(line: str, ctx: Context) -> str:
    """Write a line on the board."""
    lines.append(line)
    await ctx.notify_resource_updated("board://main")
    return "Written."


hub.add(Board)
