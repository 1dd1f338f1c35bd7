"""Resources of other servers that somebody here wants to hear of when they change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from waypost.capabilities.capability import Capability
from waypost.capabilities.registry import Registry
from waypost.errors import WaypostError
from waypost.imports.rows import FOREIGN
from waypost.imports.sources import Source
from waypost.loops import running_loop
from waypost.upstreams.pool import Upstreams

_AGAIN_AFTER: Final = 5.0
_log: Final = logging.getLogger(__name__)


class Updates(Protocol):
    """Who wants to hear of resources here, and the way to tell them."""

    on_subscriptions_changed: Callable[[], None] | None
    """Called when somebody begins or ceases to want."""

    def subscribed_uris(self) -> set[str]:
        """The URIs that somebody wants to hear of now."""

    def resource_updated(self, uri: str) -> None:
        """Tell them that it changed."""


class Subscriptions:
    """Has servers tell of what is wanted, and hands it on."""

    def __init__(self, registry: Registry, upstreams: Upstreams, updates: Updates | None) -> None:
        self._registry = registry
        self._upstreams = upstreams
        self._updates = updates
        self._working: dict[Source, asyncio.Task[None]] = {}
        self._again: set[Source] = set()
        self._is_closed = False

    def begin(self, on_subscriptions_changed: Callable[[], None]) -> None:
        """Hear when somebody begins or ceases to want something."""
        self._is_closed = False
        if self._updates is not None:
            self._updates.on_subscriptions_changed = on_subscriptions_changed

    async def close(self) -> None:
        """Ask nobody for anything any more."""
        self._is_closed = True
        if self._updates is not None:
            self._updates.on_subscriptions_changed = None
        working = list(self._working.values())
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    def wanted(self, source: Source) -> set[str]:
        """What somebody wants to hear of that is this server's to tell."""
        return self._by_owner().get(f"{FOREIGN}{source.name}", set())

    def look_at(self, sources: Iterable[Source]) -> None:
        """Tell those servers what is wanted of them that do not know yet."""
        wanted = self._by_owner()
        for source in sources:
            known = wanted.get(f"{FOREIGN}{source.name}", set()) == source.watched.uris
            if source in self._working or not known:
                self.look(source)

    def look(self, source: Source) -> None:
        """Tell a server what is wanted of it."""
        if source in self._working:
            self._again.add(source)
        elif not self._is_closed:
            self._working[source] = running_loop().create_task(self._work(source))

    def heard(self, source: Source, uri: object) -> None:
        """Hand on that a resource of a server changed; of others it has nothing to tell."""
        if self._updates is not None and isinstance(uri, str) and self._owner(uri) == f"{FOREIGN}{source.name}":
            self._updates.resource_updated(uri)

    def _by_owner(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for uri in set() if self._updates is None else self._updates.subscribed_uris():
            found.setdefault(self._owner(uri), set()).add(uri)
        return found

    def _owner(self, uri: str) -> str:
        row: Capability | None = next((row for row, _ in self._registry.resources(uri)), None)
        return "" if row is None or row.metadata.hidden or not row.mcp.subscribable else row.owner or ""

    async def _work(self, source: Source) -> None:
        try:
            self._again.add(source)
            while source in self._again:
                self._again.discard(source)
                await self._settle(source)
        finally:
            del self._working[source]

    async def _settle(self, source: Source) -> None:
        def later() -> None:
            running_loop().call_later(_AGAIN_AFTER, self.look, source)

        wanted = self.wanted(source)
        if not wanted and self._upstreams.status(source.name).state != "running":
            return
        try:
            await self._upstreams.subscribe(source.name, source.watched, wanted, later)
        except (OSError, WaypostError) as error:
            _log.debug("%s does not tell of its resources: %s", source.name, error)
