"""What every part of a hub with a lifecycle implements: `Component`, and `Change` for its reload; and `Toolkits`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeGuard

from waypost.loops import maybe_await

if TYPE_CHECKING:
    from waypost.capabilities.capability import Capability
    from waypost.runtime.core import Core
    from waypost.settings import Settings


class Change:
    """What a component will be once a reload is committed; subclasses override what they need.

    The runtime takes `leaving` out of the registry and puts `arriving` in, for all components in one step, and then
    commits every change without a pause in between. `rollback` undoes a prepared change and a committed one alike.
    """

    leaving: Sequence[Capability] = ()
    arriving: Sequence[Capability] = ()

    def commit(self) -> None:
        """Go by the new settings from now on; an exception makes the runtime roll back all changes."""

    async def rollback(self) -> None:
        """Go by the settings from before, and release what was prepared."""

    async def finish(self) -> None:
        """Do what has to wait until all changes are committed, such as connecting; failures are logged."""


class Switch(Change):
    """Another value of what one call replaces as a whole."""

    def __init__(self, replace: Callable[[Any], None], new: object, old: object) -> None:
        self._replace, self._new, self._old = replace, new, old

    def commit(self) -> None:
        self._replace(self._new)

    async def rollback(self) -> None:
        self._replace(self._old)


class Component:
    """A part of a hub with a lifecycle; subclasses override what they need.

    `name` is unique in a hub. The runtime calls `start` in the order in which components were added and `stop` in
    reverse. `start` may be called again after `stop`, on another event loop.
    """

    name: str = ""
    sections: Collection[str] | None = None
    """The sections of the settings that `prepare` reads; it is asked only where one of them changed, or always."""

    pages: Sequence[Any] = ()
    """Pages that it adds to the console, each a `waypost.console.Page`."""
    reads: Collection[str] = ()
    """The kinds of records of the store that `refresh` reads; it is called at once when another replica changes one."""

    async def start(self, core: Core) -> None:
        """Begin to work; clients are served once all components have started."""

    async def stop(self) -> None:
        """Release everything that `start` acquired."""

    async def refresh(self) -> None:
        """Read again what another replica may have changed in the store; called every two seconds, or sooner."""

    async def prepare(self, settings: Settings) -> Change | None:
        """Prepare a change to other settings, without any visible effect; `None` where nothing changes.

        Raises `DefinitionError` or `ConfigError` for settings that cannot be served.
        """
        return None


def is_component(source: Any) -> TypeGuard[Component]:
    """Whether an object has what a component needs; a class is never one."""
    return not isinstance(source, type) and all(
        callable(getattr(source, method, None)) for method in ("start", "stop", "refresh", "prepare")
    )


class Toolkits(Component):
    """Toolkits, of which those with `open` or `close`, sync or async, are opened and closed with the hub."""

    name = "toolkits"

    def __init__(self, toolkits: Iterable[Any] = ()) -> None:
        self._toolkits = list(toolkits)
        self._opened: list[Any] = []
        self.is_open = False
        """Whether the hub runs; until all are opened, what is added is opened with them."""

    def add(self, toolkits: Iterable[Any]) -> None:
        """Open these too at the next start."""
        self._toolkits += toolkits

    def open_added(self, toolkits: Sequence[Any]) -> list[Awaitable[Any]]:
        """Open toolkits of a hub that runs; returns what is still to be awaited."""
        self._opened += toolkits
        opened = [open() for one in toolkits if callable(open := getattr(one, "open", None))]
        return [one for one in opened if isawaitable(one)]

    async def start(self, core: Core) -> None:
        """Open all toolkits in the order in which they were added."""
        self._opened = []
        for toolkit in self._toolkits:
            self._opened.append(toolkit)  # before it is opened: what a failed `open` acquired is released too
            await _call(toolkit, "open")
        self.is_open = True

    async def stop(self) -> None:
        """Close those that were opened, the last one first."""
        self.is_open = False
        while self._opened:
            await _call(self._opened.pop(), "close")


async def _call(toolkit: Any, method: str) -> None:
    if callable(function := getattr(toolkit, method, None)):
        await maybe_await(function())
