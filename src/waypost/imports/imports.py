"""Imports: what other servers offer as rows of the registry, from what was kept until the server is first used.

A server that was seen before costs nothing at start: its rows come from the manifest in the store. It is started by the
first call, and asked what it offers before that call is made. One that was never seen is asked in the background.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from waypost.capabilities.capability import Capability
from waypost.capabilities.registry import Registry
from waypost.config.models import Connection, Import, McpConnection
from waypost.errors import DefinitionError, StoreError, ToolError, UnknownCapability, WaypostError
from waypost.imports.handlers import Handlers
from waypost.imports.reports import UpstreamRow, row_of, told_of
from waypost.imports.rows import FOREIGN, Order, decided, in_order
from waypost.imports.sources import Manifests, Source, digest_of, manifest_of
from waypost.imports.trust import noun_of, pinned
from waypost.loops import running_loop
from waypost.policy.audit import AuditLog, Record
from waypost.redaction import redacted
from waypost.runtime.component import Change, Component
from waypost.settings import Settings
from waypost.stores.store import Store
from waypost.upstreams.client import Offers
from waypost.upstreams.jsonrpc import Reply
from waypost.upstreams.pool import Upstreams
from waypost.upstreams.upstream import ELICITATION_COMPLETE, Listener

if TYPE_CHECKING:
    from waypost.runtime.core import Core


_RETRY_SUBSCRIPTION_S: Final = 5.0
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
            running_loop().call_later(_RETRY_SUBSCRIPTION_S, self.look, source)

        wanted = self.wanted(source)
        if not wanted and self._upstreams.status(source.name).state != "running":
            return
        try:
            await self._upstreams.subscribe(source.name, source.watched, wanted, later)
        except (OSError, WaypostError) as error:
            _log.debug("%s does not tell of its resources: %s", source.name, error)


_CHANGED: Final = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
_UPDATED: Final = "notifications/resources/updated"
_FEW: Final = 8
"""How many servers that were never seen are started at once."""
_LIST_WITHIN: Final = 30.0
_STORE_WITHIN: Final = 5.0
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_AGAIN_AFTER: Final = 1.0
"""A server that says again and again that it changed is asked no more often than so many seconds apart."""


_Configured = tuple[list[Import], Mapping[str, Connection]]
"""The entries of `proxy.import`, and all connections."""


class Imports(Listener, Component):
    """The imports of a configuration."""

    name = "imports"
    sections = ("proxy", "connections")

    wants_changes = True

    def __init__(
        self,
        registry: Registry,
        upstreams: Upstreams,
        store: Store,
        audit: AuditLog | None,
        updates: Updates | None = None,
    ) -> None:
        self._registry = registry
        self._upstreams = upstreams
        self._handlers = Handlers(registry, upstreams, self._heard_of)
        self._subscriptions = Subscriptions(registry, upstreams, updates)
        self._manifests = Manifests(store)
        self._audit = audit
        self._configured: _Configured = ([], {})
        self._connections: dict[str, McpConnection] = {}
        self._sources: dict[str, Source] = {}
        self._order: Order = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._few = asyncio.Semaphore(_FEW)
        self._is_running = False
        self._revision: int | None = None
        """How often pins had been changed when they were last looked at."""

    def configure(self, imports: Iterable[Import], connections: Mapping[str, Connection]) -> None:
        """Have exactly these imports from now on, seen from outside as one change."""
        imports = list(imports)
        self._configured = (imports, connections)
        before, gone = self._sources, dict(self._connections)
        self._connections = {
            name: connection for name, connection in connections.items() if isinstance(connection, McpConnection)
        }
        self._sources = self._wanted(imports)
        self._order = in_order(imports, self._sources)
        if self._sources:
            # Before anything runs, so that workflows which go on at a start call nothing that is held back.
            self._upstreams.listener = self
        leaving = [row for name, old in before.items() if self._sources.get(name) is not old for row in old.rows]
        arriving = [source for name, source in self._sources.items() if before.get(name) is not source]
        for name, old in before.items():
            if self._sources.get(name) is not old:
                self._let_go(old)
        for name, connection in gone.items():
            if self._connections.get(name) != connection or (name in before and name not in self._sources):
                self._upstreams.retire(name)
        self._offer(list(self._sources.values()), leaving)
        if self._is_running:
            self._spawn(self._settle(arriving))

    async def prepare(self, settings: Settings) -> Change | None:
        """Import what other settings say."""
        new = (settings.proxy.imports, settings.connections)
        return None if new == self._configured else _Reimport(self, new, self._configured)

    def _wanted(self, imports: list[Import]) -> dict[str, Source]:
        sources: dict[str, Source] = {}
        for name in dict.fromkeys(one.connection for one in imports if one.connection in self._connections):
            connection = self._connections[name]
            wanted = tuple(one for one in imports if one.connection == name)
            old = self._sources.get(name)
            if old is not None and (old.connection, old.imports) == (connection, wanted):
                sources[name] = old
                continue
            made = sources[name] = Source(name, connection, wanted, digest_of(connection))
            if old is not None and old.digest == made.digest and old.manifest is not None:
                made.take(old.manifest, old.pins)
                made.watched = old.watched
        return sources

    def _let_go(self, source: Source) -> None:
        source.portions.clear()
        if source.later is not None:
            source.later.cancel()
        if source.refreshing is not None:
            source.refreshing.cancel()

    async def start(self, core: Core) -> None:
        """Offer what is known, and begin to find out about the rest."""
        self._is_running = True
        self._subscriptions.begin(self._look_at_all)
        await self._settle(list(self._sources.values()))

    async def stop(self) -> None:
        """Ask nobody anything any more."""
        self._is_running = False
        for source in self._sources.values():
            if source.later is not None:
                source.later.cancel()
        tasks = [*self._tasks, *(one.refreshing for one in self._sources.values() if one.refreshing is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._handlers.parking.close()
        await self._subscriptions.close()

    async def settled(self) -> None:
        """Wait until every server has been heard of, or has failed once."""
        await asyncio.gather(*(source.settled.wait() for source in self._sources.values()))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, sources: list[Source]) -> None:
        """Offer what was kept of servers that were seen before; the others are asked in the background."""
        if not sources:
            return
        try:
            async with asyncio.timeout(_STORE_WITHIN):
                await asyncio.gather(*(self._recall(source) for source in sources))
        except (StoreError, TimeoutError) as error:
            _log.warning("what other servers offered earlier was not read: %s", error or "the store did not answer")
        known = [source for source in sources if source.manifest is not None]
        self._offer(known)
        for source in sources:
            if source.manifest is None:
                self._spawn(self._discover(source))
            else:
                source.settled.set()

    async def _recall(self, source: Source) -> None:
        if source.manifest is not None:
            return
        kept = await self._manifests.get(source.name, source.digest)
        if kept is None:
            return
        try:
            pins = await self._manifests.pins(source.name)
        except msgspec.ValidationError:
            return
        if pins is not None:
            source.take(kept, pins)

    async def _discover(self, source: Source) -> None:
        """Ask a server until it has answered once."""
        pause = _FIRST_PAUSE
        while source.manifest is None and self._sources.get(source.name) is source:
            async with self._few:
                await asyncio.wait({self._refreshed(source)})
            if source.manifest is None:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _refreshed(self, source: Source) -> asyncio.Task[None]:
        """The task that asks a server what it offers; there is one at a time."""
        if source.refreshing is None or source.refreshing.done():
            source.refreshing = asyncio.get_running_loop().create_task(self._refresh(source))
        return source.refreshing

    async def _refresh(self, source: Source) -> None:
        source.asked_at = time.monotonic()
        try:
            async with asyncio.timeout(_LIST_WITHIN):
                offered = await self._upstreams.list_offers(source.name)
                async with source.judging:
                    await self._take(source, offered)
        except (WaypostError, OSError, msgspec.ValidationError) as error:
            self._fail(source, error)
        finally:
            source.seen = source.begun
            source.settled.set()

    async def _take(self, source: Source, offered: Offers) -> None:
        found, problems = manifest_of(source, offered)
        pins = await self._manifests.pins(source.name)
        if pins is None or source.is_trusted:
            pins = {key: pinned(one, noun_of(key)) for key, one in found.by_key.items()}
            await self._manifests.keep_pins(source.name, pins)
        await self._manifests.keep(source.name, found)
        is_news = found != source.manifest or source.error
        source.error, source.problems = "", problems
        for name, held in source.take(found, pins).items():
            self._record("capability.held", source, f"{name}: {held.why}", "held")
        self._offer([source])
        if is_news:
            self._record("capability.discovered", source, told_of(found), "ok")

    def _fail(self, source: Source, error: Exception) -> None:
        """Say once what is wrong with a server."""
        said = str(error) or f'The connection "{source.name}" did not say what it offers within {_LIST_WITHIN:g} s.'
        told = redacted(said, source.secrets)
        is_news, source.error = not source.error, told
        if is_news:
            if self._upstreams.status(source.name).state != "failed":  # which is in the log already
                _log.warning("the tools of the connection %s are not known: %s", source.name, told)
            self._record("capability.discovery_failed", source, told, "error")

    def _record(self, action: str, source: Source, told: str, outcome: str, principal: str = "hub") -> None:
        audit = self._audit
        if audit is not None:
            audit.add(Record(time.time(), principal, "console", source.name, "allow", action, told, outcome=outcome))

    def _offer(self, sources: list[Source], leaving: Sequence[Capability] = ()) -> None:
        """Exchange the rows of some sources, and of whoever gets or has to give a name for it."""
        decisions = decided(self._order, sources, leaving, self._registry, self._handlers.of)
        self._registry.replace(
            [*leaving, *(row for one in decisions for row in one.portion.rows)],
            [row for one in decisions for row in one.made.rows],
        )
        for source, portion, made in decisions:
            for tool, why in made.left_out.items():
                if portion.left_out.get(tool) != why:
                    _log.warning("%r of the connection %s is left out: %s", tool, source.name, why)
            portion.rows, portion.left_out, portion.is_short = made

    async def admit(self, name: str, tool: str) -> None:
        """Refuse what is held back to those who call it by its own name, as workflows do."""
        source = self._sources.get(name)
        if source is None:
            return
        await self._heard_of(source)
        if refusal := source.refusal(tool):
            raise ToolError(refusal)

    async def _heard_of(self, source: Source) -> None:
        """Wait for what a server offers in the session that is going to be used."""
        if source.seen != source.begun or not self._upstreams.version(source.name):
            await asyncio.wait({self._refreshed(source)})

    def on_session_start(self, name: str) -> None:
        """Ask a server that was started what it offers now."""
        source = self._sources.get(name)
        if source is not None and self._is_running:
            source.begun += 1
            self._refreshed(source)
            self._subscriptions.look(source)

    def is_needed(self, name: str) -> bool:
        """Whether a server is to go on telling of its resources."""
        source = self._sources.get(name)
        return source is not None and bool(self._subscriptions.wanted(source))

    def _look_at_all(self) -> None:
        self._subscriptions.look_at(self._sources.values())

    def on_notification(self, name: str, note: Reply) -> None:
        """Ask a server that says so what has changed, and hand on what it says of a resource or a page."""
        source = self._sources.get(name)
        if source is None or not self._is_running:
            return
        if note["method"] == _UPDATED:
            self._subscriptions.heard(source, note["params"].get("uri"))
        if note["method"] == ELICITATION_COMPLETE:
            self._handlers.pages.done(name, note["params"])
        if note["method"] not in _CHANGED or source.later is not None:
            return
        delay = max(0.0, source.asked_at + _AGAIN_AFTER - time.monotonic())
        source.later = asyncio.get_running_loop().call_later(delay, self._look_again, source)

    def _look_again(self, source: Source) -> None:
        source.later = None
        if source.refreshing is None or source.refreshing.done():
            self._refreshed(source)
        else:
            source.later = asyncio.get_running_loop().call_later(_AGAIN_AFTER, self._look_again, source)

    def listing(self) -> list[UpstreamRow]:
        """All servers, how it goes with them, and what of them is held back."""
        return [self.one(name) for name in sorted(self._connections)]

    def one(self, name: str) -> UpstreamRow:
        """How it goes with one server."""
        connection = self._connections.get(name)
        if connection is None:
            raise UnknownCapability(f"There is no connection {name!r} to an MCP server.")
        return row_of(name, connection, self._upstreams.status(name), self._sources.get(name))

    async def approve(self, name: str, tool: str | None, sha256: str | None, principal: str) -> list[str]:
        """Trust definitions as they are now; the names of those that were held."""
        self.one(name)
        source = self._sources.get(name)
        if source is None or source.manifest is None:
            raise DefinitionError(f"Nothing is known of what {name} offers, so there is nothing to approve.")
        async with source.judging:
            return await self._approve(source, tool, sha256, principal)

    async def _approve(self, source: Source, tool: str | None, sha256: str | None, principal: str) -> list[str]:
        name = source.name
        offered = source.offered
        if tool is not None and tool not in offered:
            raise UnknownCapability(f"{name} does not offer {tool!r}.")
        held = {one: found for one, found in source.held.items() if tool in (None, one)}
        if sha256 is not None and [found.sha256 for found in held.values()] != [sha256]:
            raise DefinitionError("The definition is not the one you saw; look at it again.")
        pins = {**(await self._manifests.pins(name) or {}), **{one: pinned(offered[one], noun_of(one)) for one in held}}
        await self._manifests.keep_pins(name, pins)
        source.pins = pins
        source.judge()
        self._offer([source])
        for one in held:
            self._record("capability.approved", source, f"{one}: {held[one].sha256}", "ok", principal)
        return list(held)

    async def refresh(self) -> None:
        """Release what other hubs approved; what was approved here before stays so until its server is asked again."""
        revision = await self._manifests.revision()  # what is approved from now on is read the next time
        if revision == self._revision:
            return
        for source in list(self._sources.values()):
            async with source.judging:
                await self._release(source)
        self._revision = revision

    async def _release(self, source: Source) -> None:
        if not source.held:
            return
        try:
            pins = await self._manifests.pins(source.name) or {}
        except msgspec.ValidationError:
            return
        now = {key: pins[key] for key, held in source.held.items() if key in pins and pins[key].sha256 == held.sha256}
        if now:
            source.pins = source.pins | now
            source.judge()
            self._offer([source])

    async def restart(self, name: str) -> UpstreamRow:
        """End the session with a server when its calls are done, and begin a new one if its tools are imported."""
        self.one(name)
        self._upstreams.retire(name)
        source = self._sources.get(name)
        if source is not None:
            if source.refreshing is not None:
                source.refreshing.cancel()  # it asks in the session that ends
                await asyncio.wait({source.refreshing})
            await asyncio.wait({self._refreshed(source)})
        return self.one(name)


class _Reimport(Change):
    """Other imports, or the same ones over other connections."""

    def __init__(self, imports: Imports, new: _Configured, old: _Configured) -> None:
        self._imports, self._new, self._old = imports, new, old

    def commit(self) -> None:
        self._imports.configure(*self._new)

    async def rollback(self) -> None:
        self._imports.configure(*self._old)
