"""A hub to be killed: `waypost serve desk.py:hub`, its store the data directory's or the one `DESK_STORE` names.

Its clock is ahead by the seconds of `DESK_SKEW`; `DESK_DRAIN_MS` is its setting `server.drainMs`.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from waypost import Context, Hub
from waypost.config.models import Workflow
from waypost.kinds import convert

real_time, skew = time.time, float(os.environ.get("DESK_SKEW", "0"))
if skew:
    time.time = lambda: real_time() + skew

hub = Hub(
    "desk",
    version="1.0.0",
    store=os.environ.get("DESK_STORE"),
    drain_ms=int(os.environ.get("DESK_DRAIN_MS", "500")),
)
PATIENT = {
    "initialState": "a",
    "inputSchema": {"type": "object", "properties": {"folder": {"type": "string"}}},
    "states": {
        "a": {
            "transitions": {
                "wait": {
                    "target": "b",
                    "executor": {
                        "kind": "capability",
                        "capability": "linger",
                        "arguments": {"folder": "$.workflow.input.folder"},
                    },
                }
            }
        },
        "b": {"terminal": True},
    },
}
hub.workflow("patient", convert(PATIENT, Workflow))


@hub.tool(timeout=60)
async def linger(folder: str) -> str:
    """Wait until a file is there."""
    mark(folder, "began")
    while not Path(folder, "go").exists():  # noqa: ASYNC110, ASYNC240  # the test is another process
        await asyncio.sleep(0.02)
    return "done"


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


@hub.tool
async def stall(ctx: Context) -> str:
    """Say something on the stream of the call, and wait for ever."""
    await ctx.log("error", "waiting")
    await asyncio.Event().wait()
    return "never"


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


@hub.tool(task="required", annotations={"idempotentHint": True})
async def repeat(folder: str) -> str:
    """Say that it began, in a file of its process, and wait until a file is there."""
    mark(folder, f"began-{os.getpid()}")
    return await linger(folder)


@hub.tool
async def greet(ctx: Context) -> str:
    """Ask for a name and greet, in a call that waits for it."""
    return await ask(ctx)


@hub.tool(task="required", annotations={"idempotentHint": True})
async def ask_again(ctx: Context) -> str:
    """The same as a task that may be run again."""
    return await ask(ctx)


@hub.tool(task="required")
async def ask(ctx: Context) -> str:
    """Ask for a name and greet."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answer = await ctx.elicit("What is your name?", schema)
    return f"Hello, {answer.content['name']}!" if answer.content else "Hello!"
