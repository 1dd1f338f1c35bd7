from dataclasses import dataclass
from datetime import date
from typing import Any

from waypost import Audio, EmbeddedResource, Hub, Image, ResourceLink, Result, Text

hub = Hub("returns", version="1.0.0")


@dataclass
class Point:
    x: int
    y: int


@hub.tool
async def text() -> str:
    return "plain"


@hub.tool
async def number() -> int:
    return 3


@hub.tool
async def items() -> list[str]:
    return ["a", "b"]


@hub.tool
async def mapping() -> dict[str, int]:
    return {"a": 1}


@hub.tool
async def point(x: int, y: int) -> Point:
    return Point(x, y)


@hub.tool
async def day() -> date:
    return date(2026, 7, 28)


@hub.tool
async def nothing() -> None:
    return None


@hub.tool
async def picture() -> Image:
    return Image(b"\x89PNG", mime_type="image/png")


@hub.tool
async def blocks() -> list[Any]:
    return [
        "Listen:",
        Audio(b"RIFF", mime_type="audio/wav"),
        EmbeddedResource("note://1", text="a note", mime_type="text/plain"),
        ResourceLink("note://2", "another note"),
    ]


@hub.tool
async def verbatim() -> Result:
    return Result(content=[Text("Half of it failed.")], structured={"done": 1}, is_error=True, meta={"took": 0.2})


@hub.tool(output={"total": {"type": "integer", "required": True}})
async def promised(total: Any) -> dict[str, Any]:
    return {"total": total}
