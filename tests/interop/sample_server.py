"""A hub with one small example of everything a client can use, for the clients of other projects."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal

from waypost import (
    Audio,
    Context,
    EmbeddedResource,
    Hub,
    Image,
    Prompt,
    Resource,
    ResourceLink,
    Result,
    Text,
    Tool,
    ToolError,
)
from waypost.wire.content import Annotations, TextContents

BOARD = "notes://board"

ICONS = [{"src": "https://example.com/icon.png", "mimeType": "image/png", "sizes": ["48x48"]}]

hub = Hub(
    "sample",
    version="2.1.0",
    title="A sample",
    description="One of everything.",
    website_url="https://example.com",
    icons=ICONS,
    instructions="Add numbers, read notes.",
    page_size=5,
)

stopped: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
board: list[str] = []


@dataclass
class Person:
    """Somebody."""

    name: str
    age: int
    emails: list[str]


@hub.tool(annotations={"read_only_hint": True}, title="Addition", category="Math", icons=ICONS)
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


class LookUp(Tool, tags=("people",)):
    """Find a person by name."""

    name: str
    age: int = 30

    def execute(self) -> Person:
        return Person(self.name, self.age, [f"{self.name}@example.com"])


@hub.tool(output_schema={"type": "array", "items": {"type": "integer"}})
def primes() -> Result:
    """Name some primes, as structured data that is not an object."""
    return Result([Text("[2,3,5]")], structured=[2, 3, 5])


@hub.tool
def gallery() -> list[Text | Image | Audio | EmbeddedResource | ResourceLink]:
    """Show one block of every kind."""
    return [
        Text("Look:", meta={"example": True}),
        Image(b"\x89PNG", "image/png"),
        Audio(b"RIFF", "audio/wav"),
        EmbeddedResource(
            resource={"uri": "notes://1", "text": "first note", "_meta": {"example": True}},
            annotations=Annotations(audience=["user"], last_modified="2026-07-28T00:00:00Z"),
        ),
        ResourceLink(BOARD, "board", title="The board", mime_type="text/plain", size=12, icons=ICONS),
    ]


@hub.tool
def refuse(reason: str) -> str:
    """Fail with a reason."""
    raise ToolError(reason)


@hub.tool
async def count(to: int, ctx: Context) -> str:
    """Count aloud."""
    for number in range(1, to + 1):
        await ctx.progress(number, to, f"{number} of {to}")
    return f"Counted to {to}."


@hub.tool
async def chatter(ctx: Context) -> str:
    """Log one message of each of three levels."""
    await ctx.log("debug", "details")
    await ctx.log("info", "news", {"number": 1})
    await ctx.log("error", "trouble")
    return "Said it."


@hub.tool
async def wait(key: str, ctx: Context) -> str:
    """Wait until somebody gives up, after a first sign of life."""
    await ctx.progress(0, 1, "waiting")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        stopped[key].set()
        raise
    return "Nobody gave up."


@hub.tool
async def until_stopped(key: str) -> str:
    """Answer when a call of `wait` was given up."""
    await stopped[key].wait()
    return "It was given up."


@hub.tool
async def learn(name: str) -> str:
    """Add a tool while running."""
    hub.tool(lambda: f"I am {name}.", name=name, description="A tool that was not always there.")
    return f"There is a tool {name} now."


@hub.tool
async def write_on_board(text: str, ctx: Context) -> str:
    """Put a line on the board and tell those who watch it."""
    board.append(text)
    await ctx.notify_resource_updated(BOARD)
    return "Written."


@hub.tool
async def detour(ctx: Context) -> str:
    """Let the client go; it comes back for the answer if it can."""
    await ctx.close_stream()
    return "Back again."


@hub.tool(input_schema={"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}})
def route(args: dict[str, Any]) -> str:
    """Say where to, with an argument that clients repeat as an HTTP header."""
    return f"To {args['city']}."


@hub.tool(hidden=True)
async def secret() -> str:
    """Be callable, but not listed."""
    return "You know me."


class Board(
    Resource,
    uri=BOARD,
    mime_type="text/plain",
    subscribable=True,
    annotations={"priority": 0.5, "lastModified": "2026-07-28T00:00:00Z"},
):
    """What was written on the board."""

    def read(self) -> str:
        return "\n".join(board)


@hub.resource("notes://logo", mime_type="image/png", title="The logo", size=4, icons=ICONS, category="Art")
def logo() -> bytes:
    """The logo, as bytes."""
    return b"\x89PNG"


@hub.resource("notes://sealed")
def sealed() -> TextContents:
    """Contents that say something about themselves."""
    return TextContents("notes://sealed", "wax", meta={"seal": "red"})


class Note(Resource, uri_template="notes://{shelf}/{number}", title="A note", icons=ICONS, category="Notes"):
    """A note on a shelf."""

    shelf: Literal["work", "home", "holiday"]
    number: int

    def read(self) -> dict[str, Any]:
        return {"shelf": self.shelf, "number": self.number}


class Greet(Prompt, title="A greeting", icons=ICONS, category="Manners"):
    """Compose a greeting."""

    name: str
    tone: Literal["warm", "wry", "formal"] = "warm"

    def messages(self) -> list[dict[str, Any] | str]:
        return [f"Greet {self.name}, {self.tone}.", {"role": "assistant", "content": f"Dear {self.name},"}]


@hub.prompt
def describe_logo() -> list[Image | str]:
    """Ask for a description of the logo."""
    return [Image(b"\x89PNG", "image/png"), "What is this?"]


for component in (LookUp, Board, Note, Greet):
    hub.add(component)
