"""Threads for synchronous handlers: bounded, shared fairly, and never waited for when they are stuck."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from waypost.execution.limits import FairQueue, Shares

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)
_NAME: Final = "waypost-handler"
_RETRY_S: Final = 1.0


class _Job:
    __slots__ = (
        "call",
        "future",
        "is_abandoned",
        "is_replaced",
        "is_started",
        "is_waiting",
        "jobs",
        "loop",
        "principal",
    )

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop, principal: str) -> None:
        self.jobs: queue.SimpleQueue[_Job | None] | None = None
        self.call = call
        self.loop = loop
        self.principal = principal
        self.future: asyncio.Future[Any] = loop.create_future()
        self.is_waiting = False
        """Whether it waits until its principal may have a thread."""
        self.is_started = False
        self.is_abandoned = False
        self.is_replaced = False
        """Whether another thread took the place of the one that it runs in."""


class Pool:
    """Up to `size` threads, started when needed; a call that is cancelled is replaced by a new thread at once.

    Cancelled calls run on. Once `max_stuck` of them do, their threads count among the `size` until they return, so that
    calls with a short deadline cannot start threads without end.
    """

    def __init__(self, size: int = 32, max_waiting: int = 10_000, max_stuck: int = 128) -> None:
        self._queue: FairQueue[_Job] = FairQueue(size, max_waiting, "synchronous calls are waiting for a thread")
        self._stuck = Shares(max_stuck)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        # Held for bookkeeping only, never while a call runs; `_put` and `_leave` expect it to be held.
        self._lock = threading.Lock()
        self._threads = 0
        self._starts: queue.SimpleQueue[threading.Thread | None] | None = None

    @property
    def stuck(self) -> int:
        """How many cancelled calls are still running in threads that were replaced."""
        return self._stuck.total

    async def run(self, label: str, function: Callable[..., T], *args: Any, principal: str = "") -> T:
        """Run `function` in a thread; after a cancellation the call runs on unobserved, which is logged."""
        # The handler sees the context variables of its call, such as the current span.
        context = contextvars.copy_context()
        job = _Job(lambda: context.run(function, *args), asyncio.get_running_loop(), principal)
        with self._lock:
            if self._queue.enter(principal, job):
                self._put(job)
            else:
                job.is_waiting = True
        try:
            result: T = await job.future
        except asyncio.CancelledError:
            if self._abandon(job):
                _log.warning("%s is synchronous and cannot be stopped; its thread runs on until it returns", label)
            raise
        return result

    def close(self) -> None:
        """End idle threads, and busy ones after their work; later calls start new ones."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)
            self._jobs = queue.SimpleQueue()
            self._threads = 0
            if self._starts is not None:
                self._starts.put(None)
                self._starts = None

    def _put(self, job: _Job) -> None:
        job.is_waiting = False
        job.jobs = self._jobs
        self._jobs.put(job)
        self._start_thread_if_needed()

    def _start_thread_if_needed(self) -> None:
        if self._threads < self._queue.running.total:
            self._threads += 1
            # `Thread.start` waits until the thread runs, which takes long where all cores are busy: not on the loop.
            if self._starts is None:
                self._starts = queue.SimpleQueue()
                threading.Thread(target=_start_all, args=(self._starts,), name="waypost-threads", daemon=True).start()
            # A daemon, so that a handler that never returns does not keep the process from ending.
            self._starts.put(threading.Thread(target=self._work, args=(self._jobs,), name=_NAME, daemon=True))

    def _leave(self, job: _Job) -> None:
        for started in self._queue.leave(job.principal):
            self._put(started)

    def _abandon(self, job: _Job) -> bool:
        with self._lock:
            if job.is_abandoned or job.call is _done:
                return False
            job.is_abandoned = True
            if job.is_waiting:
                self._queue.withdraw(job.principal, job)
            elif not job.is_started:
                self._leave(job)
            elif self._stuck.try_take(job.principal):
                job.is_replaced = True
                # A thread from before `close` belongs to the old queue and is not counted any more.
                if job.jobs is self._jobs:
                    self._threads -= 1
                self._leave(job)
            return job.is_started

    def _work(self, jobs: queue.SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None:
            with self._lock:
                if job.is_abandoned:
                    continue
                job.is_started = True
            if not self._finish(job, *_outcome(job.call)):
                return

    def _finish(self, job: _Job, result: Any, error: BaseException | None) -> bool:
        with self._lock:
            job.call = _done
            # Another thread took its place when its call was abandoned, so this one ends.
            if job.is_replaced:
                self._stuck.give_back(job.principal)
                return False
            self._leave(job)
            if job.is_abandoned:
                return True
        try:
            job.loop.call_soon_threadsafe(_set_outcome, job.future, result, error)
        except RuntimeError:
            _log.debug("a synchronous call outlived its event loop")
        return True


def _start_all(threads: queue.SimpleQueue[threading.Thread | None]) -> None:
    while (thread := threads.get()) is not None:
        while not _can_start(thread):
            time.sleep(_RETRY_S)


def _can_start(thread: threading.Thread) -> bool:
    """Start a thread, unless the system allows no further one now; calls wait for it as long as their deadlines say."""
    try:
        thread.start()
    except RuntimeError as error:
        _log.warning("a thread for synchronous calls cannot be started, trying again: %s", error)
        return False
    return True


def _done() -> None:
    """Replaces the call of a finished job, so that the job does not keep its arguments alive."""


def _outcome(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return call(), None
    except BaseException as error:  # whatever it is belongs to the caller, not to the thread
        return None, error


def _set_outcome(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    # asyncio refuses it as the exception of a future: it would end the coroutine that awaits it.
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError("the handler raised StopIteration"))
    else:
        future.set_exception(error)
