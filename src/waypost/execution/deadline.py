"""A deadline that really stops the work under it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

from waypost.errors import DeadlineExceeded
from waypost.execution.bulkheads import Bulkheads
from waypost.execution.ticker import ticker
from waypost.loops import running_task

_INSIST_AFTER: Final = 0.1


class Deadline:
    """Cancels the current task when time is up, again and again if it does not listen, and says so."""

    __slots__ = ("_cancels", "_left", "_pauses", "_places", "_seconds", "_task", "_ticker", "_who", "due")

    def __init__(self, seconds: float, places: Bulkheads | None = None, who: str | None = None) -> None:
        self.due = 0.0
        self._seconds = seconds
        self._places = places
        self._who = who
        self._cancels = 0
        self._pauses = 0

    def __enter__(self) -> Deadline:
        self._task = running_task()
        self._ticker = ticker()
        self._ticker.add(self, self._seconds)
        return self

    @property
    def expired(self) -> bool:
        """Whether time is up."""
        return self._cancels > 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stand still, and leave the place to others, while somebody else is to act; pauses may overlap."""
        if self._pauses == 0:
            self._left = max(0.0, self.due - self._ticker.loop.time())
            self._ticker.discard(self)
            if self._places is not None and self._who is not None:
                self._places.leave(self._who)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._ticker.add(self, self._left)
                if self._places is not None and self._who is not None:
                    self._places.return_to(self._who)

    def ring(self) -> None:
        """Time is up: stop the work, and look again whether it did stop."""
        self._cancels += 1
        self._task.cancel()
        self._ticker.add(self, _INSIST_AFTER)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticker.discard(self)
        if not self._cancels:
            return
        for _ in range(self._cancels):
            remaining = self._task.uncancel()
        if kind is asyncio.CancelledError and remaining:
            return
        raise DeadlineExceeded from error
