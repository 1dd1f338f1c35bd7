"""Small matters of asyncio: the running loop and task without a system call, and values that may be awaitable.

Before Python 3.12, `asyncio.get_running_loop` asks the operating system for the process id each time, which costs more
than everything else a small call does. One loop runs in a thread at a time, so the last one seen will do while it runs.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any


class _Here(threading.local):
    loop: asyncio.AbstractEventLoop | None = None


_here = _Here()


def running_loop() -> asyncio.AbstractEventLoop:
    """The loop that runs in this thread."""
    loop = _here.loop
    if loop is None or not loop.is_running():
        loop = _here.loop = asyncio.get_running_loop()
    return loop


def running_task() -> asyncio.Task[Any]:
    """The task that runs right now; only to be asked where there is one."""
    task = asyncio.current_task(running_loop())
    assert task is not None
    return task


async def awaited(value: Any) -> Any:
    """What a function came to that may or may not be asynchronous."""
    return await value if inspect.isawaitable(value) else value
