"""The component for executable skills: what the section `skills` declares, replaced as a whole by a reload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from waypost.capabilities.capability import Capability
from waypost.capabilities.registry import Registry
from waypost.documents.folders import FolderPaths, FolderSnapshots, SkillFolders
from waypost.execution.pipeline import Pipeline
from waypost.loops import start_task
from waypost.outbound.egress import Egress
from waypost.policy.audit import HUB
from waypost.policy.guard import PolicyGuard
from waypost.protocol.engine import SkillSource
from waypost.runtime.component import Change, Component
from waypost.settings import Server, Settings
from waypost.settings import Skills as SkillsSettings
from waypost.skills.core import CORE
from waypost.skills.core.inputs import CoreSettings
from waypost.skills.processes import Calls
from waypost.skills.skill_set import SkillSet
from waypost.skills.tools import build_core_tools
from waypost.stores import schema
from waypost.stores.store import Store

if TYPE_CHECKING:
    from waypost.runtime.core import Core

DEFAULT_TIMEOUT_S: Final = Server().tool_timeout_ms / 1000


class SkillSection:
    """The core skills and the skills of a directory that one section `skills` declares."""

    def __init__(
        self,
        settings: SkillsSettings,
        registry: Registry,
        store: Store,
        data_dir: Path,
        pipeline: Pipeline,
        guard: PolicyGuard,
    ) -> None:
        timeout = None if settings.timeout_ms is None else settings.timeout_ms / 1000
        self._egress = Egress(settings.allow_private)
        # Only for addresses of the configuration: a caller that could use it would reach the operator's network.
        self._operator_egress = Egress(allow_private=True)
        core_settings = CoreSettings(
            egress=self._egress,
            operator_egress=self._operator_egress,
            searxng=settings.searxng,
            shell_allowed=tuple(tuple(words) for words in settings.shell),
            data_directory=data_dir,
            timeout=timeout or DEFAULT_TIMEOUT_S,
        )
        self.calls = Calls()
        self.core = build_core_tools(settings.core, core_settings, timeout, self.calls, sanitize=settings.sanitize)
        self.dynamic: SkillSet | None = None
        if settings.dynamic is not None:
            self.dynamic = SkillSet(
                registry,
                store,
                Path(settings.dynamic),
                permissions=settings.permissions,
                core=[skill.name for skill in CORE],
                limits=settings.limits,
                timeout=timeout,
                autoload=settings.autoload,
                sanitize=settings.sanitize,
                read_resource=lambda uri, ctx: pipeline.read(uri, ctx.caller),
                calls=self.calls,
                temporary=data_dir / "skill-processes",
                on_replaced=guard.reset_breaker,
                on_followed=lambda info: guard.record_act("skill.loaded", HUB, "file", info.name, info.file),
            )
        self._watches = settings.watch
        self._watching: asyncio.Task[None] | None = None
        self._stop_watching = asyncio.Event()

    @property
    def rows(self) -> list[Capability]:
        """The tools of all served skills."""
        return [*self.core, *(() if self.dynamic is None else self.dynamic.rows)]

    async def start(self) -> None:
        """Serve the skills of the directory, and watch its files if the settings say so."""
        if self.dynamic is not None:
            await self.dynamic.start()
            self.watch()

    async def prepare(self, before: SkillSection | None) -> None:
        """Prepare everything that is served once this section has replaced another."""
        if self.dynamic is not None:
            leaving = () if before is None else [row.id for row in before.rows]
            await self.dynamic.prepare(None if before is None else before.dynamic, leaving)

    def watch(self) -> None:
        """Watch the files of the directory, if the settings say so."""
        if self.dynamic is not None and self._watches and self._watching is None:
            self._stop_watching = asyncio.Event()
            self._watching = asyncio.get_running_loop().create_task(self.dynamic.watch(self._stop_watching))

    def retire(self) -> None:
        """Serve nothing more; running calls finish on what they began on, and `close` must wait for them."""
        self._stop_watching.set()
        if self._watching is not None:
            self._watching.cancel()
        if self.dynamic is not None:
            self.dynamic.retire()

    async def close(self) -> None:
        """End all processes and connections."""
        self._stop_watching.set()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
            self._watching = None
        if self.dynamic is not None:
            await self.dynamic.close()
        await self._egress.close()
        await self._operator_egress.close()


class Skills(Component):
    """Executable skills as the section `skills` declares them, and the skill folders that it names."""

    name = "skills"
    reads = (schema.EXECUTABLES.name,)
    sections = ("skills",)

    def __init__(
        self,
        registry: Registry,
        pipeline: Pipeline,
        store: Store,
        data_dir: Path,
        guard: PolicyGuard,
        folders: SkillFolders,
        serve_skills: Callable[[SkillSource | None], None],
    ) -> None:
        self.registry = registry
        self.folders = folders
        self.section: SkillSection | None = None
        self.settings: SkillsSettings | None = None
        self.is_serving = False
        self._pipeline = pipeline
        self._store = store
        self._data_dir = data_dir
        self._guard = guard
        self._serve_skills = serve_skills
        self._retired: WeakSet[SkillSection] = WeakSet()
        """Replaced sections; the calls that still run on one keep it alive."""
        self._closing: set[asyncio.Task[None]] = set()

    def make_section(self, settings: SkillsSettings) -> SkillSection:
        """Return a section that is not started yet."""
        return SkillSection(settings, self.registry, self._store, self._data_dir, self._pipeline, self._guard)

    def begin(self, settings: SkillsSettings) -> None:
        """Use the section that a hub has when it is declared."""
        self.settings, self.section = settings, self.make_section(settings)
        self.registry.add(self.section.core)
        if settings.folders:
            self.folders.add(*settings.folders)
            self._serve_skills(self.folders)
        if settings.prompts:
            self.folders.add_prompts(*settings.prompts)

    async def start(self, core: Core) -> None:
        """Serve the skills of the directory."""
        if self.section is not None and not self.is_serving:
            await self.section.start()
        self.is_serving = True

    async def stop(self) -> None:
        """End all processes and connections, those of replaced sections too."""
        self.is_serving = False
        # Calls on replaced sections may still run; their processes end with the hub.
        for section in (*self._retired, *(() if self.section is None else (self.section,))):
            await section.close()
        await asyncio.gather(*self._closing)

    async def refresh(self) -> None:
        """Follow what other replicas loaded and unloaded."""
        if self.section is not None and self.section.dynamic is not None:
            await self.section.dynamic.refresh()

    async def prepare(self, settings: Settings) -> Change | None:
        """Start the skills of another section beside those that are served.

        Until the change is finished or rolled back, no skill of the directory changes.
        """
        wanted = settings.skills
        if wanted == self.settings:
            return None
        old, new = _list_folders(self.settings), _list_folders(wanted)
        snapshots = None if old == new else await self.folders.read(old, new)
        change = _SectionChange(self, wanted, snapshots)
        # A skill that is loaded now would be in the old section and not in the new one.
        if self.section is not None and self.section.dynamic is not None:
            await self.section.dynamic.hold()
        try:
            if change.section is not None and self.is_serving:
                await change.section.prepare(self.section)
        except BaseException:
            await change.rollback()
            raise
        return change

    def show_folders(self, snapshots: FolderSnapshots | None) -> None:
        """Serve other folders, if they are others."""
        if snapshots is not None:
            self.folders.replace(snapshots)
            self._serve_skills(self.folders if self.folders.snapshots.skills else None)

    def close_after_calls(self, section: SkillSection) -> None:
        """Close a replaced section once no call runs that began on it."""

        self._retired.add(section)
        section.calls.when_idle(lambda: start_task(section.close(), self._closing))


class _SectionChange(Change):
    """A section that is ready to replace the one of the component."""

    def __init__(self, skills: Skills, settings: SkillsSettings | None, snapshots: FolderSnapshots | None) -> None:
        self.section = None if settings is None else skills.make_section(settings)
        self._skills = skills
        self._settings = settings
        self._snapshots = snapshots
        """The folders, if they are others."""
        self._before = (skills.settings, skills.section, skills.folders.snapshots)
        self._is_committed = False

    @property
    def leaving(self) -> Sequence[Capability]:  # type: ignore[override]  # read once, when everything is ready
        rows = [] if self._skills.section is None else self._skills.section.rows
        return rows if self._snapshots is None else [*rows, *self._skills.folders.leaving(self._snapshots)]

    @property
    def arriving(self) -> Sequence[Capability]:  # type: ignore[override]
        return [] if self.section is None else self.section.rows

    def commit(self) -> None:
        skills = self._skills
        # Once more: folders may have been read again since the change was prepared.
        self._before, self._is_committed = (skills.settings, skills.section, skills.folders.snapshots), True
        skills.settings, skills.section = self._settings, self.section
        if self.section is not None and self.section.dynamic is not None:
            self.section.dynamic.begin()
        skills.show_folders(self._snapshots)

    async def rollback(self) -> None:
        skills = self._skills
        if self._is_committed:
            skills.settings, skills.section, snapshots = self._before
            skills.show_folders(None if self._snapshots is None else snapshots)
        if skills.section is not None and skills.section.dynamic is not None:
            skills.section.dynamic.release()
        if self.section is not None:
            await self.section.close()

    async def finish(self) -> None:
        skills, old = self._skills, self._before[1]
        if old is not None:
            old.retire()
            if skills.is_serving:
                skills.close_after_calls(old)
        if skills.is_serving:
            if self.section is not None:
                self.section.watch()
            if self._snapshots is not None:
                await skills.folders.follow()


def _list_folders(settings: SkillsSettings | None) -> FolderPaths:
    return ([], []) if settings is None else (settings.folders, settings.prompts)
