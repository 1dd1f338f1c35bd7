"""A hub to be killed: `waypost serve desk.py:hub`, its store the data directory's or the one `DESK_STORE` names."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from waypost import Context, Hub

hub = Hub("desk", version="1.0.0", store=os.environ.get("DESK_STORE"))


@hub.tool
async def remember(key: str, value: str, ctx: Context) -> str:
    """Keep a value with the session."""
    await ctx.session.put(key, value)
    return value


@hub.tool
async def recall(ctx: Context) -> dict[str, str]:
    """Everything that was kept with the session."""
    return dict(ctx.session.assigns)


@hub.tool
async def announce(text: str, ctx: Context) -> str:
    """Say something on the session's general stream."""
    await ctx.session.send_log("error", text)
    return text


@hub.tool(task="required")
async def quick(text: str) -> str:
    """Be done at once."""
    return text


def mark(folder: str, name: str) -> None:
    """Let the test know, by a file."""
    Path(folder, name).touch()


@hub.tool(task="required")
async def endless(folder: str) -> str:
    """Wait for ever; files say when it began and when it was stopped."""
    mark(folder, "began")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        mark(folder, "stopped")
        raise
    return "never"


@hub.tool(task="required")
async def ask(ctx: Context) -> str:
    """Ask for a name and greet."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answer = await ctx.elicit("What is your name?", schema)
    return f"Hello, {answer.content['name']}!" if answer.content else "Hello!"
