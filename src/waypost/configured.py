"""A hub from a configuration file, kept up to date while it runs.

`ConfiguredHub` reads the file, imports its toolkits and writes its prompts into the registry. A change of any file it
came from, or SIGHUP, builds everything anew and exchanges it in one step; a mistake leaves what is there as it is.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from waypost import config
from waypost.building import Built, read, reread, rules
from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.principals import ANONYMOUS
from waypost.capabilities.session import ListKind
from waypost.config.connections import McpConnection
from waypost.errors import DefinitionError, WaypostError
from waypost.hub import Hub
from waypost.policy.audit import Record
from waypost.policy.hiding import hidden, onlookers
from waypost.policy.rules import Rule
from waypost.stores.directory import data_directory

if TYPE_CHECKING:
    from waypost.gateway.documents import Ranking
    from waypost.gateway.exposing import Exposures
    from waypost.policy import Authentication
    from waypost.skills.live_section import Draft, LiveSection
    from waypost.skills.section import SkillSection
    from waypost.transports.http.app import HttpApp
    from waypost.workflows.workflows import Workflows

_log: Final = logging.getLogger(__name__)
_AT_START: Final = ("server", "store", "bus", "audit", "workers")
"""Sections that are looked at when the hub starts, and not again."""
_LISTS: Final[dict[ListKind, tuple[Kind, ...]]] = {
    "tools": (Kind.TOOL,),
    "prompts": (Kind.PROMPT,),
    "resources": (Kind.RESOURCE, Kind.TEMPLATE),
}


class ConfiguredHub(Hub):
    """A hub whose capabilities come from a configuration file."""

    def __init__(self, path: Path) -> None:
        loaded, built = read(path)
        server = loaded.config.server
        self.loaded = loaded
        super().__init__(
            server.name,
            server.version,
            instructions=server.instructions,
            tool_timeout=loaded.config.tool_timeout,
            session_idle=server.session_idle_ms / 1000,
            max_sessions=server.max_sessions,
            max_tasks=server.max_tasks,
            page_size=server.page_size,
            names=server.names,
            max_body=server.max_body_bytes,
            max_result=server.max_result_bytes,
            allowed_hosts=server.allowed_hosts,
            allowed_origins=server.allowed_origins,
            allow_anonymous_remote=server.allow_anonymous_remote,
            task_after=server.task_after_ms / 1000,
            auth=authentication(loaded.config.auth),
            store=loaded.config.store.url,
            policies=rules(loaded.config.policies),
            audit=loaded.config.audit.sink,
            breakers=True,
            max_running=server.max_running,
            max_waiting=server.max_waiting,
            surface=server.surface,
            ranking=loaded.config.search.ranking,
            workers=_worker_options(loaded.config.workers),
        )
        self.settle_in(data_directory(path.absolute()))
        self._keep_secret(loaded.secrets)
        self._configured = [*built.capabilities, *self._exposed(built)]
        self._reloading = asyncio.Lock()
        self._hangups = asyncio.Event()
        self._stop_watching = asyncio.Event()
        self._watchers: list[asyncio.Task[None]] = []
        self.registry.add(self._configured)
        if loaded.config.skills is not None:
            self._begin_with(loaded.config.skills)
        if loaded.config.workflows:
            _ = self.workflows
        self._import(loaded.config)

    @cached_property
    def workflows(self) -> Workflows:
        """State machines that agents are led through, and the settings that can be read beside them."""
        made = super().workflows
        made.show_settings(lambda: self.loaded.config)
        settings = self.loaded.config
        made.define(settings.workflows, settings.capabilities, settings.connections)
        return made

    @cached_property
    def _exposures(self) -> Exposures:
        from waypost.gateway.exposing import Exposures

        return Exposures()

    def _exposed(self, built: Built) -> list[Capability]:
        """The tools of what the section `proxy` offers."""
        if not built.offers:
            return []
        return self._exposures.tools(built.offers, self.workflows.engine.library.surroundings)

    def _define(self, settings: config.Settings) -> None:
        """Have the workflows that a configuration asks for."""
        if settings.workflows or self.has_workflows:
            self.workflows.define(settings.workflows, settings.capabilities, settings.connections)

    def _import(self, settings: config.Settings) -> None:
        """Take over the tools of the servers that a configuration names."""
        if self.imports is None:
            if not any(isinstance(one, McpConnection) for one in settings.connections.values()):
                return
            from waypost.gateway.importing import Imports

            self.imports = Imports(
                self.registry,
                lambda: self.workflows.upstreams,
                lambda: self.store,
                lambda: self.guard.audit,
                lambda: self.engine.broadcast,
            )
        self.imports.configure(settings.proxy.imports, settings.connections)

    @cached_property
    def _live_skills(self) -> LiveSection:
        from waypost.skills.live_section import LiveSection

        return LiveSection(self._skill_section, lambda: self.folders, lambda: bool(self._watchers))

    def _skill_section(self, settings: config.Skills) -> SkillSection:
        from waypost.skills.section import SkillSection

        return SkillSection(
            settings,
            self.registry,
            lambda: self.store,
            self._data,
            read_resource=lambda uri, ctx: self._pipeline.read(uri, ctx.caller),
            exchanged=self.guard.forgive,
        )

    def _begin_with(self, settings: config.Skills) -> None:
        """Have the skills that the section asks for at the start."""
        section = self._live_skills.begin(settings)
        self.registry.add(section.core)
        if settings.folders:
            self.add_skills(*settings.folders)
        if settings.prompts:
            self.add_prompts(*settings.prompts)
        self.skills = section.dynamic

    async def _draft_skills(self, settings: config.Skills | None) -> Draft | None:
        """The skills that another section asks for, ready to be served; nothing where it is the same."""
        if settings is None and "_live_skills" not in self.__dict__:
            return None
        return await self._live_skills.draft(settings)

    def _have_skills(self, draft: Draft) -> None:
        """Go by another section `skills` from now on."""
        live = self._live_skills
        live.commit(draft)
        self.skills = None if live.section is None else live.section.dynamic
        if draft.seen is not None:
            self.engine.profile.skills = self.folders if self.folders.has_skills else None

    async def reload(self) -> bool:
        """Read the file again; on any mistake everything stays as it is, and the log says what is wrong."""
        async with self._reloading:
            try:
                loaded, built = await reread(self.loaded)
                capabilities = [*built.capabilities, *self._exposed(built)]
                governing = rules(loaded.config.policies)
                auth = self._new_authentication(loaded.config.auth)
                draft = await self._draft_skills(loaded.config.skills)
            except WaypostError as error:
                _log.error("the configuration was not reloaded: %s", error)
                return False
            was_there = self.imports is not None
            with self._telling(governing), self.registry.as_one_change():
                try:
                    self._exchange(loaded.config, capabilities, draft)
                    self._govern(governing)
                except DefinitionError as error:
                    _log.error("the configuration was not reloaded: %s", error)
                    if draft is not None:
                        await self._live_skills.drop(draft)
                    return False
                self._warn_of(loaded.config)
                self._let_in(auth)
                self._keep_secret(loaded.secrets)
                self._pipeline.timeout = loaded.config.tool_timeout
                self._rank(loaded.config.search.ranking)
                self.loaded, self._configured = loaded, capabilities
                self._import(loaded.config)
            if self.imports is not None and not was_there and self._watchers:
                await self.imports.start()
            if draft is not None and draft.seen is not None and self._watchers:
                await self.folders.follow()
            self._record_reload()
            _log.info("the configuration was reloaded")
            return True

    def _new_authentication(self, section: config.Auth | None) -> Authentication | None:
        """Who is let in by a section `auth`, unless that is everybody from everywhere."""
        auth = authentication(section)
        if auth is None and self.auth is not None:
            from waypost.policy import Authentication

            auth = Authentication(anonymous=ANONYMOUS, lenient=True)
        if auth is not None:
            self._check_open_to_all(auth)
        return auth

    def _let_in(self, new: Authentication | None) -> None:
        """Go by another section `auth` from now on."""
        if self.auth is None or new is None:
            self.auth = new
        elif not self.auth.exchange(new):
            _log.warning("changes in the section auth.oauth take effect at the next start")

    def asgi(self, *, allowed_hosts: Iterable[str] = ()) -> HttpApp:
        """The hub as an ASGI app, for any ASGI server; who is let in follows the file."""
        _ = self.authentication
        return super().asgi(allowed_hosts=allowed_hosts)

    def _keep_secret(self, secrets: tuple[str, ...]) -> None:
        """Have no error text tell these values."""
        self._pipeline.secrets = self.guard.secrets = secrets

    def _rank(self, ranking: Ranking) -> None:
        """Rank what a search finds as a configuration says."""
        self._ranking = ranking
        if "gateway" in self.__dict__:
            self.gateway.rank(ranking)

    def _warn_of(self, settings: config.Settings) -> None:
        """Say what of a new configuration has no effect yet."""
        for section in _AT_START:
            if getattr(settings, section) != getattr(self.loaded.config, section):
                _log.warning("changes in the section %s take effect at the next start", section)

    def _record_reload(self) -> None:
        if self.guard.audit is not None:
            told = str(self.loaded.path)
            self.guard.audit.add(
                Record(time.time(), "hub", "console", "config", "allow", "config.reloaded", told, outcome="ok")
            )

    def _exchange(self, settings: config.Settings, capabilities: list[Capability], draft: Draft | None) -> None:
        """Offer what a configuration asks for, all of it or nothing."""
        leaving = [] if draft is None else self._live_skills.leaving(draft)
        arriving = [] if draft is None or draft.section is None else draft.section.rows
        self._define(settings)
        try:
            self.registry.replace([*self._configured, *leaving], [*capabilities, *arriving])
        except DefinitionError:
            self._define(self.loaded.config)
            raise
        if draft is not None:
            self._have_skills(draft)
        if self.has_workflows:
            self.workflows.start()

    def _telling(self, new: list[Rule]) -> AbstractContextManager[None]:
        """How changes are told: to everybody where the rules change too, as the old ones may have shown what leaves."""
        old = self.guard.policy.rules
        is_same = len(new) == len(old) and all(rule in old for rule in new)
        return nullcontext() if is_same else self.engine.broadcast.batch_for_all()

    def _govern(self, new: list[Rule]) -> None:
        """Have other rules, and tell of the lists that look different to somebody now."""
        policy = self.guard.policy
        people = onlookers([*policy.rules, *new])
        listed = {name: [row.id for kind in kinds for row in self._listed(kind)] for name, kinds in _LISTS.items()}
        before = {name: hidden(policy, people, ids) for name, ids in listed.items()}
        policy.replace(new)
        for name, ids in listed.items():
            if hidden(policy, people, ids) != before[name]:
                self.engine.broadcast.list_changed(name)

    def _listed(self, kind: Kind) -> Iterator[Capability]:
        """What clients find in a list, where nothing is kept from them."""
        only = self.engine.settings.only_tools if kind is Kind.TOOL else None
        return (row for row in self.registry[kind] if not row.hidden and (only is None or row.id in only))

    async def start(self) -> None:
        """Begin to serve and to watch the files."""
        await super().start()
        if self._watchers:
            return
        self._hangups, self._stop_watching = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        self._watchers = [loop.create_task(self._watch_files()), loop.create_task(self._watch_hangups())]
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGHUP, self._hangups.set)

    async def _open_configured(self) -> None:
        """Have the skills of the directory, and ask other servers for their tools."""
        if self._watchers:
            return
        if "_live_skills" in self.__dict__:
            await self._live_skills.start()
        if self.imports is not None:
            await self.imports.start()

    async def stop(self) -> None:
        """Stop watching, then everything else."""
        await self._stop_refreshing()
        if self._watchers:
            self._stop_watching.set()
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._watchers = []
        if self.imports is not None:
            await self.imports.stop()
        if "_live_skills" in self.__dict__:
            await self._live_skills.close()
        await super().stop()

    async def _watch_files(self) -> None:
        bursts = config.changes(lambda: self.loaded.watched, self._stop_watching)
        await self._reload_if_changed()  # since they were read at the start
        async for _ in bursts:
            await self._reload_if_changed()

    async def _reload_if_changed(self) -> None:
        # A change may have been read already, by a reload that waited until the files were complete.
        if not await asyncio.to_thread(self.loaded.snapshot.is_current):
            await self.reload()

    async def _watch_hangups(self) -> None:
        while True:
            await self._hangups.wait()
            self._hangups.clear()
            await self.reload()


def _worker_options(given: config.Workers | None) -> Mapping[str, Any] | Literal[False]:
    """How the port for workers is set up, where there is one."""
    if given is None:
        return False
    return {
        "host": given.host,
        "port": given.port,
        "token": given.token,
        "state_timeout": given.state_timeout_ms / 1000,
        "registry": given.registry,
        "share": given.share,
        "observe": given.observe,
        "allow_private": given.allow_private,
        "secrets": tuple(given.secrets),
    }


def authentication(auth: config.Auth | None) -> Authentication | None:
    """Who may use the hub, as the section `auth` says."""
    if auth is None:
        return None
    from waypost.policy import section

    return section.authentication(auth)
