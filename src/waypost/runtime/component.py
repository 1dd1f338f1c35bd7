"""What every part of a hub with a lifecycle implements: `Component`, and `Change` for its reload; and `Toolkits`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from waypost.errors import DefinitionError
from waypost.execution.pipeline import CallCount
from waypost.loops import maybe_await

if TYPE_CHECKING:
    from waypost.capabilities.capability import Capability
    from waypost.runtime.core import Core
    from waypost.settings import Settings

_log: Final = logging.getLogger(__name__)


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


class _Adapter(Component):
    """A component of a program that has the methods of one and inherits nothing."""

    def __init__(self, part: Any) -> None:
        self.name = part.name
        self.sections = getattr(part, "sections", self.sections)
        self.pages = getattr(part, "pages", self.pages)
        self.reads = getattr(part, "reads", self.reads)
        self._part = part

    async def start(self, core: Core) -> None:
        await self._part.start(core)

    async def stop(self) -> None:
        await self._part.stop()

    async def refresh(self) -> None:
        await self._part.refresh()

    async def prepare(self, settings: Settings) -> Change | None:
        change = await self._part.prepare(settings)
        return change if change is None or isinstance(change, Change) else _ChangeAdapter(change)


class _ChangeAdapter(Change):
    """A change that has the attributes of one and inherits nothing."""

    def __init__(self, change: Any) -> None:
        self.leaving, self.arriving = change.leaving, change.arriving
        self.commit, self.rollback = change.commit, change.rollback  # type: ignore[method-assign]  # passed on as they are
        self.finish = getattr(change, "finish", self.finish)  # type: ignore[method-assign]


def to_component(source: Any) -> Component | None:
    """An object as a component, if it has the methods of one; a class is never one.

    Raises `DefinitionError` for a component without a name.
    """
    methods = ("start", "stop", "refresh", "prepare")
    if isinstance(source, type) or not all(callable(getattr(source, method, None)) for method in methods):
        return None
    if not isinstance(getattr(source, "name", None), str) or not source.name:
        raise DefinitionError(f'The component {type(source).__name__} needs a name: name = "..." in its class.')
    return source if isinstance(source, Component) else _Adapter(source)


class Toolkits(Component):
    """Toolkits, of which those with `open` or `close`, sync or async, are opened and closed with the hub."""

    name = "toolkits"

    def __init__(self, toolkits: Iterable[Any] = ()) -> None:
        self._toolkits = list(toolkits)
        self._opened: list[Any] = []
        self.calls = CallCount()
        """The calls that run in them."""
        self.is_open = False
        """Whether the hub runs; until all are opened, what is added is opened with them."""

    def add(self, toolkits: Iterable[Any]) -> None:
        """Open these too at the next start."""
        self._toolkits += toolkits

    def add_running(self, toolkits: Sequence[Any], register: Callable[[], None], core: Core) -> None:
        """Add toolkits to a hub that may run, and register what they offer once they are open.

        That is at once, or in the background where `open` is async.
        """
        self._toolkits += toolkits
        opened: list[Any] = []
        if self.is_open:
            self._opened += toolkits
            opened = [one.open() for one in toolkits if callable(getattr(one, "open", None))]
        if waiting := [one for one in opened if isawaitable(one)]:
            core.spawn(_register_opened(waiting, register))
        else:
            register()

    async def start(self, core: Core) -> None:
        """Open all toolkits in the order in which they were added."""
        self._opened = []
        for toolkit in self._toolkits:
            self._opened.append(toolkit)  # before it is opened: what a failed `open` acquired is released too
            await _call(toolkit, "open")
        self.is_open = True

    async def stop(self) -> None:
        """Close those that were opened, the last one first; a failure is logged, because the others have to close."""
        self.is_open = False
        while self._opened:
            toolkit = self._opened.pop()
            try:
                await _call(toolkit, "close")
            except Exception:
                _log.exception("stop failed: toolkit %s", type(toolkit).__name__)


async def _register_opened(waiting: Iterable[Awaitable[Any]], register: Callable[[], None]) -> None:
    try:
        for one in waiting:
            await one
        register()
    except Exception:
        _log.exception("a toolkit that was added to the running hub failed to open")


async def _call(toolkit: Any, method: str) -> None:
    if callable(function := getattr(toolkit, method, None)):
        await maybe_await(function())
