"""The calls that run on something which is to be ended when there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from waypost.capabilities.context import Context, Handler
from waypost.loops import maybe_await


class Calls:
    """How many calls of some handlers run."""

    def __init__(self) -> None:
        self._running = 0
        self._over: Callable[[], None] | None = None

    def counted(self, run: Handler) -> Handler:
        """A handler whose calls count."""

        async def counted(arguments: Any, ctx: Context) -> Any:
            self._running += 1
            try:
                return await maybe_await(run(arguments, ctx))
            finally:
                self._running -= 1
                self._tell()

        return counted

    def when_over(self, over: Callable[[], None]) -> None:
        """Have something done when no call runs, and again after each that was let in before and begins only then."""
        self._over = over
        self._tell()

    def _tell(self) -> None:
        if self._over is not None and not self._running:
            self._over()
