"""A hub to start as a process of its own: `served.py stdio|http|plain [max_body]`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from waypost import Context, Hub

hub = Hub("served", version="1", max_body=int(sys.argv[2]) if len(sys.argv) > 2 else 4 * 1024 * 1024)


@hub.tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@hub.tool
async def slow(seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return "slow"


@hub.tool
def block(seconds: float) -> str:
    """Take a while, holding on to a thread."""
    time.sleep(seconds)
    return "blocked"


@hub.tool
def noise() -> str:
    """Write to standard output in every way there is."""
    print("noise from print")  # noqa: T201
    sys.stdout.write("noise from stdout\n")
    sys.stdout.flush()
    os.write(1, b"noise from the descriptor\n")
    subprocess.run([sys.executable, "-c", "print('noise from a child')"], check=True)
    return "quiet"


def mark(folder: str, name: str) -> None:
    """Let the test know, by a file."""
    Path(folder, name).touch()


async def waits_for(folder: str, name: str) -> None:
    """Wait until the test puts a file there."""
    for _ in range(6000):
        if Path(folder, name).exists():  # noqa: ASYNC240
            return
        await asyncio.sleep(0.01)


@hub.tool
async def watched(folder: str) -> str:
    """Wait for ever; files say when it began and when it was stopped."""
    mark(folder, "began")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        mark(folder, "stopped")
        raise
    return "never"


@hub.tool
async def stubborn(folder: str) -> str:
    """Wait for ever, and do not listen the first time."""
    mark(folder, "began")
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()
    return "never"


@hub.tool
async def staged(folder: str, ctx: Context) -> str:
    """Say one, wait for the file `go`, say two."""
    await ctx.log("error", "one")
    mark(folder, "began")
    await waits_for(folder, "go")
    await ctx.log("error", "two")
    mark(folder, "finished")
    return "done"


if __name__ == "__main__":
    if sys.argv[1] == "plain":
        # An import of it fails from now on, as with a uvicorn whose private parts have changed.
        sys.modules["waypost.transports.http.fast_uvicorn"] = None  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as data:
        if sys.argv[1] == "stdio":
            hub.serve(data_dir=data)
        else:
            hub.serve("http", port=0, data_dir=data)
