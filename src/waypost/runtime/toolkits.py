"""Toolkits with resources of their own: opened when the hub starts, closed when it stops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from waypost.loops import maybe_await
from waypost.runtime.component import Component

if TYPE_CHECKING:
    from waypost.runtime.core import Core


class Toolkits(Component):
    """The toolkits of a hub that have `open` or `close`, sync or async."""

    name = "toolkits"

    def __init__(self) -> None:
        self._toolkits: list[Any] = []
        self._opened: list[Any] = []

    def add(self, toolkits: Iterable[Any]) -> None:
        """Open these too at the next start."""
        self._toolkits += toolkits

    async def start(self, core: Core) -> None:
        """Open all toolkits in the order in which they were added."""
        self._opened = []
        for toolkit in self._toolkits:
            await open_toolkit(toolkit)
            self._opened.append(toolkit)

    async def stop(self) -> None:
        """Close those that were opened, the last one first."""
        while self._opened:
            await close_toolkit(self._opened.pop())


async def open_toolkit(toolkit: Any) -> None:
    """Run the toolkit's `open`, if it has one."""
    if callable(function := getattr(toolkit, "open", None)):
        await maybe_await(function())


async def close_toolkit(toolkit: Any) -> None:
    """Run the toolkit's `close`, if it has one."""
    if callable(function := getattr(toolkit, "close", None)):
        await maybe_await(function())
