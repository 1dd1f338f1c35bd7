"""Threads for synchronous handlers: bounded, and never waited for when they are stuck."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from waypost.errors import Busy

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)


class _Job:
    __slots__ = ("abandoned", "call", "future", "jobs", "loop", "started")

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.jobs: queue.SimpleQueue[_Job | None] | None = None
        self.call = call
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.started = False
        self.abandoned = False


class Pool:
    """Up to `size` threads, started when needed; a call that is cancelled is replaced by a new thread at once."""

    def __init__(self, size: int = 32, max_waiting: int = 10_000) -> None:
        self._size = size
        self._max_waiting = max_waiting
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._pending = 0
        self._stuck = 0

    @property
    def stuck(self) -> int:
        """How many cancelled calls are still running in their threads."""
        return self._stuck

    async def run(self, label: str, function: Callable[..., T], *args: Any) -> T:
        """Run `function` in a thread; after a cancellation the call runs on unobserved, which is logged."""
        context = contextvars.copy_context()
        job = _Job(lambda: context.run(function, *args), asyncio.get_running_loop())
        self._submit(job)
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

    def _submit(self, job: _Job) -> None:
        with self._lock:
            if self._pending >= self._size + self._max_waiting:
                raise Busy(f"{self._max_waiting} synchronous calls are waiting for a thread already; try again later.")
            self._pending += 1
            job.jobs = self._jobs
            self._jobs.put(job)
            self._start_thread_if_needed()

    def _start_thread_if_needed(self) -> None:
        if self._threads < min(self._size, self._pending):
            self._threads += 1
            threading.Thread(target=self._work, args=(self._jobs,), name="waypost-handler", daemon=True).start()

    def _abandon(self, job: _Job) -> bool:
        with self._lock:
            if job.abandoned or job.call is _done:
                return False
            job.abandoned = True
            self._pending -= 1
            if job.started:
                self._stuck += 1
            if job.started and job.jobs is self._jobs:
                self._threads -= 1
                self._start_thread_if_needed()
            return job.started

    def _work(self, jobs: queue.SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None:
            with self._lock:
                if job.abandoned:
                    continue
                job.started = True
            if not self._finish(job, *_outcome(job.call)):
                return

    def _finish(self, job: _Job, result: Any, error: BaseException | None) -> bool:
        with self._lock:
            job.call = _done
            if job.abandoned:
                self._stuck -= 1
                return False
            self._pending -= 1
        try:
            job.loop.call_soon_threadsafe(_set_outcome, job.future, result, error)
        except RuntimeError:
            _log.debug("a synchronous call outlived its event loop")
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
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError("the handler raised StopIteration"))
    else:
        future.set_exception(error)
