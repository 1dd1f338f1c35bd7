"""The event loop: shortcuts for the hot path, writes sent together, tasks that are cancelled, and the watchdog.

Before Python 3.12, `asyncio.get_running_loop` asks the operating system for the process id each time, which costs more
than everything else a small call does. One loop runs in a thread at a time, so the last one seen will do while it runs.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import suppress
from threading import get_ident
from time import perf_counter
from types import FrameType
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

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

    def running_task(loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Task[Any]:
        """The current task; call it only where there is one, with the loop that runs if that is known."""
        task = asyncio.current_task(loop)
        assert task is not None
        return task
else:
    # What `asyncio.current_task` looks into, without its lookup of the loop.
    _tasks: Final[dict[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = asyncio.tasks._current_tasks  # type: ignore[attr-defined]  # no stub has it

    def running_task(loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Task[Any]:
        """The current task; call it only where there is one, with the loop that runs if that is known."""
        return _tasks[loop or running_loop()]


class Paused(Generic[T]):
    """The rest of an awaitable that ran up to its first pause; await it once."""

    __slots__ = ("_paused_on", "_steps")

    def __init__(self, steps: Iterator[Any], paused_on: Any) -> None:
        self._steps: Any = steps
        self._paused_on: tuple[Any, ...] = (paused_on,)

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """What it paused on, for the event loop to wait for; then what it pauses on next."""
        if self._paused_on:
            (paused_on,), self._paused_on = self._paused_on, ()
            return paused_on
        return next(self._steps)

    def send(self, value: Any) -> Any:
        """As a generator does."""
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """As a generator does: a cancellation arrives here."""
        return self._steps.throw(*error)

    def close(self) -> None:
        """As a generator does."""
        self._steps.close()


def run_to_pause(awaitable: Awaitable[T]) -> tuple[T | None, Paused[T]]:
    """Run an awaitable until it pauses or ends: its result, or else its rest, which has to be awaited.

    What usually ends at once can be spared what only a wait needs, such as a deadline.
    """
    steps = awaitable.__await__()
    try:
        paused_on = next(steps)
    except StopIteration as done:
        return done.value, _ENDED
    return None, Paused(steps, paused_on)


_ENDED: Final[Paused[Any]] = Paused(iter(()), None)
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
            # With a callback to run, the loop looks for input without sleeping.
            loop.call_soon(self._poll, loop, answer, until)
        else:
            self._skip = self._backoff = min(2 * self._backoff, _MAX_SKIPPED_WAITS)


def start_task(work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[T]]) -> asyncio.Task[T]:
    """Start a coroutine as a task that stays in a set until it ends; the loop itself does not keep tasks alive."""
    task = running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


async def wait_for_event(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait until an event is set, but no longer than the timeout; returns whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    return event.is_set()


class KeyLocks:
    """A lock for each key, which lives as long as a task holds it or waits for it."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __getitem__(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())


async def cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until all of them have ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def maybe_await(value: Any) -> Any:
    """The value that a function returned, awaited if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


_GC_THRESHOLD: Final = 5_000


def freeze_gc() -> None:
    """Exclude everything that exists now from garbage collection; call it once a hub has started.

    What a hub has built lives as long as the process. Without this each full collection would walk it again, a pause of
    many milliseconds in the middle of requests. With a higher threshold young objects are also collected less often.
    """
    # What is garbage now would be frozen too, and never freed.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)


_SWITCH_INTERVAL_S: Final = 0.0005


def share_interpreter() -> None:
    """Have threads that compute hand over the interpreter to the event loop within half a millisecond, not five.

    The loop gives it up each time that it looks for input. While schemas are checked in a thread, or a handler computes
    in one, every turn of the loop would otherwise begin with a wait of five milliseconds.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BLOCK_BYTES: Final = 1_048_576


def return_large_blocks() -> None:
    """Have glibc return the memory of large messages to the system as soon as they are freed.

    By default it does so only until the first of them is freed: from then on it takes blocks of that size from its
    heap, where a small block that was allocated later keeps everything before it. Other C libraries ignore this.
    """
    import ctypes  # takes milliseconds, which commands that end at once do not have to pay

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE_BLOCK_BYTES)
        # Threads that allocate share one heap, where the next message reuses what a checked schema left. With a heap
        # for each of them every one keeps its own peak; the lock of the interpreter keeps them from waiting.
        mallopt(_M_ARENA_MAX, 1)


class CorkedTransport:
    """Holds writes back until the end of the loop's turn; everything else is the transport's own."""

    def __init__(
        self, transport: Any, loop: asyncio.AbstractEventLoop, sent: Callable[[], None] = lambda: None
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._sent = sent
        self._held: list[bytes] = []
        self._is_scheduled = False
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Send at the end of the turn, together with what follows; `sent` is called then."""
        self._schedule()
        self._held.append(data)

    def write_whole(self, data: bytes) -> None:
        """Send at once a message that nothing follows in this turn, unless others are held back before it."""
        if self._held:
            self._held.append(data)
        else:
            self._transport.write(data)

    def write_message(self, data: bytes) -> None:
        """Send the first message of a turn at once, for its latency, and all others together; `sent` is called then."""
        if self._is_scheduled:
            self._held.append(data)
        else:
            self._schedule()
            self._transport.write(data)

    def close(self) -> None:
        """Send what is held back, then close."""
        self._send()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """How many bytes were written and not handed to the operating system."""
        size: int = self._transport.get_write_buffer_size()
        return size + sum(map(len, self._held)) if self._held else size

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_scheduled = False
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            try:
                self._transport.write(data)
            except RuntimeError:
                if not self.is_closing():  # uvloop raises it for a connection that was lost meanwhile
                    raise
        self._sent()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


# A thread asks the loop for a sign of life several times within the threshold, and looks at the frames of the loop's
# thread when none comes. Requests cost nothing, and a loop that waits for input is not woken.

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
        self._running = threading.Lock()
        """Held until it is stopped. An event would do, but waits in Python, dozens of times a second in an idle hub."""
        self._beat = 0.0
        """When the loop gave the last sign of life."""

    def start(self) -> None:
        """Begin to watch the current loop; call it from a coroutine."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._base = _find_base(inspect.currentframe())
        self._running = threading.Lock()
        self._running.acquire()
        # Measured here, not in the thread: a turn that begins at once would keep the thread from its first line.
        read_cpu = _cpu_clock(self._thread_id)
        began = time.monotonic(), read_cpu()
        threading.Thread(
            target=self._watch, args=(self._running, read_cpu, *began), name="waypost-watchdog", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop to watch."""
        if self._running.locked():
            self._running.release()

    def _watch(self, running: threading.Lock, read_cpu: Callable[[], float], looked: float, cpu: float) -> None:
        pause = self._threshold / _LOOKS
        asked: float | None = None  # when a sign of life was asked for that has not come
        seen: list[str] = []
        while True:
            frame = None  # a frame keeps the values of its variables alive
            if running.acquire(timeout=pause):
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
