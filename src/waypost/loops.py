"""Shortcuts around the event loop and the garbage collector for the hot path, and awaiting values that may be plain.

Before Python 3.12, `asyncio.get_running_loop` asks the operating system for the process id each time, which costs more
than everything else a small call does. One loop runs in a thread at a time, so the last one seen will do while it runs.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from threading import get_ident
from time import perf_counter
from typing import Any, Final

_last_seen: tuple[int, asyncio.AbstractEventLoop | None] = (0, None)
"""The thread that asked last, and the loop that ran in it."""


def running_loop() -> asyncio.AbstractEventLoop:
    """The loop that runs in this thread."""
    global _last_seen
    thread, loop = _last_seen
    if loop is None or thread != get_ident() or not loop.is_running():
        loop = asyncio.get_running_loop()
        _last_seen = (get_ident(), loop)
    return loop


if sys.version_info >= (3, 12):

    def running_task() -> asyncio.Task[Any]:
        """The current task; call it only where there is one."""
        task = asyncio.current_task()
        assert task is not None
        return task
else:
    _tasks: Final[dict[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = asyncio.tasks._current_tasks  # type: ignore[attr-defined]  # no stub has it

    def running_task() -> asyncio.Task[Any]:
        """The current task; call it only where there is one."""
        return _tasks[running_loop()]


_BUSY_SECONDS: Final = 250e-6
"""How long to poll: longer than a quick answer from this machine takes, too short to matter otherwise."""
_MAX_SKIPPED_WAITS: Final = 1024


class BusyPoll:
    """Keeps the event loop from sleeping while an answer is expected, if such answers come quickly.

    A loop that sleeps in `select` needs about as long to wake up as a quick process on this machine needs to answer.
    Each time no answer comes in time, twice as many waits as before are left without polling.
    """

    __slots__ = ("_backoff", "_skip")

    def __init__(self) -> None:
        self._backoff = 1
        self._skip = 0

    def wait_for(self, answer: asyncio.Future[Any]) -> None:
        """Poll for this answer, for a moment at most; returns at once."""
        if self._skip:
            self._skip -= 1
        else:
            self._poll(running_loop(), answer, perf_counter() + _BUSY_SECONDS)

    def _poll(self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], until: float) -> None:
        if answer.done():
            self._backoff = 1
        elif perf_counter() < until:
            loop.call_soon(self._poll, loop, answer, until)
        else:
            self._skip = self._backoff = min(2 * self._backoff, _MAX_SKIPPED_WAITS)


async def maybe_await(value: Any) -> Any:
    """The value that a function returned, awaited if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


_GC_THRESHOLD: Final = 5_000


def freeze_gc() -> None:
    """Exclude everything that exists now from garbage collection; call it once a hub has started.

    What a hub has built lives as long as the process. Without this each full collection would walk it again, a pause of
    many milliseconds in the middle of requests. With a higher threshold young objects are also collected less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
