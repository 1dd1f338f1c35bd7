"""What a worker's calls come to, for programs with an event loop and for those without."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from waypost.errors import InvocationFailed

T = TypeVar("T")


class Answer(Generic[T]):
    """`await` it in any event loop, or take its `result()` where there is none; it is on its way either way."""

    def __init__(self, going: asyncio.Task[T] | concurrent.futures.Future[T]) -> None:
        self._going = going

    def __await__(self) -> Generator[Any, None, T]:
        if isinstance(self._going, asyncio.Task):
            return self._going.__await__()
        return asyncio.wrap_future(self._going).__await__()

    def result(self, timeout: float | None = None) -> T:
        """Wait for it, as many seconds at most; not in the worker's own loop, which would wait for itself."""
        if isinstance(self._going, asyncio.Task):
            if not self._going.done():
                raise RuntimeError("This runs in the worker's event loop: await the answer instead.")
            return self._going.result()
        return self._going.result(timeout)


def nothing() -> Answer[None]:
    """An answer that is there already."""
    done = concurrent.futures.Future[None]()
    done.set_result(None)
    return Answer(done)


class Home:
    """The event loop that a worker lives in: the one that runs where it is made, else one in a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_left = False
        """Whether nothing is done here any more."""
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            self.loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, name="waypost-worker", daemon=True)
            self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether this is the worker's own loop."""
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    def start(self, work: Coroutine[Any, Any, T]) -> Answer[T]:
        """Begin to do something."""
        if self.is_here:
            return Answer(self._task(work))
        if self.is_left or self.loop.is_closed():
            work.close()
            raise InvocationFailed("The worker was shut down.", "SHUTDOWN")
        return Answer(asyncio.run_coroutine_threadsafe(work, self.loop))

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self.loop.create_task(work)
        self._tasks.add(task)  # nobody may be waiting for it
        task.add_done_callback(self._tasks.discard)
        return task

    def soon(self, action: Callable[..., object], *arguments: Any) -> None:
        """Do something in the loop, now if this is it; what is asked for first is done first."""
        if self.is_here:
            action(*arguments)
        elif not self.is_left:
            self.loop.call_soon_threadsafe(action, *arguments)

    def leave(self) -> None:
        """Let go of a loop that was made for the worker; called in it, at the end of everything."""
        if self._thread is not None:
            self.is_left = True
            self.loop.stop()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(_clear_up())
        finally:
            self.loop.close()


async def _clear_up() -> None:
    """End everything else that goes on in this loop."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
