"""The configuration file of a hub: read at the start, followed while the hub runs, reloaded all or nothing.

A reload prepares the change of every component, which nobody sees, and then commits all of them in one step. An error
in either part rolls everything back: the hub goes on with what it had.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from waypost import config
from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.principals import ANONYMOUS
from waypost.capabilities.session import ListKind
from waypost.config.models import McpConnection
from waypost.errors import WaypostError
from waypost.policy.audit import Record
from waypost.policy.decisions import hidden, onlookers
from waypost.policy.rules import Rule
from waypost.runtime.assembly import Built, read, reread, rules
from waypost.runtime.component import Change, Component
from waypost.runtime.core import Core
from waypost.runtime.toolkits import close_toolkit, open_toolkit
from waypost.settings import Settings

if TYPE_CHECKING:
    from waypost.identity import Authentication
    from waypost.imports.exposures import Exposures
    from waypost.runtime.runtime import Runtime
    from waypost.workflows.workflows import Workflows

_log: Final = logging.getLogger(__name__)
_ONLY_AT_START: Final = ("server", "store", "bus", "audit", "workers")
"""Sections that take effect at the next start."""
_LISTS: Final[dict[ListKind, tuple[Kind, ...]]] = {
    "tools": (Kind.TOOL,),
    "prompts": (Kind.PROMPT,),
    "resources": (Kind.RESOURCE, Kind.TEMPLATE),
}


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


def build_authentication(section: config.Auth | None) -> Authentication | None:
    """Who may use the hub, as the section `auth` says."""
    if section is None:
        return None
    from waypost.identity.authentication import authentication

    return authentication(section)


class Configuration(Component):
    """Toolkits, prompts and exposed capabilities of the file; reads it again when it changes or on SIGHUP."""

    name = "configuration"

    def __init__(self, runtime: Runtime, loaded: config.Loaded, built: Built) -> None:
        self._runtime = runtime
        self.loaded = loaded
        self.built = built
        self.rows: list[Capability] = []
        self._exposures: Exposures | None = None
        self._reloading = asyncio.Lock()
        self._watchers: list[asyncio.Task[None]] = []
        self._opened: list[Any] = []
        """The toolkits to close, the last one first."""

    def apply(self) -> None:
        """Declare what the file asks for."""
        runtime, settings = self._runtime, self.loaded.config
        is_built = runtime.has_workflows  # a gateway builds the workflow engine before the file is added
        self.keep_secret(self.loaded.secrets)
        self.rows = self.build_rows(self.built)
        runtime.core.registry.add(self.rows)
        if settings.skills is not None:
            runtime.executable_skills.begin(settings.skills)
        if settings.connections:
            runtime.upstreams.connections = settings.connections
        if is_built:
            self.configure_workflows(runtime.workflows)
        elif settings.workflows:
            _ = runtime.workflows  # which asks `configure_workflows`, whenever it is built
        if _imports(settings):
            runtime.make_imports().configure(settings.proxy.imports, settings.connections)

    def configure_workflows(self, workflows: Workflows) -> None:
        """Give a workflow engine that was just built the workflows, actions and settings of the file."""
        workflows.show_settings(lambda: self.loaded.config)
        workflows.define(self.loaded.config.workflows, self.loaded.config.capabilities)

    def build_rows(self, built: Built) -> list[Capability]:
        """The capabilities of toolkits and prompts, and the tools of the section `proxy`."""
        if not built.offers:
            return built.capabilities
        from waypost.imports.exposures import Exposures

        self._exposures = self._exposures or Exposures()
        surroundings = self._runtime.workflows.engine.library.surroundings
        return [*built.capabilities, *self._exposures.tools(built.offers, surroundings)]

    def keep_secret(self, secrets: tuple[str, ...]) -> None:
        """Redact these values from every error text."""
        self._runtime.core.pipeline.secrets = self._runtime.core.guard.secrets = secrets

    async def start(self, core: Core) -> None:
        """Watch the files and SIGHUP."""
        if self._watchers:
            return
        for toolkit in self.built.toolkits:
            self._opened.append(toolkit)
            await open_toolkit(toolkit)
        hangups = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._watchers = [loop.create_task(self._watch_files()), loop.create_task(self._watch_hangups(hangups))]
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not in this thread, or not on this platform
            loop.add_signal_handler(signal.SIGHUP, hangups.set)

    async def stop(self) -> None:
        """Stop watching."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._watchers = []
        while self._opened:
            await close_toolkit(self._opened.pop())

    @property
    def is_running(self) -> bool:
        """Whether toolkits are open and files are watched."""
        return bool(self._watchers)

    def exchange_toolkits(self, opened: list[Any]) -> list[Any]:
        """Close these toolkits with the hub from now on; those before are given back."""
        before, self._opened = self._opened, list(opened)
        return before

    async def _watch_files(self) -> None:
        bursts = config.changes(lambda: self.loaded.watched, asyncio.Event())
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
            hangups.clear()
            await self.reload()

    async def reload(self) -> bool:
        """Read the file again; on any error everything stays as it is, and the log says what is wrong."""
        async with self._reloading:
            try:
                loaded, built = await reread(self.loaded)
                changes = await self._prepare_all(loaded, built)
                with self._announcing(rules(loaded.config.policies)), self._runtime.core.registry.as_one_change():
                    await self._commit_all(changes)
            except WaypostError as error:
                _log.error("the configuration was not reloaded: %s", error)
                return False
            except Exception:
                _log.exception("the configuration was not reloaded")
                return False
            self._warn_about(loaded.config)
            self.loaded = loaded
            await self._finish_all(changes)
            self._record_reload()
            _log.info("the configuration was reloaded")
            return True

    async def _prepare_all(self, loaded: config.Loaded, built: Built) -> list[Change]:
        """Prepare the change of every component, those included that the new settings are the first to need."""
        runtime, settings = self._runtime, loaded.config
        if settings.skills is not None:
            _ = runtime.executable_skills
        if settings.workflows:
            _ = runtime.workflows
        if _imports(settings):
            runtime.make_imports()
        await runtime.start_added()
        rows = _Rows(self, built)
        changes: list[Change] = [rows]
        # Committed last: whoever may call must not change before everything else has.
        access = _Access(self, runtime, loaded)
        try:
            await rows.open()
            for component in runtime.components:
                change = await component.prepare(settings)
                if change is not None:
                    changes.append(change)
        except Exception:
            await _roll_back(changes)
            raise
        return [*changes, access]

    async def _commit_all(self, changes: Sequence[Change]) -> None:
        """Exchange all capabilities in one step, then commit; a failure puts the capabilities back."""
        registry = self._runtime.core.registry
        leaving = [row for change in changes for row in change.leaving]
        arriving = [row for change in changes for row in change.arriving]
        try:
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

    async def _finish_all(self, changes: Sequence[Change]) -> None:
        for change in changes:
            try:
                await change.finish()
            except Exception:
                _log.exception("a component did not follow the new configuration")

    def _warn_about(self, settings: Settings) -> None:
        """Log which changes have no effect yet."""
        for section in _ONLY_AT_START:
            if getattr(settings, section) != getattr(self.loaded.config, section):
                _log.warning("changes in the section %s take effect at the next start", section)

    def _record_reload(self) -> None:
        audit = self._runtime.core.guard.audit
        if audit is not None:
            path = str(self.loaded.path)
            audit.add(Record(time.time(), "hub", "console", "config", "allow", "config.reloaded", path, outcome="ok"))

    def _announcing(self, new: list[Rule]) -> AbstractContextManager[None]:
        """Announce to every client where the rules change too: the old ones may have shown what is leaving."""
        old = self._runtime.core.guard.policy.rules
        is_same = len(new) == len(old) and all(rule in old for rule in new)
        return nullcontext() if is_same else self._runtime.core.engine.broadcast.batch_for_all()


class _Rows(Change):
    """Other toolkits, prompts and exposed capabilities."""

    def __init__(self, configuration: Configuration, built: Built) -> None:
        self._configuration = configuration
        self._before = (configuration.rows, configuration.built)
        self._after = (configuration.build_rows(built), built)
        self.leaving, self.arriving = self._before[0], self._after[0]

        self._opened: list[Any] = []
        self._closing: list[Any] = []

    async def open(self) -> None:
        """Open the new toolkits beside those that are served."""
        if self._configuration.is_running:
            for toolkit in self._after[1].toolkits:
                self._opened.append(toolkit)
                await open_toolkit(toolkit)

    def commit(self) -> None:
        self._configuration.rows, self._configuration.built = self._after
        self._closing = self._configuration.exchange_toolkits(self._opened)

    async def rollback(self) -> None:
        if self._configuration.built is self._after[1]:
            self._configuration.exchange_toolkits(self._closing)
            self._closing = []
        self._configuration.rows, self._configuration.built = self._before
        while self._opened:
            await close_toolkit(self._opened.pop())

    async def finish(self) -> None:
        while self._closing:
            await close_toolkit(self._closing.pop())


class _Access(Change):
    """Another section `auth`, other rules, secrets, connections and deadlines."""

    def __init__(self, configuration: Configuration, runtime: Runtime, loaded: config.Loaded) -> None:
        self._configuration = configuration
        self._runtime = runtime
        self._loaded = loaded
        self._rules = rules(loaded.config.policies)
        core = runtime.core
        self._before = (core.guard.policy.rules, core.pipeline.timeout, configuration.loaded.secrets)
        self._auth = build_authentication(loaded.config.auth)
        if self._auth is None and runtime.has_authentication:
            from waypost.identity import Authentication

            self._auth = Authentication(anonymous=ANONYMOUS, lenient=True)
        if self._auth is not None:
            runtime.check_exposure(self._auth)

    def commit(self) -> None:
        self._govern(self._rules)
        self._runtime.core.pipeline.timeout = self._loaded.config.tool_timeout
        self._configuration.keep_secret(self._loaded.secrets)
        if self._auth is not None and not self._runtime.authentication.exchange(self._auth):
            _log.warning("changes in the section auth.oauth take effect at the next start")

    async def rollback(self) -> None:
        before, self._runtime.core.pipeline.timeout, secrets = self._before
        self._configuration.keep_secret(secrets)
        self._govern(list(before))

    def _govern(self, new: list[Rule]) -> None:
        """Go by other rules, and announce the lists that look different to some principal now."""
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
        """What clients find in a list, where no rule hides anything."""
        only = self._runtime.core.engine.settings.only_tools if kind is Kind.TOOL else None
        rows = self._runtime.core.registry[kind]
        return (row for row in rows if not row.metadata.hidden and (only is None or row.id in only))


async def _roll_back(changes: Sequence[Change]) -> None:
    for change in reversed(changes):
        try:
            await change.rollback()
        except Exception:
            _log.exception("a component did not go back to the configuration before")


def _imports(settings: Settings) -> bool:
    return any(isinstance(one, McpConnection) for one in settings.connections.values())
