"""A hub with elicitations, logs, progress, prompts and resources, in the version that its argument names.

As a program it speaks on standard streams.
"""

from __future__ import annotations

import asyncio
import sys

from waypost import Context, Hub, NoAnswer

COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


class Dated(Hub):
    """Knows one version, and what was called."""

    def __init__(self, name: str, only: str) -> None:
        super().__init__(name, version="1", store="sqlite://")
        self.only = only
        self.calls: list[str] = []

    def supported_protocol_versions(self) -> list[str]:
        return [self.only]


def curious(version: str, name: str = "curious") -> Dated:
    """The hub."""
    hub = Dated(name, version)
    _asking(hub)
    _telling(hub)
    _offering(hub)
    return hub


def _asking(hub: Dated) -> None:
    calls = hub.calls

    @hub.tool
    async def paint(what: str, ctx: Context) -> str:
        """Paint something, after asking for the colour."""
        calls.append("paint")
        try:
            answer = await ctx.elicit(f"Which colour for {what}?", COLOUR)
        except asyncio.CancelledError:
            calls.append("cancelled")
            raise
        return f"{what}: {answer.content['colour'] if answer.content else answer.action}"

    @hub.tool
    async def two_questions(ctx: Context) -> str:
        """Ask one thing after the other."""
        calls.append("two_questions")
        first = await ctx.elicit("First?", COLOUR)
        second = await ctx.elicit("Second?", COLOUR)
        return " ".join(str((answer.content or {}).get("colour")) for answer in (first, second))

    @hub.tool
    async def crowd(count: int, ctx: Context) -> str:
        """Ask many questions at once."""
        asking = (ctx.elicit("Which colour?", COLOUR, key=f"q{number}") for number in range(count))
        return str(len(await asyncio.gather(*asking)))

    @hub.tool
    async def hurry(ctx: Context) -> str:
        """Ask, and do not wait for long."""
        try:
            return (await ctx.elicit("Quick!", COLOUR, within=0.2)).action
        except NoAnswer:
            return "too late"

    @hub.tool
    async def log_in(ctx: Context) -> str:
        """Have somebody open a page."""
        return (await ctx.elicit("Log in, please.", url="https://example.com/login")).action

    @hub.tool
    async def think(ctx: Context) -> str:
        """Ask the client's model."""
        return (await ctx.sample("What is it?", max_tokens=7, temperature=0.5)).text

    @hub.tool
    async def look_around(ctx: Context) -> str:
        """Ask where the client works."""
        return " ".join(root.uri for root in await ctx.roots())


def _telling(hub: Dated) -> None:
    calls = hub.calls

    @hub.tool
    async def chatter(ctx: Context) -> str:
        """Log and report."""
        await ctx.log("warning", "Careful.", {"depth": 3})
        await ctx.progress(1, 2, "half")
        return "done"

    @hub.tool
    async def hang(ctx: Context) -> str:
        """Wait until it is cancelled, and remember that."""
        calls.append("hang")
        await ctx.progress(1)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            calls.append("cancelled")
            raise
        return ""


def _offering(hub: Dated) -> None:
    @hub.prompt(title="Greeting", description="Greet somebody.")
    def greet(name: str, tone: str = "warm") -> str:
        return f"Greet {name}, {tone}."

    @hub.prompt
    async def ask_first(ctx: Context) -> str:
        """Ask before it is written."""
        answer = await ctx.elicit("Which colour?", COLOUR)
        return f"In {(answer.content or {}).get('colour')}."

    @hub.resource("notes://today", name="today", title="Today", mime_type="text/plain", subscribable=True)
    def today() -> str:
        return "Sunny."

    @hub.resource("notes://picture", name="picture", mime_type="image/png")
    def picture() -> bytes:
        return b"png"

    @hub.resource("notes://day/{day}", name="day", mime_type="text/plain", subscribable=True)
    def day(day: str) -> str:
        return f"Notes of {day}."

    @hub.tool
    async def rewrite(ctx: Context) -> str:
        """Say that today's notes changed."""
        await ctx.notify_resource_updated("notes://today")
        return "rewritten"

    @hub.tool
    async def grow(ctx: Context) -> str:
        """Have one more prompt and resource."""
        hub.prompt(name="extra")(lambda: "More.")
        hub.resource("notes://extra", name="extra")(lambda: "More.")
        return "grown"


if __name__ == "__main__":
    curious(sys.argv[1]).run("stdio")
