"""Small matters of asyncio: the running loop and task without a system call, and values that may be awaitable.

Before Python 3.12, `asyncio.get_running_loop` asks the operating system for the process id each time, which costs more
than everything else a small call does. One loop runs in a thread at a time, so the last one seen will do while it runs.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from threading import get_ident
from typing import Any, Final

_last: tuple[int, asyncio.AbstractEventLoop | None] = (0, None)
"""The thread that asked last, and the loop that ran there."""


def running_loop() -> asyncio.AbstractEventLoop:
    """The loop that runs in this thread."""
    global _last
    thread, loop = _last
    if loop is None or thread != get_ident() or not loop.is_running():
        loop = asyncio.get_running_loop()
        _last = (get_ident(), loop)
    return loop


if sys.version_info >= (3, 12):

    def running_task() -> asyncio.Task[Any]:
        """The task that runs right now; only to be asked where there is one."""
        task = asyncio.current_task()
        assert task is not None
        return task
else:
    _tasks: Final[dict[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = asyncio.tasks._current_tasks  # type: ignore[attr-defined]  # no stub has it

    def running_task() -> asyncio.Task[Any]:
        """The task that runs right now; only to be asked where there is one."""
        return _tasks[running_loop()]


async def awaited(value: Any) -> Any:
    """What a function came to that may or may not be asynchronous."""
    return await value if inspect.isawaitable(value) else value
