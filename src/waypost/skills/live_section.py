"""The section `skills` of a hub, and its exchange for another one while the hub serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakSet

from waypost.capabilities.capability import Capability
from waypost.config import Skills
from waypost.skills.folders.folders import Folders, Seen, SkillFolders
from waypost.skills.section import SkillSection


class Draft(NamedTuple):
    """A section that is ready to be served."""

    settings: Skills | None
    section: SkillSection | None
    seen: Seen | None
    """The folders, where they are others."""


class LiveSection:
    """What the section asks for now; `is_serving` tells whether anybody can call it."""

    def __init__(
        self,
        make: Callable[[Skills], SkillSection],
        folders: Callable[[], SkillFolders],
        is_serving: Callable[[], bool],
    ) -> None:
        self._make = make
        self._folders = folders
        self._settings: Skills | None = None
        self._is_serving = is_serving
        self._retired: WeakSet[SkillSection] = WeakSet()
        """Those on which calls may run, which hold them."""
        self._ending: set[asyncio.Task[None]] = set()
        self.section: SkillSection | None = None

    def begin(self, settings: Skills) -> SkillSection:
        """Go by the section that a hub has when it is made."""
        self._settings, self.section = settings, self._make(settings)
        return self.section

    async def start(self) -> None:
        """Serve the skills of the directory."""
        if self.section is not None:
            await self.section.start()

    async def close(self) -> None:
        """End all processes and connections, of earlier sections too."""
        for section in (*self._retired, *(() if self.section is None else (self.section,))):
            await section.close()
        await asyncio.gather(*self._ending)

    async def draft(self, settings: Skills | None) -> Draft | None:
        """What another section comes to, all of it ready; nothing where it is the same. Nobody sees a difference yet.

        It has to be given to `commit` or `drop`: until then no skill of the directory is changed.
        """
        if settings == self._settings:
            return None
        old, new = _folders(self._settings), _folders(settings)
        seen = None if old == new else await self._folders().look(old, new)
        draft = Draft(settings, None if settings is None else self._make(settings), seen)
        if self.section is not None and self.section.dynamic is not None:
            await self.section.dynamic.hold()
        try:
            if draft.section is not None and self._is_serving():
                await draft.section.prepare(self.section)
        except BaseException:
            await self.drop(draft)
            raise
        return draft

    def leaving(self, draft: Draft) -> list[Capability]:
        """What makes room for a draft."""
        rows = [] if self.section is None else self.section.rows
        return rows if draft.seen is None else [*rows, *self._folders().leaving(draft.seen)]

    def commit(self, draft: Draft) -> None:
        """Go by a draft from now on: what is leaving has left the registry, and its tools are there."""
        old, self.section, self._settings = self.section, draft.section, draft.settings
        if old is not None:
            old.retire()
            if self._is_serving():
                self._end_later(old)
        if draft.section is not None and draft.section.dynamic is not None:
            draft.section.dynamic.begin()
            if self._is_serving():
                draft.section.watch()
        if draft.seen is not None:
            self._folders().exchange(draft.seen)

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


def _folders(settings: Skills | None) -> Folders:
    return ([], []) if settings is None else (settings.folders, settings.prompts)
