"""Toolkits with resources of their own: opened when the hub starts, closed when it stops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from waypost.loops import maybe_await
from waypost.runtime.component import Component

if TYPE_CHECKING:
    from waypost.runtime.core import Core


class Toolkits(Component):
    """Toolkits, of which those with `open` or `close`, sync or async, are opened and closed with the hub."""

    name = "toolkits"

    def __init__(self, toolkits: Iterable[Any] = ()) -> None:
        self._toolkits = list(toolkits)
        self._opened: list[Any] = []

    def add(self, toolkits: Iterable[Any]) -> None:
        """Open these too at the next start."""
        self._toolkits += toolkits

    async def start(self, core: Core) -> None:
        """Open all toolkits in the order in which they were added."""
        self._opened = []
        for toolkit in self._toolkits:
            self._opened.append(toolkit)  # before it is opened: what a failed `open` acquired is released too
            await _call(toolkit, "open")

    async def stop(self) -> None:
        """Close those that were opened, the last one first."""
        while self._opened:
            await _call(self._opened.pop(), "close")


async def _call(toolkit: Any, method: str) -> None:
    if callable(function := getattr(toolkit, method, None)):
        await maybe_await(function())
