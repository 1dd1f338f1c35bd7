"""A deadline that really stops the work under it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

from waypost.errors import DeadlineExceeded

_INSIST_AFTER: Final = 0.1


class Deadline:
    """Cancels the current task when time is up, again and again if it does not listen, and says so."""

    __slots__ = ("_cancels", "_handle", "_left", "_loop", "_pauses", "_seconds", "_task")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._cancels = 0
        self._pauses = 0

    def __enter__(self) -> Deadline:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] = asyncio.current_task(self._loop)  # type: ignore[assignment]  # never None in a coroutine
        self._handle = self._loop.call_later(self._seconds, self._stop)
        return self

    @property
    def expired(self) -> bool:
        """Whether time is up."""
        return self._cancels > 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stand still while somebody else is to act; pauses may overlap."""
        if self._pauses == 0:
            self._left = max(0.0, self._handle.when() - self._loop.time())
            self._handle.cancel()
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._handle = self._loop.call_later(self._left, self._stop)

    def _stop(self) -> None:
        self._cancels += 1
        self._task.cancel()
        self._handle = self._loop.call_later(_INSIST_AFTER, self._stop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        if not self._cancels:
            return
        for _ in range(self._cancels):
            remaining = self._task.uncancel()
        if kind is asyncio.CancelledError and remaining:
            return
        raise DeadlineExceeded from error
