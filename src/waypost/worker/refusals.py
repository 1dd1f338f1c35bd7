"""Functions of a worker that the engine does not take from it, because another worker offers them already."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

_log: Final = logging.getLogger(__name__)


class Refusals:
    """What a worker stands by for; an engine that calls or announces a function has taken it after all."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._none = asyncio.Event()
        self._none.set()

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> frozenset[str]:
        """The functions that another offers."""
        return frozenset(self._ids)

    def put(self, function_id: str) -> None:
        """The engine refuses a function; of several only the first is worth a warning."""
        level = logging.DEBUG if self._ids else logging.WARNING
        _log.log(level, "the function %s was not taken: another worker offers it already", function_id)
        self._ids.add(function_id)
        self._none.clear()

    def pop(self, function_id: str) -> None:
        """The engine has taken a function, or it is not offered any more."""
        self._ids.discard(function_id)
        if not self._ids:
            self._none.set()

    def clear(self) -> None:
        """There is no engine that refuses anything."""
        self._ids.clear()
        self._none.set()

    async def until_none(self) -> None:
        """Wait until everything is taken."""
        await self._none.wait()
