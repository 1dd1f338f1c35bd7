"""The component for executable skills: what the section `skills` asks for, replaced as a whole by a reload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakSet

from waypost.capabilities.capability import Capability
from waypost.capabilities.registry import Registry
from waypost.documents.folders.folders import Folders, Seen, SkillFolders
from waypost.execution.pipeline import Pipeline
from waypost.protocol.profile import SkillSource
from waypost.runtime.component import Change, Component
from waypost.settings import Settings, SkillLimits
from waypost.settings import Skills as SkillsSettings
from waypost.skills.core import CORE
from waypost.skills.core.inputs import CoreSettings
from waypost.skills.files import Limits
from waypost.skills.processes import Calls
from waypost.skills.skill_set import SkillSet
from waypost.skills.tools import ReadResource, core_tools
from waypost.stores.store import Store
from waypost.upstreams.egress import Egress

if TYPE_CHECKING:
    from waypost.runtime.core import Core


_TIMEOUT: Final = 30.0


class SkillSection:
    """The core skills that are wanted, and the skills of a directory."""

    def __init__(
        self,
        settings: SkillsSettings,
        registry: Registry,
        store: Store,
        data: Path,
        read_resource: ReadResource,
        exchanged: Callable[[str], None],
    ) -> None:
        timeout = None if settings.timeout_ms is None else settings.timeout_ms / 1000
        self._egress = Egress(settings.allow_private)
        self._inside = Egress(allow_private=True)
        surroundings = CoreSettings(
            egress=self._egress,
            inside=self._inside,
            searxng=settings.searxng,
            shell_allowed=tuple(tuple(words) for words in settings.shell),
            data_directory=data,
            timeout=timeout or _TIMEOUT,
        )
        self.calls = Calls()
        self.core = core_tools(settings.core, surroundings, timeout, self.calls, sanitize=settings.sanitize)
        self.dynamic: SkillSet | None = None
        if settings.dynamic is not None:
            self.dynamic = SkillSet(
                registry,
                store,
                Path(settings.dynamic),
                permissions=settings.permissions,
                core=[skill.name for skill in CORE],
                limits=_limits(settings.limits),
                timeout=timeout,
                autoload=settings.autoload,
                sanitize=settings.sanitize,
                read_resource=read_resource,
                calls=self.calls,
                exchanged=exchanged,
            )
        self._watches = settings.watch
        self._watching: asyncio.Task[None] | None = None
        self._stop_watching = asyncio.Event()

    @property
    def rows(self) -> list[Capability]:
        """The tools of all skills that can be called."""
        return [*self.core, *(() if self.dynamic is None else self.dynamic.rows)]

    async def start(self) -> None:
        """Serve the skills of the directory, and look after its files if that is wanted."""
        if self.dynamic is not None:
            await self.dynamic.start()
            self.watch()

    async def prepare(self, before: SkillSection | None) -> None:
        """Have everything ready that is served once it has taken the place of another section."""
        if self.dynamic is not None:
            leaving = () if before is None else [row.id for row in before.rows]
            await self.dynamic.prepare(None if before is None else before.dynamic, leaving)

    def watch(self) -> None:
        """Look after the files of the directory, if that is wanted."""
        if self.dynamic is not None and self._watches and self._watching is None:
            self._stop_watching = asyncio.Event()
            self._watching = asyncio.get_running_loop().create_task(self.dynamic.watch(self._stop_watching))

    def retire(self) -> None:
        """Serve nothing more; calls that run end on what they began on, and `close` is for when they have."""
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
        await self._inside.close()


def _limits(settings: SkillLimits) -> Limits:
    return Limits(
        processes=settings.processes,
        waiting=settings.waiting,
        idle=settings.idle_ms / 1000,
        start=settings.start_ms / 1000,
        cpu=settings.cpu_seconds,
        memory=settings.memory_bytes,
        files=settings.files,
        file_size=settings.file_bytes,
        result=settings.result_bytes,
        output=settings.output_bytes,
    )


class Draft(NamedTuple):
    """A section that is ready to be served."""

    settings: SkillsSettings | None
    section: SkillSection | None
    seen: Seen | None
    """The folders, where they are others."""


class Skills(Component):
    """Executable skills as the section `skills` asks for them, and the skill folders that it names."""

    name = "skills"
    sections = ("skills",)

    def __init__(
        self,
        registry: Registry,
        pipeline: Pipeline,
        store: Store,
        data_dir: Path,
        reset_breaker: Callable[[str], None],
        folders: SkillFolders,
        serve_skills: Callable[[SkillSource | None], None],
    ) -> None:
        self._registry = registry
        self._pipeline = pipeline
        self._store = store
        self._data_dir = data_dir
        self._reset_breaker = reset_breaker
        self._folders = folders
        self._serve_skills = serve_skills
        self._settings: SkillsSettings | None = None
        self._is_serving = False
        self._retired: WeakSet[SkillSection] = WeakSet()
        """Those on which calls may run, which hold them."""
        self._ending: set[asyncio.Task[None]] = set()
        self.section: SkillSection | None = None

    def _make(self, settings: SkillsSettings) -> SkillSection:
        return SkillSection(
            settings,
            self._registry,
            self._store,
            self._data_dir,
            read_resource=lambda uri, ctx: self._pipeline.read(uri, ctx.caller),
            exchanged=self._reset_breaker,
        )

    def begin(self, settings: SkillsSettings) -> None:
        """Go by the section that a hub has when it is declared."""
        self._settings, self.section = settings, self._make(settings)
        self._registry.add(self.section.core)
        if settings.folders:
            self._folders.add(*settings.folders)
            self._serve_skills(self._folders)
        if settings.prompts:
            self._folders.add_prompts(*settings.prompts)

    async def start(self, core: Core) -> None:
        """Serve the skills of the directory."""
        if self.section is not None and not self._is_serving:
            await self.section.start()
        self._is_serving = True

    async def stop(self) -> None:
        """End all processes and connections, of earlier sections too."""
        self._is_serving = False
        for section in (*self._retired, *(() if self.section is None else (self.section,))):
            await section.close()
        await asyncio.gather(*self._ending)

    async def refresh(self) -> None:
        """Follow what other replicas loaded and unloaded."""
        if self.section is not None and self.section.dynamic is not None:
            await self.section.dynamic.refresh()

    async def prepare(self, settings: Settings) -> Change | None:
        """Start the skills of another section beside those that are served."""
        draft = await self.draft(settings.skills)
        return None if draft is None else _Exchange(self, draft)

    async def draft(self, settings: SkillsSettings | None) -> Draft | None:
        """What another section comes to, all of it ready; nothing where it is the same. Nobody sees a difference yet.

        It has to be given to `commit` or `drop`: until then no skill of the directory is changed.
        """
        if settings == self._settings:
            return None
        old, new = _folders(self._settings), _folders(settings)
        seen = None if old == new else await self._folders.look(old, new)
        draft = Draft(settings, None if settings is None else self._make(settings), seen)
        if self.section is not None and self.section.dynamic is not None:
            await self.section.dynamic.hold()
        try:
            if draft.section is not None and self._is_serving:
                await draft.section.prepare(self.section)
        except BaseException:
            await self.drop(draft)
            raise
        return draft

    def leaving(self, draft: Draft) -> list[Capability]:
        """What makes room for a draft."""
        rows = [] if self.section is None else self.section.rows
        return rows if draft.seen is None else [*rows, *self._folders.leaving(draft.seen)]

    def commit(self, draft: Draft) -> Draft:
        """Go by a draft, whose tools are in the registry; the section before is given back and still whole."""
        before = Draft(self._settings, self.section, None if draft.seen is None else self._folders.seen)
        self._settings, self.section = draft.settings, draft.section
        if draft.section is not None and draft.section.dynamic is not None:
            draft.section.dynamic.begin()
        self._show_folders(draft)
        return before

    async def undo(self, draft: Draft, before: Draft) -> None:
        """Go back from a draft that was committed."""
        self._settings, self.section = before.settings, before.section
        self._show_folders(before)
        await self.drop(draft)

    def _show_folders(self, draft: Draft) -> None:
        if draft.seen is not None:
            self._folders.exchange(draft.seen)
            self._serve_skills(self._folders if self._folders.has_skills else None)

    async def finish(self, before: Draft) -> None:
        """Retire the section that was replaced, and follow the files of the new one."""
        old = before.section
        if old is not None:
            old.retire()
            if self._is_serving:
                self._end_later(old)
        if self._is_serving:
            if self.section is not None:
                self.section.watch()
            if before.seen is not None:
                await self._folders.follow()

    async def drop(self, draft: Draft) -> None:
        """Leave everything as it is."""
        if self.section is not None and self.section.dynamic is not None:
            self.section.dynamic.let_go()
        if draft.section is not None:
            await draft.section.close()

    def _end_later(self, section: SkillSection) -> None:
        """End what a section has open once no call runs any more that began on it."""

        def end() -> None:
            task = asyncio.get_running_loop().create_task(section.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

        self._retired.add(section)
        section.calls.when_over(end)


class _Exchange(Change):
    """One section in place of another."""

    def __init__(self, skills: Skills, draft: Draft) -> None:
        self._skills = skills
        self._draft = draft
        self._before: Draft | None = None

    @property
    def leaving(self) -> Sequence[Capability]:  # type: ignore[override]  # looked at once, when everything is ready
        return self._skills.leaving(self._draft)

    @property
    def arriving(self) -> Sequence[Capability]:  # type: ignore[override]
        return [] if self._draft.section is None else self._draft.section.rows

    def commit(self) -> None:
        self._before = self._skills.commit(self._draft)

    async def rollback(self) -> None:
        if self._before is None:
            await self._skills.drop(self._draft)
        else:
            await self._skills.undo(self._draft, self._before)

    async def finish(self) -> None:
        if self._before is not None:
            await self._skills.finish(self._before)


def _folders(settings: SkillsSettings | None) -> Folders:
    return ([], []) if settings is None else (settings.folders, settings.prompts)
