"""The component for folders of skills and prompts: read, served, and read again when something changes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.registry import Registry
from waypost.config.findings import printable
from waypost.documents.folders.files import Look, Problem, absolute, stirrings
from waypost.documents.folders.prompts import Prompts, prompts, unambiguous
from waypost.documents.folders.skills import Document, ServedSkills, Snapshot, arrange_skills, documents, snapshot
from waypost.documents.uris import skill_uri
from waypost.errors import WaypostError
from waypost.runtime.component import Component
from waypost.wire.definitions import ResourceDefinition, SkillEntry

if TYPE_CHECKING:
    from waypost.runtime.core import Core


_log: Final = logging.getLogger(__name__)
_MOST_TOLD: Final = 100

T = TypeVar("T")
FolderPaths = tuple[Iterable[str], Iterable[str]]
"""Folders of skills, and of prompts."""


class FolderSnapshots(NamedTuple):
    """All folders as they were read."""

    skills: dict[Path, Snapshot]
    prompts: dict[Path, Prompts]

    def all(self) -> list[Look]:
        """One after the other."""
        return [*self.skills.values(), *self.prompts.values()]

    def is_like(self, other: FolderSnapshots) -> bool:
        """Whether nothing has changed from one to the other, which are the same folders."""
        return all(new.is_like(old) for new, old in zip(self.all(), other.all(), strict=True))


class _Made(NamedTuple):
    """What folders come to."""

    seen: FolderSnapshots
    shelf: ServedSkills
    prompts: dict[str, Capability]
    problems: tuple[Problem, ...]


class SkillFolders(Component):
    """Serves what lies in folders; every look at them that shows something new is one change of the registry."""

    name = "folders"

    def __init__(
        self,
        registry: Registry,
        updated: Callable[[str], None] = lambda _: None,
        changed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._unserved: tuple[Problem, ...] = ()
        self._unread: tuple[Problem, ...] = ()
        """What is served and is no document; known once somebody asks for those."""
        self._registry = registry
        self._updated = updated
        self._changed = changed
        self._seen = FolderSnapshots({}, {})
        self._shelf = ServedSkills()
        self._prompts: dict[str, Capability] = {}
        self._documents: dict[str, Document] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is not served, or no document, and why."""
        return tuple(sorted({*self._unserved, *self._unread}))

    def add(self, *folders: str | os.PathLike[str]) -> None:
        """Serve the skills in folders."""
        added = {absolute(folder): Snapshot() for folder in folders}
        self._take_over(self._made(_look(self._seen._replace(skills={**self._seen.skills, **added}))))

    def add_prompts(self, *folders: str | os.PathLike[str]) -> None:
        """Serve the prompts in folders."""
        added = {absolute(folder): Prompts() for folder in folders}
        self._take_over(self._made(_look(self._seen._replace(prompts={**self._seen.prompts, **added}))))

    @property
    def rows(self) -> list[Capability]:
        """Everything that is served."""
        return [*self._shelf.rows.values(), *self._prompts.values()]

    @property
    def snapshots(self) -> FolderSnapshots:
        """All folders as they were last read."""
        return self._seen

    @property
    def has_skills(self) -> bool:
        """Whether there are folders of skills, whatever is in them."""
        return bool(self._seen.skills)

    async def read(self, old: FolderPaths, new: FolderPaths) -> FolderSnapshots:
        """The folders as they are, some of them exchanged for others; what is served goes on being that."""
        wanted = FolderSnapshots(
            _exchanged(self._seen.skills, old[0], new[0], Snapshot()),
            _exchanged(self._seen.prompts, old[1], new[1], Prompts()),
        )
        return await asyncio.to_thread(_look, wanted)

    def leaving(self, seen: FolderSnapshots) -> list[Capability]:
        """What has to be out of the registry before `replace`, so that others can have its names."""
        skills = self._shelf.rows.values() if seen.skills.keys() != self._seen.skills.keys() else ()
        return [*skills, *(self._prompts.values() if seen.prompts.keys() != self._seen.prompts.keys() else ())]

    def replace(self, seen: FolderSnapshots) -> None:
        """Serve what was looked at, once what is leaving has left."""
        before = self._shelf
        if seen.skills.keys() != self._seen.skills.keys():
            self._shelf = ServedSkills()
        if seen.prompts.keys() != self._seen.prompts.keys():
            self._prompts = {}
        self._take_over(self._made(seen, before), before)

    async def follow(self) -> None:
        """Look after the folders that there are now, and have whoever shows their documents look at them again."""
        if self._seen.all():
            self.watch()
        else:
            await self.stop()
        await self._told()

    async def start(self, core: Core) -> None:
        """Watch the folders."""
        self.watch()

    def watch(self) -> None:
        """Begin to watch the folders, if there are any."""
        if self._watching is None and self._seen.all():
            self._stop = asyncio.Event()
            self._watching = asyncio.get_running_loop().create_task(self._watch(self._stop))

    async def stop(self) -> None:
        """Stop watching; what was read is still served."""
        self._stop.set()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
            self._watching = None

    def entries(self) -> list[SkillEntry]:
        """Every skill, in the order of the URIs."""
        return list(self._shelf.entries.values())

    def entry(self, uri: str) -> SkillEntry | None:
        """The skill whose SKILL.md has this URI."""
        return self._shelf.entries.get(uri)

    def children(self, uri: str) -> list[ResourceDefinition] | None:
        """What lies in a directory of a skill; nothing where there is no such directory."""
        return self._shelf.children(uri)

    def documents(self) -> Sequence[Document]:
        """The Markdown files of the skills, each under an id."""
        return tuple(self._by_uri().values())

    def read_at(self, uri: str) -> str | None:
        """Where a file is read as a document, if it is one."""
        found = self._by_uri().get(uri)
        return None if found is None else skill_uri(found.id)

    def _by_uri(self) -> dict[str, Document]:
        if self._documents is None:
            problems: list[Problem] = []
            self._documents = {one.uri: one for one in documents(self._shelf.skills.values(), problems)}
            known, self._unread = self._unread, tuple(sorted(set(problems)))
            _tell(self._unread, known)
        return self._documents

    async def _watch(self, stop: asyncio.Event) -> None:
        async for _ in stirrings(self._directories, stop):
            before = self._seen
            made = await asyncio.to_thread(self._look_again, before)
            if self._seen is not before:  # folders were added meanwhile; the next look is at them too
                continue
            if isinstance(made, _Made):
                self._take_over(made)
                await self._told()
            else:
                self._seen = made

    def _look_again(self, before: FolderSnapshots) -> _Made | FolderSnapshots:
        """The folders as they are now, and if that is news, what they come to; not done on the loop."""
        seen = _look(before)
        return seen if seen.is_like(before) else self._made(seen)

    async def _told(self) -> None:
        """Have whoever shows the documents look at them again; the folders are watched even if that fails."""
        if self._changed is not None:
            try:
                await self._changed()
            except WaypostError as error:
                _log.warning("a change in folders was not passed on: %s", error.message)

    def _directories(self) -> frozenset[Path]:
        roots = (*self._seen.skills, *self._seen.prompts)
        return frozenset(
            root.joinpath(*place)
            for root, read in zip(roots, self._seen.all(), strict=True)
            for place in read.directories
        )

    def _made(self, seen: FolderSnapshots, before: ServedSkills | None = None) -> _Made:
        problems = [one for read in seen.all() for one in read.problems]
        skills = [skill for read in seen.skills.values() for skill in read.skills.values()]
        shelf = arrange_skills(skills, before or self._shelf, self._is_foreign, problems)
        written = unambiguous(seen.prompts, self._is_taken, problems)
        return _Made(seen, shelf, written, tuple(sorted(set(problems))))

    def _take_over(self, made: _Made, served: ServedSkills | None = None) -> None:
        """Serve what was seen instead of what was seen before, or what was `served` if that is out already."""
        old = self.rows
        new = [*made.shelf.rows.values(), *made.prompts.values()]
        kept = {id(row) for row in old} & {id(row) for row in new}
        before = served or self._shelf
        self._seen, self._shelf, self._prompts = made.seen, made.shelf, made.prompts
        self._documents = None
        known, self._unserved = self._unserved, made.problems
        _tell(self._unserved, known)
        self._registry.replace([row for row in old if id(row) not in kept], [row for row in new if id(row) not in kept])
        self._tell_updates(before)

    def _tell_updates(self, before: ServedSkills) -> None:
        """Tell of every file that is not what it was."""
        for uri in {**before.data, **self._shelf.data}:
            if self._shelf.data.get(uri) is not before.data.get(uri):
                self._updated(uri)

    def _is_foreign(self, uri: str) -> bool:
        return uri in self._registry[Kind.RESOURCE] and uri not in self._shelf.rows

    def _is_taken(self, prompt: str) -> bool:
        return self._registry.is_taken(Kind.PROMPT, prompt) and prompt not in self._prompts


def _tell(problems: Iterable[Problem], known: Iterable[Problem]) -> None:
    """Log what was not known before."""
    before = set(known)
    news = [one for one in problems if one not in before]
    for one in news[:_MOST_TOLD]:
        _log.warning("%s", one)
    if len(news) > _MOST_TOLD:
        _log.warning("%d more files and folders of skills are not served", len(news) - _MOST_TOLD)


def _exchanged(known: Mapping[Path, T], old: Iterable[str], new: Iterable[str], unread: T) -> dict[Path, T]:
    """Folders with what is known of them, some of them exchanged for others."""
    gone = set(map(absolute, old))
    stay = {root: read for root, read in known.items() if root not in gone}
    return stay | {root: known.get(root, unread) for root in map(absolute, new)}


def _look(seen: FolderSnapshots) -> FolderSnapshots:
    """All folders as they are now; what has not changed is not read again."""
    return FolderSnapshots(
        {root: snapshot(root, before) for root, before in seen.skills.items()},
        {root: prompts(root, before) for root, before in seen.prompts.items()},
    )


Setting = tuple[str, int]
"""Which of the folders of skills or of prompts."""


def problems(
    of_skills: Iterable[str], of_prompts: Iterable[str], *, as_documents: bool, taken: Container[str] = ()
) -> Iterator[tuple[Setting, Problem]]:
    """What would not be served, or be no document where those are wanted, by the setting that names its folder.

    Prompts whose names are `taken` are defined elsewhere.
    """
    named = list(map(absolute, of_skills))
    read = {folder: snapshot(folder) for folder in named}
    shared: list[Problem] = []
    skills = [skill for one in read.values() for skill in one.skills.values()]
    shelf = arrange_skills(skills, ServedSkills(), lambda _: False, shared)
    if as_documents:
        documents(shelf.skills.values(), shared)
    yield from ((("folders", named.index(folder)), one) for folder, one in _told(read, shared))
    named, shared = list(map(absolute, of_prompts)), []
    written = {folder: prompts(folder) for folder in named}
    unambiguous(written, lambda name: name in taken, shared)
    yield from ((("prompts", named.index(folder)), one) for folder, one in _told(written, shared))


def _told(looks: Mapping[Path, Look], shared: Iterable[Problem]) -> Iterator[tuple[Path, Problem]]:
    """The problems of each folder, its own and those that it has with others."""
    homes = {folder: printable(str(folder)) for folder in looks}
    found = {folder: set(look.problems) for folder, look in looks.items()}
    for one in shared:
        around = [
            folder for folder, home in homes.items() if one.path == home or one.path.startswith(f"{home}{os.sep}")
        ]
        found[max(around, key=lambda folder: len(homes[folder]))].add(one)
    for folder, told in found.items():
        yield from ((folder, one) for one in sorted(told))
