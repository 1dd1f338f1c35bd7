"""The watchdog: finds turns of the event loop that take too long, and the function that held the loop.

A thread asks the loop for a sign of life several times within the threshold, and looks at the frames of the loop's
thread when none comes. Requests cost nothing, and a loop that waits for input is not woken.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, NamedTuple

_log: Final = logging.getLogger(__name__)
_LOOKS: Final = 4
"""How often the loop is looked at within the threshold."""
_MAX_FRAMES: Final = 8


class Stall(NamedTuple):
    """One turn of the loop that took too long."""

    seconds: float
    cpu_seconds: float
    """How much of it the loop's thread was running; the rest it waited, for a lock, a disk or a processor."""
    function: str
    """The innermost function that was seen, with its file and line."""
    callers: tuple[str, ...]
    """The functions that called it, the nearest first."""


def log_stall(stall: Stall) -> None:
    """Log a stall."""
    _log.warning(
        "the event loop was held for %.2f s (%.2f s of CPU time) by %s, called by %s",
        stall.seconds,
        stall.cpu_seconds,
        stall.function,
        " < ".join(stall.callers) or "the loop",
    )


class Watchdog:
    """Watches the loop that it is started on, and reports each stall from a thread of its own."""

    def __init__(self, threshold: float, report: Callable[[Stall], None]) -> None:
        self._threshold = threshold
        self._report = report
        self._stopped = threading.Event()
        self._beat = 0.0
        """When the loop gave the last sign of life."""

    def start(self) -> None:
        """Begin to watch the current loop; call it from a coroutine."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._base = _find_base(inspect.currentframe())
        self._stopped.clear()
        threading.Thread(target=self._watch, name="waypost-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop to watch."""
        self._stopped.set()

    def _watch(self) -> None:
        stopped, pause = self._stopped, self._threshold / _LOOKS
        read_cpu = _cpu_clock(self._thread_id)
        asked: float | None = None  # when a sign of life was asked for that has not come
        seen: list[str] = []
        looked, cpu = time.monotonic(), read_cpu()
        while True:
            frame = None  # a frame keeps the values of its variables alive
            if stopped.wait(pause):
                return
            now, frame = time.monotonic(), sys._current_frames().get(self._thread_id)
            if asked is not None and self._beat < asked:
                if now - asked > self._threshold and not seen:
                    seen = _describe(frame, self._base)
                continue
            if asked is not None and self._beat - asked > self._threshold:
                self._end(self._beat - asked, read_cpu() - cpu, seen)
            elif now - looked > self._threshold + pause and read_cpu() - cpu > self._threshold / 2:
                # This thread was kept from running too: a function in C held the lock of the interpreter all the time.
                self._end(now - looked - pause, read_cpu() - cpu, _describe(frame, self._base))
            asked, seen, looked, cpu = None, [], now, read_cpu()
            if frame is None or frame is self._base or _is_selecting(frame):
                continue  # the loop waits for input
            asked = now
            try:
                self._loop.call_soon_threadsafe(self._note_beat)
            except RuntimeError:  # the loop is closed
                return

    def _note_beat(self) -> None:
        self._beat = time.monotonic()

    def _end(self, seconds: float, cpu_seconds: float, seen: list[str]) -> None:
        function, *callers = seen or ["a function that has ended"]
        self._report(Stall(seconds, cpu_seconds, function, tuple(callers)))


def _cpu_clock(thread_id: int) -> Callable[[], float]:
    """The CPU time of a thread; where the system does not tell, the time of day."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    clock = time.pthread_getcpuclockid(thread_id)
    return lambda: time.clock_gettime(clock)


def _find_base(frame: FrameType | None) -> FrameType | None:
    """The frame that runs the loop, the caller of the outermost coroutine; a loop in C has no other frame when idle."""
    while frame is not None and not frame.f_code.co_flags & inspect.CO_COROUTINE:
        frame = frame.f_back
    while frame is not None and frame.f_code.co_flags & inspect.CO_COROUTINE:
        frame = frame.f_back
    return frame


def _is_selecting(frame: FrameType) -> bool:
    return frame.f_code.co_name == "select" and frame.f_code.co_filename.endswith("selectors.py")


def _describe(frame: FrameType | None, base: FrameType | None) -> list[str]:
    """The functions on the stack of the loop's thread, the innermost first."""
    found: list[str] = []
    while frame is not None and frame is not base and len(found) < _MAX_FRAMES:
        found.append(f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})")
        frame = frame.f_back
    return found
