"""The event loop of a worker, and the answers that its methods give, to `await` or to wait for in a thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from waypost.errors import InvocationFailed

T = TypeVar("T")


class Answer(Generic[T]):
    """`await` it in any event loop, or wait for its `result()` where there is none; the work has started either way."""

    def __init__(self, running: asyncio.Task[T] | concurrent.futures.Future[T]) -> None:
        self._running = running

    def __await__(self) -> Generator[Any, None, T]:
        if isinstance(self._running, asyncio.Task):
            return self._running.__await__()
        return asyncio.wrap_future(self._running).__await__()

    def result(self, timeout: float | None = None) -> T:
        """Wait for it, up to `timeout` seconds; not in the worker's own loop, which would wait for itself."""
        if isinstance(self._running, asyncio.Task):
            if not self._running.done():
                raise RuntimeError("This runs in the worker's event loop: await the answer instead.")
            return self._running.result()
        return self._running.result(timeout)


class WorkerLoop:
    """The event loop that runs where the worker is made, or else one in a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_stopped = False
        """Whether a loop of its own runs nothing any more."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, name="waypost-worker", daemon=True)
            self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def start(self, work: Coroutine[Any, Any, T]) -> Answer[T]:
        """Start a coroutine, from any thread."""
        if self.is_current:
            task = self._loop.create_task(work)
            self._tasks.add(task)  # the caller may drop the answer
            task.add_done_callback(self._tasks.discard)
            return Answer(task)
        if self.is_stopped or self._loop.is_closed():
            work.close()
            raise InvocationFailed("The worker was shut down.", "SHUTDOWN")
        return Answer(asyncio.run_coroutine_threadsafe(work, self._loop))

    def call(self, action: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop, at once if this is it; calls keep their order."""
        if self.is_current:
            action(*arguments)
        elif not self.is_stopped:
            self._loop.call_soon_threadsafe(action, *arguments)

    def stop(self) -> None:
        """End a loop that was made for the worker; called in it, after everything else."""
        if self._thread is not None:
            self.is_stopped = True
            self._loop.stop()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_tasks())
        finally:
            self._loop.close()


async def _cancel_tasks() -> None:
    """End everything else that runs in this loop."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
