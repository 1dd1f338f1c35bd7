"""Small matters of asyncio: the running loop and task without a system call, staying awake, values to be awaited.

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


_AWAKE: Final = 250e-6
"""Seconds that a vigil lasts: longer than a quick answer from this machine takes, and too short to be missed."""
_LONGEST_REST: Final = 1024


class BusyPoll:
    """Keeps the loop awake until an answer is there, if such answers come quickly.

    A loop that goes to sleep needs about as long to wake up as a quick neighbour needs to answer. After a vigil in vain
    there is none for the next waits, for twice as many each time.
    """

    __slots__ = ("_in_vain", "_rest")

    def __init__(self) -> None:
        self._in_vain = 1
        self._rest = 0

    def wait_for(self, answer: asyncio.Future[Any]) -> None:
        """Stay awake for this answer, for a moment at most."""
        if self._rest:
            self._rest -= 1
        else:
            self._watch(running_loop(), answer, perf_counter() + _AWAKE)

    def _watch(self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], until: float) -> None:
        if answer.done():
            self._in_vain = 1
        elif perf_counter() < until:
            loop.call_soon(self._watch, loop, answer, until)
        else:
            self._rest = self._in_vain = min(2 * self._in_vain, _LONGEST_REST)


async def maybe_await(value: Any) -> Any:
    """What a function came to that may or may not be asynchronous."""
    return await value if inspect.isawaitable(value) else value


_ALLOCATIONS_BETWEEN_LOOKS: Final = 5_000


def freeze_gc() -> None:
    """Set aside what lives as long as the process, so that collections only walk what requests leave behind."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BETWEEN_LOOKS)
