"""How far a call at another server is, reported to the caller."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from waypost.capabilities.context import Context

_MOST_REPORTS: Final = 100


class Reports:
    """Hands on how far a call is, in order; when they come too fast, the oldest are left out."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._waiting: deque[tuple[float, float | None, str | None]] = deque(maxlen=_MOST_REPORTS)
        self._telling: asyncio.Task[None] | None = None

    def take(self, told: Mapping[str, Any]) -> None:
        """Hand on one report; one that makes no sense is left out."""
        value, total, message = told.get("progress"), told.get("total"), told.get("message")
        if type(value) not in (int, float):
            return
        self._waiting.append(
            (
                value,  # type: ignore[arg-type]  # looked at above
                total if type(total) in (int, float) else None,
                message if isinstance(message, str) else None,
            )
        )
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell())
            # A caller who cannot be told any more is no concern of the call.
            self._telling.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def delivered(self) -> None:
        """Wait until everything is handed on."""
        if self._telling is not None:
            await asyncio.wait({self._telling})

    def stop(self) -> None:
        """Hand nothing more on."""
        if self._telling is not None:
            self._telling.cancel()

    async def _tell(self) -> None:
        while self._waiting:
            await self._ctx.progress(*self._waiting.popleft())
