"""The configuration file of a hub: read at the start, followed while the hub runs, reloaded all or nothing.

A reload prepares the changes of all components, without visible effect, and then commits them in one step. An error
in either part rolls everything back: the hub keeps the configuration that it has.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import ListKind
from waypost.capabilities.principals import ANONYMOUS
from waypost.config.files import changes as watch_changes
from waypost.config.models import McpConnection
from waypost.errors import StoreError, WaypostError
from waypost.loops import start_task, wait_for_event
from waypost.policy.audit import HUB
from waypost.policy.rules import Rule, hidden, onlookers
from waypost.runtime.assembly import Built, read, reread, rules
from waypost.runtime.component import Change, Component, Toolkits
from waypost.runtime.core import Core
from waypost.settings import START_SECTIONS, Auth, Breakers, Settings
from waypost.stores.directory import derive_key

if TYPE_CHECKING:
    from waypost.config.loader import Loaded
    from waypost.identity import Authentication
    from waypost.imports.exposures import Exposures
    from waypost.runtime.runtime import Runtime
    from waypost.workflows.workflows import Workflows

_log: Final = logging.getLogger(__name__)
_ACCESS: Final = frozenset({"auth", "policies", "server", "mcp", "breakers"})
"""Sections that say which callers are accepted, what they may do, and for how long."""
_LISTS: Final[dict[ListKind, tuple[Kind, ...]]] = {
    "tools": (Kind.TOOL,),
    "prompts": (Kind.PROMPT,),
    "resources": (Kind.RESOURCE, Kind.TEMPLATE),
}
_IDLE_CHECK_INTERVAL_S: Final = 0.05


class ConfigurationFile:
    """A configuration file that was read without errors."""

    def __init__(self, path: Path) -> None:
        self.loaded, self.built = read(path)
        self.rules = rules(self.loaded.config.policies)
        self.authentication = build_authentication(self.loaded.config.auth)

    def add_to(self, runtime: Runtime) -> None:
        """Add everything that the file asks for to a runtime."""
        configuration = Configuration(runtime, self.loaded, self.built)
        runtime.add(configuration)
        configuration.apply()


def build_authentication(section: Auth | None) -> Authentication | None:
    """Build what the section `auth` says about who may use the hub."""
    if section is None:
        return None
    from waypost.identity.authentication import authentication

    return authentication(section)


class Configuration(Component):
    """Toolkits, prompts and exposed capabilities of the file; reads it again when it changes or on SIGHUP."""

    name = "configuration"

    def __init__(self, runtime: Runtime, loaded: Loaded, built: Built) -> None:
        self._runtime = runtime
        self.loaded = loaded
        self.rows: Sequence[Capability] = ()
        self.toolkits = Toolkits(built.toolkits)
        self._built = built
        self._exposures: Exposures | None = None
        self._reloading = asyncio.Lock()
        self._watchers: list[asyncio.Task[None]] = []
        self.pipeline = runtime.core.pipeline
        self._closing: set[asyncio.Task[None]] = set()
        """What closes replaced toolkits when the calls in them have ended."""
        self._stopping = asyncio.Event()

    def apply(self) -> None:
        """Declare what the file asks for."""
        runtime, settings = self._runtime, self.loaded.config
        is_built = runtime.has_workflows  # a gateway builds the workflow engine before the file is added
        self.set_secrets(self.loaded.secrets)
        self.rows = self.build_rows(self._built)
        self.pipeline.call_counts.update(dict.fromkeys(self._built.capabilities, self.toolkits.calls))
        runtime.core.registry.add(self.rows)
        if settings.skills is not None:
            runtime.executable_skills.begin(settings.skills)
        if settings.connections:
            runtime.upstreams.connections = settings.connections
        if is_built:
            self.configure_workflows(runtime.workflows)
        elif settings.workflows:
            _ = runtime.workflows  # which asks `configure_workflows`, whenever it is built
        if _has_upstreams(settings):
            runtime.make_imports().configure(settings.proxy.imports, settings.connections)

    def configure_workflows(self, workflows: Workflows) -> None:
        """Give a workflow engine that was just built the workflows, actions and settings of the file."""
        workflows.show_settings(lambda: self.loaded.config)
        workflows.define(self.loaded.config.workflows, self.loaded.config.capabilities)

    def build_rows(self, built: Built) -> list[Capability]:
        """Build the capabilities of toolkits and prompts, and the tools of the section `proxy`."""
        if not built.offers:
            return built.capabilities
        from waypost.imports.exposures import Exposures

        self._exposures = self._exposures or Exposures()
        context = self._runtime.workflows.engine.library.context
        return [*built.capabilities, *self._exposures.tools(built.offers, context)]

    def set_secrets(self, secrets: tuple[str, ...]) -> None:
        """Redact these values from every error text, and store nothing with them."""
        core = self._runtime.core
        core.pipeline.secrets = core.guard.secrets = secrets
        core.store.set_secrets(secrets)

    async def start(self, core: Core) -> None:
        """Open the toolkits, and watch the files and SIGHUP."""
        if self._watchers:
            return
        await self.toolkits.start(core)
        hangups = asyncio.Event()
        loop = asyncio.get_running_loop()
        works = (self._watch_files(), self._watch_hangups(hangups), _remove_stored_secrets(core))
        self._watchers = [loop.create_task(work) for work in works]
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not in this thread, or not on this platform
            loop.add_signal_handler(signal.SIGHUP, hangups.set)

    async def stop(self) -> None:
        """Stop watching, and close the toolkits."""
        for watcher in self._watchers:
            watcher.cancel()
        self._stopping.set()  # not cancelled: the toolkits have to be closed
        await asyncio.gather(*self._watchers, *self._closing, return_exceptions=True)
        self._watchers = []
        self._stopping = asyncio.Event()  # a new one: the hub may be started again on another loop
        await self.toolkits.stop()

    def close_later(self, toolkits: Toolkits, within: float) -> None:
        """Close replaced toolkits in the background, when the calls that began in them have ended."""
        start_task(_close_when_idle(toolkits, within, self._stopping), self._closing)

    async def _watch_files(self) -> None:
        bursts = watch_changes(lambda: self.loaded.watched, asyncio.Event())
        await self._reload_if_changed()  # since they were read at the start
        async for _ in bursts:
            await self._reload_if_changed()

    async def _reload_if_changed(self) -> None:
        # A change may have been read already, by a reload that waited until the files were complete.
        if not await asyncio.to_thread(self.loaded.snapshot.is_current):
            await self.reload()

    async def _watch_hangups(self, hangups: asyncio.Event) -> None:
        while True:
            await hangups.wait()
            # Before the reload: a signal that comes during it asks for another one.
            hangups.clear()
            await self.reload()

    async def reload(self) -> bool:
        """Read the file again; on any error everything stays as it is, and the log says what is wrong."""
        async with self._reloading:
            try:
                if not await asyncio.to_thread(self.loaded.snapshot.is_current):
                    await self._replace(*await reread(self.loaded))
            except WaypostError as error:
                _log.error("the configuration was not reloaded: %s", error)
                return False
            except Exception:
                _log.exception("the configuration was not reloaded")
                return False
            if (audit := self._runtime.core.guard.audit) is not None:
                audit.record_act("config.reloaded", HUB, "file", "config", str(self.loaded.path))
            _log.info("the configuration was reloaded")
            return True

    async def _replace(self, loaded: Loaded, built: Built) -> None:
        """Replace the running configuration in all components, or in none."""
        old, new = self.loaded.config, loaded.config
        changed = {name for name in Settings.__struct_fields__ if getattr(old, name) != getattr(new, name)}
        changes = await self._prepare_all(loaded, built, changed)
        core = self._runtime.core
        # Where the rules change too, every client is notified: the old rules may have shown what is leaving.
        announcing = core.engine.broadcast.batch_for_all() if "policies" in changed else nullcontext()
        with announcing, core.registry.as_one_change():
            await self._commit_all(changes)
        self.loaded = loaded
        if "policies" in changed:
            before, after = ({rule.name: rule for rule in one.policies} for one in (old, new))
            names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
            core.guard.record_act("policy.changed", HUB, "file", "policies", ", ".join(names))
        for section in changed.intersection(START_SECTIONS):
            _log.warning("changes in the section %s take effect at the next start", section)
        for change in changes:
            try:
                await change.finish()
            except Exception:
                _log.exception("a component did not follow the new configuration")

    async def _prepare_all(self, loaded: Loaded, built: Built, changed: set[str]) -> list[Change]:
        """Prepare the changes of all components, including those that the new settings are the first to need."""
        runtime, settings = self._runtime, loaded.config
        if settings.skills is not None:
            _ = runtime.executable_skills
        if settings.workflows:
            _ = runtime.workflows
        if _has_upstreams(settings):
            runtime.make_imports()
        await runtime.start_added()
        rows = _Rows(self, built)
        changes: list[Change] = [rows]
        try:
            # Committed last: callers and their rights must not change before everything else has.
            alters_access = changed & _ACCESS or loaded.secrets != self.loaded.secrets
            access = [_Access(self, runtime, loaded)] if alters_access else []
            if self._watchers:  # a hub that does not run opens nothing
                await rows.toolkits.start(runtime.core)
            for component in runtime.components:
                if component.sections is None or not changed.isdisjoint(component.sections):
                    change = await component.prepare(settings)
                    if change is not None:
                        changes.append(change)
        except Exception:
            await _roll_back(changes)
            raise
        return [*changes, *access]

    async def _commit_all(self, changes: Sequence[Change]) -> None:
        """Exchange all capabilities in one step, then commit; a failure puts the capabilities back."""
        registry = self._runtime.core.registry
        leaving = [row for change in changes for row in change.leaving]
        arriving = [row for change in changes for row in change.arriving]
        try:
            # No await from here to the last commit: no request finds half of a configuration.
            registry.replace(leaving, arriving)
        except Exception:
            await _roll_back(changes)
            raise
        try:
            for change in changes:
                change.commit()
        except Exception:
            await _roll_back(changes)
            registry.replace(arriving, leaving)
            raise


class _Rows(Change):
    """Other toolkits, prompts and exposed capabilities; the new toolkits are opened beside those that are served."""

    def __init__(self, configuration: Configuration, built: Built) -> None:
        self._configuration = configuration
        self._before = (configuration.rows, configuration.toolkits)
        self.toolkits = Toolkits(built.toolkits)
        self.leaving, self.arriving = configuration.rows, configuration.build_rows(built)
        # Not those of the section `proxy`: a call of theirs may take a day, and runs in no toolkit.
        self._counted = built.capabilities
        self._counts, self._timeout = configuration.pipeline.call_counts, configuration.pipeline.timeout

    def commit(self) -> None:
        self._configuration.rows, self._configuration.toolkits = self.arriving, self.toolkits
        self._counts.update(dict.fromkeys(self._counted, self.toolkits.calls))

    async def rollback(self) -> None:
        self._configuration.rows, self._configuration.toolkits = self._before
        for row in self._counted:
            self._counts.pop(row, None)
        await self.toolkits.stop()

    async def finish(self) -> None:
        before, within = self._before[1], self._timeout
        for row in self.leaving:
            # Calls that run keep the timeout that they began with: that of their capability, or the hub's.
            if self._counts.pop(row, None) is not None:
                within = max(within, row.timeout or 0.0)
        if before.calls.running:
            self._configuration.close_later(before, within)
        else:
            await before.stop()


class _Access(Change):
    """Another section `auth`, other rules, secrets and deadlines."""

    def __init__(self, configuration: Configuration, runtime: Runtime, loaded: Loaded) -> None:
        self._configuration = configuration
        self._runtime = runtime
        self._loaded = loaded
        self._rules = rules(loaded.config.policies)
        core = runtime.core
        self._before = (core.guard.policy.rules, core.pipeline.timeout, configuration.loaded.secrets)
        self._auth = build_authentication(loaded.config.auth)
        if self._auth is None and runtime.has_authentication:
            from waypost.identity import Authentication

            # The section is gone: from now on it is as in a hub that never had one.
            self._auth = Authentication(anonymous=ANONYMOUS, lenient=True)
        if self._auth is not None:
            runtime.check_exposure(self._auth)

    def commit(self) -> None:
        self._set_rules(self._rules)
        self._runtime.core.pipeline.timeout = self._loaded.config.tool_timeout
        self._set_breakers(self._loaded.config.breakers)
        self._configuration.set_secrets(self._loaded.secrets)
        if self._auth is not None and not self._runtime.authentication.exchange(self._auth):
            _log.warning("changes in the section auth.oauth take effect at the next start")

    async def rollback(self) -> None:
        before, self._runtime.core.pipeline.timeout, secrets = self._before
        self._set_breakers(self._configuration.loaded.config.breakers)
        self._configuration.set_secrets(secrets)
        self._set_rules(list(before))

    def _set_breakers(self, settings: Breakers) -> None:
        breakers = self._runtime.core.guard.breakers
        if breakers is not None:
            breakers.settings = settings

    def _set_rules(self, new: list[Rule]) -> None:
        """Replace the rules, and announce the lists that look different to some principal now."""
        core = self._runtime.core
        policy = core.guard.policy
        people = onlookers([*policy.rules, *new])
        listed = {name: [row.id for kind in kinds for row in self._listed(kind)] for name, kinds in _LISTS.items()}
        before = {name: hidden(policy, people, ids) for name, ids in listed.items()}
        policy.replace(new)
        for name, ids in listed.items():
            if hidden(policy, people, ids) != before[name]:
                core.engine.broadcast.list_changed(name)

    def _listed(self, kind: Kind) -> Iterator[Capability]:
        """Yield what a list shows to a principal from whom no rule hides anything."""
        only = self._runtime.core.engine.lists.only if kind is Kind.TOOL else None
        rows = self._runtime.core.registry[kind]
        return (row for row in rows if not row.metadata.hidden and (only is None or row.id in only))


async def _roll_back(changes: Sequence[Change]) -> None:
    for change in reversed(changes):
        try:
            await change.rollback()
        except Exception:
            _log.exception("a component did not return to the previous configuration")


async def _close_when_idle(toolkits: Toolkits, within: float, stopping: asyncio.Event) -> None:
    """Close replaced toolkits when no call runs in them or the hub stops, at the latest after so many seconds."""
    until = time.monotonic() + within
    # Looked at again and again: a call that reported its end would make every call slower.
    while toolkits.calls.running and not stopping.is_set():
        if time.monotonic() >= until:
            _log.warning("calls still run in toolkits that a reload replaced; closed after %g s", within)
            break
        await wait_for_event(stopping, _IDLE_CHECK_INTERVAL_S)
    try:
        await toolkits.stop()
    except Exception:
        _log.exception("a replaced toolkit failed to close")


def _has_upstreams(settings: Settings) -> bool:
    return any(isinstance(one, McpConnection) for one in settings.connections.values())


async def _remove_stored_secrets(core: Core) -> None:
    """Hide secrets of the configuration in what earlier versions stored."""
    try:
        if core.store.database.is_durable and core.guard.secrets and await core.store.database.schema_version():
            key = derive_key(await asyncio.to_thread(core.secret.read), "stored secrets")
            if changed := await core.store.remove_secrets(key):
                _log.warning("secrets of the configuration were removed from stored rows: rows=%d", changed)
    except StoreError as error:
        _log.warning("stored rows were not looked through for secrets: %s", error)
