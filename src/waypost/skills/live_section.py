"""The section `skills` of a hub, and its exchange for another one while the hub serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from waypost.capabilities.capability import Capability
from waypost.capabilities.registry import Registry
from waypost.execution.pipeline import Pipeline
from waypost.protocol.profile import SkillSource
from waypost.runtime.component import Change, Component
from waypost.settings import Settings, Skills
from waypost.skills.folders.folders import Folders, Seen, SkillFolders
from waypost.skills.section import SkillSection
from waypost.stores.store import Store

if TYPE_CHECKING:
    from waypost.runtime.core import Core


class Draft(NamedTuple):
    """A section that is ready to be served."""

    settings: Skills | None
    section: SkillSection | None
    seen: Seen | None
    """The folders, where they are others."""


class LiveSection(Component):
    """Executable skills as the section `skills` asks for them, and the skill folders that it names."""

    name = "skills"

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
        self._settings: Skills | None = None
        self._is_serving = False
        self._retired: WeakSet[SkillSection] = WeakSet()
        """Those on which calls may run, which hold them."""
        self._ending: set[asyncio.Task[None]] = set()
        self.section: SkillSection | None = None

    def _make(self, settings: Skills) -> SkillSection:
        return SkillSection(
            settings,
            self._registry,
            self._store,
            self._data_dir,
            read_resource=lambda uri, ctx: self._pipeline.read(uri, ctx.caller),
            exchanged=self._reset_breaker,
        )

    def begin(self, settings: Skills) -> None:
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

    async def draft(self, settings: Skills | None) -> Draft | None:
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

    def __init__(self, skills: LiveSection, draft: Draft) -> None:
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


def _folders(settings: Skills | None) -> Folders:
    return ([], []) if settings is None else (settings.folders, settings.prompts)
