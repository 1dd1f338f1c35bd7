"""Imports: what other servers offer as rows of the registry, from the store until the server is first used.

A server that was listed before costs nothing at start: its rows come from the manifest in the store. It is started by
the first call, and listed again before that call is made. One that was never listed is asked in the background.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.capabilities.capability import Capability, Priority
from waypost.capabilities.registry import Registry
from waypost.config.models import Connection, Import, McpConnection
from waypost.errors import DefinitionError, StoreError, ToolError, UnknownCapability, WaypostError
from waypost.imports.rows import FOREIGN, Handlers, build_rows
from waypost.imports.sources import (
    PINS,
    Manifests,
    Pending,
    Source,
    UpstreamRow,
    build_manifest,
    build_row,
    count_definitions,
    digest_connection,
    find_pending,
    make_pin,
    noun_of_key,
    renew_pins,
)
from waypost.loops import cancel_tasks, running_loop
from waypost.policy.audit import HUB, AuditLog, Record, Via
from waypost.protocol.broadcast import Broadcast
from waypost.redaction import redacted
from waypost.runtime.component import Change, Component, Switch
from waypost.settings import Settings
from waypost.stores.store import Store
from waypost.suggestions import did_you_mean
from waypost.upstreams.client import Offers
from waypost.upstreams.jsonrpc import Reply
from waypost.upstreams.pool import Upstreams
from waypost.upstreams.upstream import ELICITATION_COMPLETE, Listener

if TYPE_CHECKING:
    from waypost.runtime.core import Core

_log: Final = logging.getLogger(__name__)
_LIST_CHANGED: Final = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
_RESOURCE_UPDATED: Final = "notifications/resources/updated"
_MAX_STARTING: Final = 8
"""How many servers that were never listed are started at once."""
_LIST_TIMEOUT_S: Final = 30.0
_STORE_TIMEOUT_S: Final = 5.0
_FIRST_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 60.0
_MIN_REFRESH_INTERVAL_S: Final = 1.0
"""A server that notifies of changes again and again is not listed more often than this."""
_RETRY_SUBSCRIPTION_S: Final = 5.0

_Configured = tuple[list[Import], Mapping[str, Connection]]
"""The entries of `proxy.import`, and all connections."""


class Subscriptions:
    """Keeps servers subscribed to the resources that clients are subscribed to, and passes notifications on."""

    def __init__(self, registry: Registry, upstreams: Upstreams, updates: Broadcast | None) -> None:
        self._registry = registry
        self._upstreams = upstreams
        self._updates = updates
        self._running: dict[Source, asyncio.Task[None]] = {}
        self._outdated: set[Source] = set()
        """Sources whose subscriptions changed while they were being updated."""
        self._is_closed = False

    def start(self, on_changed: Callable[[], None]) -> None:
        """Call `on_changed` when the subscriptions of clients change."""
        self._is_closed = False
        if self._updates is not None:
            self._updates.on_subscriptions_changed = on_changed

    async def close(self) -> None:
        """Stop updating subscriptions."""
        self._is_closed = True
        if self._updates is not None:
            self._updates.on_subscriptions_changed = None
        await cancel_tasks(self._running.values())

    def wanted(self, source: Source) -> set[str]:
        """The URIs of a server that clients are subscribed to."""
        return self._wanted_by_owner().get(f"{FOREIGN}{source.name}", set())

    def update_all(self, sources: Iterable[Source]) -> None:
        """Update the subscriptions at those servers whose URIs differ from the wanted ones."""
        wanted = self._wanted_by_owner()
        for source in sources:
            if source in self._running or wanted.get(f"{FOREIGN}{source.name}", set()) != source.subscriptions.uris:
                self.update(source)

    def update(self, source: Source) -> None:
        """Subscribe at a server to exactly the wanted URIs, in the background."""
        if source in self._running:
            self._outdated.add(source)
        elif not self._is_closed:
            self._running[source] = running_loop().create_task(self._run(source))

    def notify(self, source: Source, uri: object) -> None:
        """Pass on that a resource changed, if it is one of that server."""
        if self._updates is not None and isinstance(uri, str) and self._owner(uri) == f"{FOREIGN}{source.name}":
            self._updates.resource_updated(uri)

    def _wanted_by_owner(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for uri in set() if self._updates is None else self._updates.subscribed_uris():
            found.setdefault(self._owner(uri), set()).add(uri)
        return found

    def _owner(self, uri: str) -> str:
        row: Capability | None = next((row for row, _ in self._registry.resources(uri)), None)
        return "" if row is None or row.metadata.hidden or not row.mcp.subscribable else row.owner or ""

    async def _run(self, source: Source) -> None:
        try:
            self._outdated.add(source)
            while source in self._outdated:
                self._outdated.discard(source)
                await self._subscribe(source)
        finally:
            del self._running[source]

    async def _subscribe(self, source: Source) -> None:
        def retry_later() -> None:
            running_loop().call_later(_RETRY_SUBSCRIPTION_S, self.update, source)

        wanted = self.wanted(source)
        if not wanted and self._upstreams.status(source.name).state != "running":
            return
        try:
            await self._upstreams.subscribe(source.name, source.subscriptions, wanted, retry_later)
        except (OSError, WaypostError) as error:
            _log.debug("subscribing to resources of %s failed: %s", source.name, error)


class Imports(Listener, Component):
    """The imports of a configuration."""

    name = "imports"
    reads = (PINS,)
    sections = ("proxy", "connections")

    wants_changes = True

    def __init__(
        self,
        registry: Registry,
        upstreams: Upstreams,
        store: Store,
        audit: AuditLog | None,
        updates: Broadcast | None,
    ) -> None:
        self._registry = registry
        self._upstreams = upstreams
        self._handlers = Handlers(registry, upstreams, self._refresh)
        self._subscriptions = Subscriptions(registry, upstreams, updates)
        self._manifests = Manifests(store)
        self._audit = audit
        self._configured: _Configured = ([], {})
        self._connections: dict[str, McpConnection] = {}
        self._sources: dict[str, Source] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Semaphore(_MAX_STARTING)
        self._is_running = False
        self._pins_revision: int | None = None
        """The revision of all pins when they were last read."""

    def configure(self, imports: Iterable[Import], connections: Mapping[str, Connection]) -> None:
        """Have exactly these imports from now on, as one change of the registry."""
        imports = list(imports)
        self._configured = (imports, connections)
        old_sources, old_connections = self._sources, self._connections
        self._connections = {
            name: connection for name, connection in connections.items() if isinstance(connection, McpConnection)
        }
        self._sources = self._build_sources(imports)
        if self._sources:
            # Before anything runs: a workflow that resumes at start must not call a tool that is held back.
            self._upstreams.listener = self
        gone = [old for name, old in old_sources.items() if self._sources.get(name) is not old]
        kept = {selection.id for source in self._sources.values() for selection in source.selections}
        # Clients are notified once, when everything is in its place.
        with self._registry.as_one_change():
            for source in gone:
                source.refresh.cancel()
                for selection in source.selections:
                    selection.offers = {}  # so that calls of its handlers are refused
                    if selection.id not in kept:
                        self._registry.offer(selection.id, (), Priority.IMPORT)
            self._publish(self._sources.values())
        for name, connection in old_connections.items():
            if self._connections.get(name) != connection or (name in old_sources and name not in self._sources):
                self._upstreams.retire(name)
        if self._is_running:
            self._spawn(self._load([one for one in self._sources.values() if old_sources.get(one.name) is not one]))

    async def prepare(self, settings: Settings) -> Change | None:
        """Import what other settings say."""
        new = (settings.proxy.imports, settings.connections)
        return None if new == self._configured else Switch(lambda to: self.configure(*to), new, self._configured)

    def _build_sources(self, imports: list[Import]) -> dict[str, Source]:
        sources: dict[str, Source] = {}
        for name in dict.fromkeys(one.connection for one in imports if one.connection in self._connections):
            connection = self._connections[name]
            wanted = tuple(one for one in imports if one.connection == name)
            old = self._sources.get(name)
            if old is not None and (old.connection, old.imports) == (connection, wanted):
                sources[name] = old
                continue
            made = sources[name] = Source(name, connection, wanted, digest_connection(connection))
            # Only what is imported from the server has changed: what it listed still holds.
            if old is not None and old.digest == made.digest and old.manifest is not None:
                made.update(old.manifest, old.pins)
                made.subscriptions = old.subscriptions
        return sources

    async def start(self, core: Core) -> None:
        """Offer what the store knows of servers, and begin to ask the others."""
        self._is_running = True
        self._subscriptions.start(lambda: self._subscriptions.update_all(self._sources.values()))
        await self._load(list(self._sources.values()))

    async def stop(self) -> None:
        """End everything that runs in the background."""
        self._is_running = False
        refreshing = [one.refresh for one in self._sources.values()]
        for refresh in refreshing:
            refresh.cancel()
        await cancel_tasks([*self._tasks, *(one.task for one in refreshing if one.task is not None)])
        await self._handlers.suspended.close()
        await self._subscriptions.close()

    async def wait_until_listed(self) -> None:
        """Wait until every server was listed, or has failed once."""
        await asyncio.gather(*(source.refresh.was_tried.wait() for source in self._sources.values()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, sources: list[Source]) -> None:
        """Offer what the store knows of servers; the others are asked in the background."""
        if not sources:
            return
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                await asyncio.gather(*(self._load_manifest(source) for source in sources))
        except (StoreError, TimeoutError) as error:
            # A store that does not answer must not keep the hub from starting: the servers are asked instead.
            _log.warning("reading the manifests of upstreams failed: %s", error or "the store did not answer")
        self._publish([source for source in sources if source.manifest is not None])
        for source in sources:
            if source.manifest is None:
                self._spawn(self._discover(source))
            else:
                source.refresh.was_tried.set()

    async def _load_manifest(self, source: Source) -> None:
        if source.manifest is not None:
            return
        # Where pins are damaged nothing is offered: listing the server fails at them, too, and says so.
        with suppress(msgspec.ValidationError):
            manifest = await self._manifests.get(source.name, source.digest)
            pins = None if manifest is None else await self._manifests.pins(source.name)
            if manifest is not None and pins is not None:
                source.update(manifest, pins)

    async def _discover(self, source: Source) -> None:
        """Ask a server until it has answered once."""
        pause = _FIRST_PAUSE_S
        while source.manifest is None and self._sources.get(source.name) is source:
            async with self._starting:
                await self._refresh(source)
            if source.manifest is None:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _MAX_PAUSE_S)

    async def _refresh(self, source: Source) -> None:
        """Ask a server what it offers, or wait for the request that is under way."""
        # Not awaited itself: a caller that is cancelled must not cancel the listing, for which others may wait too.
        await asyncio.wait({self._start_refresh(source)})

    def _start_refresh(self, source: Source) -> asyncio.Task[None]:
        refresh = source.refresh
        if refresh.task is None or refresh.task.done():
            refresh.task = running_loop().create_task(self._list(source))
        return refresh.task

    async def _list(self, source: Source) -> None:
        source.refresh.started_at = time.monotonic()
        try:
            async with asyncio.timeout(_LIST_TIMEOUT_S):
                offered = await self._upstreams.list_offers(source.name)
                # The lock only now: listing may take long, and an approval must not wait for it.
                async with source.pins_lock:
                    await self._update(source, offered)
        except (WaypostError, OSError, msgspec.ValidationError) as error:
            self._fail(source, error)
        finally:
            # After a failure too, or every call of this session would ask again and wait for the answer.
            source.refresh.listed_session = source.refresh.session
            source.refresh.was_tried.set()

    async def _update(self, source: Source, offered: Offers) -> None:
        found, problems = build_manifest(source, offered)
        pins = await self._manifests.pins(source.name)
        if pins is None or source.is_trusted:
            # What a server lists first is taken as it is; only what changes afterwards is held.
            pins = {key: make_pin(one, noun_of_key(key)) for key, one in found.by_key.items()}
        else:
            # By what was listed before, if that is known: what changed since then is held.
            pins = renew_pins(pins, (source.manifest or found).by_key)
        await self._manifests.put_pins(source.name, pins)
        await self._manifests.put(source.name, found)
        is_news = found != source.manifest or source.error
        source.error, source.problems = "", problems
        for name, held in source.update(found, pins).items():
            self._record("capability.held", source, f"{name}: {held.why}", "held")
        self._publish([source])
        if is_news:
            self._record("capability.discovered", source, count_definitions(found), "ok")

    def _fail(self, source: Source, error: Exception) -> None:
        """Log and record once that a server cannot be listed."""
        late = f'The connection "{source.name}" did not say what it offers within {_LIST_TIMEOUT_S:g} s.'
        problem = redacted(str(error) or late, source.secrets)
        is_news, source.error = not source.error, problem
        if is_news:
            if self._upstreams.status(source.name).state != "failed":  # which is in the log already
                _log.warning("the tools of the connection %s are not known: %s", source.name, problem)
            self._record("capability.discovery_failed", source, problem, "error")

    def _record(self, action: str, source: Source, reason: str, outcome: str) -> None:
        audit = self._audit
        if audit is not None:
            audit.add(Record(time.time(), HUB, HUB, source.name, "allow", action, reason, outcome=outcome))

    def _publish(self, sources: Iterable[Source]) -> None:
        """Offer the rows of sources to the registry, which decides about their names."""
        with self._registry.as_one_change():
            for source in sources:
                for selection in source.selections:
                    before = selection.left_out
                    rows = build_rows(source, selection, self._handlers)
                    offers = self._registry.offer(selection.id, rows.values(), Priority.IMPORT)
                    selection.offers = dict(zip(rows, offers, strict=True))
                    for key, why in selection.problems.items():
                        if before.get(key) != why:
                            _log.warning("%r of the connection %s is left out: %s", key, source.name, why)

    async def admit(self, name: str, tool: str) -> None:
        """Refuse a held tool to callers that use the server's own name for it, as workflows do."""
        source = self._sources.get(name)
        if source is None:
            return
        if source.refresh.listed_session != source.refresh.session or name not in self._upstreams.versions:
            await self._refresh(source)
        if refusal := source.explain_refusal(tool):
            raise ToolError(refusal)

    def on_session_start(self, name: str) -> None:
        """Ask a server that was started what it offers now."""
        source = self._sources.get(name)
        if source is not None and self._is_running:
            source.refresh.session += 1
            self._start_refresh(source)
            self._subscriptions.update(source)

    def is_needed(self, name: str) -> bool:
        """Whether clients are subscribed to resources of a server."""
        source = self._sources.get(name)
        return source is not None and bool(self._subscriptions.wanted(source))

    def on_notification(self, name: str, note: Reply) -> None:
        """List a server again whose lists changed; pass on other notifications."""
        source = self._sources.get(name)
        if source is None or not self._is_running:
            return
        if note["method"] == _RESOURCE_UPDATED:
            self._subscriptions.notify(source, note["params"].get("uri"))
        if note["method"] == ELICITATION_COMPLETE:
            self._handlers.pages.complete(name, note["params"])
        if note["method"] in _LIST_CHANGED and source.refresh.timer is None:
            delay = max(0.0, source.refresh.started_at + _MIN_REFRESH_INTERVAL_S - time.monotonic())
            source.refresh.timer = running_loop().call_later(delay, self._list_again, source)

    def _list_again(self, source: Source) -> None:
        refresh = source.refresh
        refresh.timer = None
        if refresh.task is None or refresh.task.done():
            self._start_refresh(source)
        else:  # the change may have come after the lists were read, so once more afterwards
            refresh.timer = running_loop().call_later(_MIN_REFRESH_INTERVAL_S, self._list_again, source)

    def list_rows(self) -> list[UpstreamRow]:
        """The status of all connections to MCP servers."""
        return [self.get_row(name) for name in sorted(self._connections)]

    def list_pending(self) -> list[Pending]:
        """The servers that are connecting or down, of those that something is imported from."""
        found = (find_pending(one, self._upstreams.status(one.name)) for one in self._sources.values())
        return [one for one in found if one is not None]

    def get_row(self, name: str) -> UpstreamRow:
        """The status of one connection."""
        connection = self._connections.get(name)
        if connection is None:
            hint = did_you_mean(name, self._connections, "; ") or "."
            raise UnknownCapability(f"There is no connection {name!r} to an MCP server{hint}")
        return build_row(name, connection, self._upstreams.status(name), self._sources.get(name))

    async def approve(
        self, name: str, tool: str | None, sha256: str | None, principal: str, via: Via = HUB
    ) -> list[str]:
        """Pin held definitions as they are now, all or one; returns their keys.

        With `sha256`, only if the definition is still the one that has this hash.
        """
        self.get_row(name)
        source = self._sources.get(name)
        if source is None or source.manifest is None:
            raise DefinitionError(f"Nothing is known of what {name} offers, so there is nothing to approve.")
        async with source.pins_lock:
            definitions = source.definitions
            if tool is not None and tool not in definitions:
                raise UnknownCapability(f"{name} does not offer {tool!r}{did_you_mean(tool, definitions, '; ') or '.'}")
            held = {key: found for key, found in source.held.items() if tool in (None, key)}
            if sha256 is not None and [found.sha256 for found in held.values()] != [sha256]:
                raise DefinitionError("The definition is not the one you saw; look at it again.")
            new = {key: make_pin(definitions[key], noun_of_key(key)) for key in held}
            # On top of what is stored: another replica may have approved something else meanwhile.
            pins = {**(await self._manifests.pins(name) or {}), **new}
            await self._manifests.put_pins(name, pins)
            source.pins = pins
            source.compare_pins()
            self._publish([source])
            if self._audit is not None:
                for key, found in held.items():
                    self._audit.record_act("upstream.approved", principal, via, name, f"{key}: {found.sha256}")
            return list(held)

    async def refresh(self) -> None:
        """Release what other replicas approved; earlier approvals stay until the server is listed again."""
        revision = await self._manifests.revision()  # before the pins: approvals from now on are read the next time
        if revision == self._pins_revision:
            return
        for source in list(self._sources.values()):
            async with source.pins_lock:
                with suppress(msgspec.ValidationError):
                    pins = (await self._manifests.pins(source.name) or {}) if source.held else {}
                    # Only what is pinned as it is now: another replica may have approved an older definition.
                    held = {key: one.sha256 for key, one in source.held.items()}
                    if now := {key: pin for key, pin in pins.items() if held.get(key) == pin.sha256}:
                        source.pins = source.pins | now
                        source.compare_pins()
                        self._publish([source])
        self._pins_revision = revision

    async def restart(self, name: str) -> UpstreamRow:
        """End the session with a server when its calls are done, and begin a new one if its tools are imported."""
        self.get_row(name)
        self._upstreams.retire(name)
        source = self._sources.get(name)
        if source is not None:
            if source.refresh.task is not None:
                source.refresh.task.cancel()  # it asks in the session that ends
                await asyncio.wait({source.refresh.task})
            await self._refresh(source)
        return self.get_row(name)
