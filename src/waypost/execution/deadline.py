"""A deadline that really stops the work under it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Final

from waypost.errors import DeadlineExceeded

_INSIST_AFTER: Final = 0.1


class Deadline:
    """Cancels the current task when time is up, again and again if it does not listen, and says so."""

    __slots__ = ("_cancels", "_handle", "_loop", "_seconds", "_task")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._cancels = 0

    def __enter__(self) -> Deadline:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] = asyncio.current_task(self._loop)  # type: ignore[assignment]  # never None in a coroutine
        self._handle = self._loop.call_later(self._seconds, self._stop)
        return self

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
