"""What a server says in the middle of a call, told to the caller in order: how far it is, and log messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from waypost.capabilities.context import Context
from waypost.wire.params import LOG_LEVELS

_MOST: Final = 100


class Telling:
    """Tells somebody one thing after another; when they come too fast, the oldest are left out."""

    def __init__(self, tell: Callable[..., Awaitable[None]]) -> None:
        self._tell = tell
        self._waiting: deque[tuple[Any, ...]] = deque(maxlen=_MOST)
        self._telling: asyncio.Task[None] | None = None

    def put(self, *said: Any) -> None:
        """Tell it when everything before was told."""
        self._waiting.append(said)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._run())
            # A caller who cannot be told any more is no concern of the call.
            self._telling.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def delivered(self) -> None:
        """Wait until everything is told."""
        if self._telling is not None:
            await asyncio.wait({self._telling})

    def stop(self) -> None:
        """Tell nothing more."""
        if self._telling is not None:
            self._telling.cancel()

    async def _run(self) -> None:
        while self._waiting:
            await self._tell(*self._waiting.popleft())


class Reports(Telling):
    """How far a call is."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx.progress)

    def take(self, told: Mapping[str, Any]) -> None:
        """Hand on one report; one that makes no sense is left out."""
        value, total, message = told.get("progress"), told.get("total"), told.get("message")
        if type(value) in (int, float):
            self.put(
                value,
                total if type(total) in (int, float) else None,
                message if isinstance(message, str) else None,
            )


class Remarks(Telling):
    """Log messages."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx.log)

    def take(self, note: Mapping[str, Any]) -> None:
        """Hand one on; one that makes no sense is left out."""
        level = note.get("level")
        if level in LOG_LEVELS:
            self.put(level, *_message(note.get("data")))


def _message(data: Any) -> tuple[str, dict[str, Any] | None]:
    if isinstance(data, str):
        return data, None
    if isinstance(data, dict) and isinstance(data.get("message"), str):
        rest = {key: value for key, value in data.items() if key != "message"}
        return data["message"], rest or None
    return msgspec.json.encode(data).decode(), None
