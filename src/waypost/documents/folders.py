"""The component for folders of skills and prompts: read, served, and read again when something changes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.prompts import prompt_from_template
from waypost.capabilities.registry import Registry
from waypost.config.findings import Finding, printable
from waypost.config.nodes import Node
from waypost.config.rules import check_prompts
from waypost.documents.folder_files import (
    FolderContents,
    Place,
    Problem,
    Unfit,
    check_description,
    check_name,
    is_markdown,
    list_folder,
    problem,
    read_files,
    split,
    stem,
    to_absolute,
    watch_directories,
)
from waypost.documents.folder_skills import (
    ServedSkills,
    SkillFolder,
    arrange_skills,
    list_documents,
    read_skill_folder,
)
from waypost.documents.records import SourceDocument
from waypost.documents.uris import skill_uri
from waypost.errors import DefinitionError, WaypostError
from waypost.runtime.component import Component
from waypost.settings import PromptArgument
from waypost.wire.definitions import ResourceDefinition, SkillEntry

if TYPE_CHECKING:
    from waypost.runtime.core import Core


MAX_PROMPTS: Final = 512
MAX_PROMPT_BYTES: Final = 262_144


class _Argument(PromptArgument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An argument without unknown fields."""


class _Fields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    description: str
    title: str | None = None
    arguments: list[_Argument] = []


class PromptFolder(FolderContents, frozen=True, eq=False, kw_only=True):
    """A folder of prompts as it was read."""

    capabilities: dict[Place, Capability] = msgspec.field(default_factory=dict)


def read_prompt_folder(folder: Path, before: PromptFolder | None = None) -> PromptFolder:
    """Read the prompts of a folder; one whose file is unchanged is the same object as before."""
    before = PromptFolder() if before is None else before
    found = list_folder(folder)
    problems = list(found.problems)
    wanted = sorted(place for place in found.files if is_markdown(place[-1]))
    if len(wanted) > MAX_PROMPTS:
        problems.append(problem(folder, f"holds more than {MAX_PROMPTS} prompts; the rest is not served"))
    files = read_files(folder, found, wanted[:MAX_PROMPTS], before.files, problems)
    made: dict[Place, Capability] = {}
    for place, file in files.items():
        known = before.files.get(place)
        try:
            if known is not None and known.data is file.data and place in before.capabilities:
                made[place] = before.capabilities[place]
            else:
                made[place] = msgspec.structs.replace(
                    _build_prompt(stem(place[-1]), file.data), owner=f"folder:{folder}"
                )
        except Unfit as unfit:
            problems.append(problem(folder.joinpath(*place), unfit.message))
    directories = frozenset(found.directories)
    return PromptFolder(capabilities=made, files=files, directories=directories, problems=tuple(sorted(problems)))


def merge_prompts(
    folders: Mapping[Path, PromptFolder], is_taken: Callable[[str], bool], problems: list[Problem]
) -> dict[str, Capability]:
    """Return the prompts of folders by name; one whose name is taken is a problem."""
    found: dict[str, Capability] = {}
    for folder, contents in folders.items():
        for place, row in contents.capabilities.items():
            if row.id in found or is_taken(row.id):
                problems.append(problem(folder.joinpath(*place), f"is a second prompt `{row.id}`; rename one"))
            else:
                found[row.id] = row
    return found


def _build_prompt(name: str, data: bytes) -> Capability:
    """Return the prompt in a file."""
    if len(data) > MAX_PROMPT_BYTES:
        raise Unfit(f"is larger than {MAX_PROMPT_BYTES // 1024} KiB, the most a prompt may have")
    fields, body = split(data)
    check_name(fields, name)
    check_description(fields)
    given = _convert(fields)
    _check_template(given, body)
    try:
        return prompt_from_template(
            given.name,
            body,
            title=given.title,
            description=given.description,
            arguments=[(one.name, one.description, one.required) for one in given.arguments],
        )
    except DefinitionError as error:
        raise Unfit(f"cannot be a prompt: {error.message}") from None


def _convert(fields: dict[str, Any]) -> _Fields:
    try:
        return msgspec.convert(fields, _Fields)
    except msgspec.ValidationError as error:
        raise Unfit(f"has a front matter that does not fit a prompt: {str(error).rstrip('.')}") from None


def _check_template(given: _Fields, body: str) -> None:
    """Refuse a template as the section `prompts` of a configuration does."""
    arguments = [{"name": one.name} for one in given.arguments]
    findings: list[Finding] = []
    check_prompts(_node({"prompts": {given.name: {"template": body, "arguments": arguments}}}), findings)
    for finding in findings:
        # A variable that is not an argument is only a warning in a configuration; here it is refused too.
        if finding.severity == "error" or finding.code == "CFG051":
            raise Unfit(f"is not right: {finding.message}")


def _node(value: Any) -> Node:
    if isinstance(value, Mapping):
        return Node({key: _node(child) for key, child in value.items()}, "", 1)
    return Node([_node(child) for child in value] if isinstance(value, list) else value, "", 1)


_log: Final = logging.getLogger(__name__)
_MAX_LOGGED_PROBLEMS: Final = 100

T = TypeVar("T")
FolderPaths = tuple[Iterable[str], Iterable[str]]
"""The paths of folders of skills, and of folders of prompts."""


class FolderSnapshots(NamedTuple):
    """All folders as they were last read."""

    skills: dict[Path, SkillFolder]
    prompts: dict[Path, PromptFolder]

    def all(self) -> list[FolderContents]:
        """Return the contents of all folders."""
        return [*self.skills.values(), *self.prompts.values()]

    def equals(self, other: FolderSnapshots) -> bool:
        """Return whether the same folders have the same contents."""
        return all(new.equals(old) for new, old in zip(self.all(), other.all(), strict=True))


class _Arranged(NamedTuple):
    """What is served of the folders."""

    seen: FolderSnapshots
    served: ServedSkills
    prompts: dict[str, Capability]
    problems: tuple[Problem, ...]


class SkillFolders(Component):
    """Serves the skills and prompts of folders; every reading with news is one change of the registry."""

    name = "folders"

    def __init__(
        self,
        registry: Registry,
        updated: Callable[[str], None],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._unserved: tuple[Problem, ...] = ()
        self._unread: tuple[Problem, ...] = ()
        """Problems of files that are served but are not documents; known once documents are listed."""
        self._registry = registry
        self._updated = updated
        self._changed = changed
        self.snapshots = FolderSnapshots({}, {})
        """All folders as they were last read."""
        self._served = ServedSkills()
        self._prompts: dict[str, Capability] = {}
        self._documents: dict[str, SourceDocument] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The files that are not served, or are not documents, and why."""
        return tuple(sorted({*self._unserved, *self._unread}))

    def add(self, *folders: str | os.PathLike[str]) -> None:
        """Serve the skills in folders."""
        added = {to_absolute(folder): SkillFolder() for folder in folders}
        self._serve(self._arrange(_read_all(self.snapshots._replace(skills={**self.snapshots.skills, **added}))))

    def add_prompts(self, *folders: str | os.PathLike[str]) -> None:
        """Serve the prompts in folders."""
        added = {to_absolute(folder): PromptFolder() for folder in folders}
        self._serve(self._arrange(_read_all(self.snapshots._replace(prompts={**self.snapshots.prompts, **added}))))

    @property
    def rows(self) -> list[Capability]:
        """The rows of all served files and prompts."""
        return [*self._served.rows.values(), *self._prompts.values()]

    async def read(self, old: FolderPaths, new: FolderPaths) -> FolderSnapshots:
        """Read the folders with some replaced by others; what is served does not change."""
        wanted = FolderSnapshots(
            _replace_folders(self.snapshots.skills, old[0], new[0], SkillFolder()),
            _replace_folders(self.snapshots.prompts, old[1], new[1], PromptFolder()),
        )
        return await asyncio.to_thread(_read_all, wanted)

    def leaving(self, seen: FolderSnapshots) -> list[Capability]:
        """Return the rows that must leave the registry before `replace`."""
        skills = self._served.rows.values() if seen.skills.keys() != self.snapshots.skills.keys() else ()
        return [*skills, *(self._prompts.values() if seen.prompts.keys() != self.snapshots.prompts.keys() else ())]

    def replace(self, seen: FolderSnapshots) -> None:
        """Serve other folders, once the leaving rows are out of the registry."""
        # Rows of folders that are others have left the registry already; `_serve` must not remove them once more.
        before = self._served
        if seen.skills.keys() != self.snapshots.skills.keys():
            self._served = ServedSkills()
        if seen.prompts.keys() != self.snapshots.prompts.keys():
            self._prompts = {}
        self._serve(self._arrange(seen, before), before)

    async def follow(self) -> None:
        """Watch the current folders, and report the change to the component that shows their documents."""
        if self.snapshots.all():
            self.watch()
        else:
            await self.stop()
        await self._report_change()

    async def start(self, core: Core) -> None:
        """Watch the folders."""
        self.watch()

    def watch(self) -> None:
        """Start watching the folders, if there are any."""
        if self._watching is None and self.snapshots.all():
            # The event of an earlier watcher stays set.
            self._stop = asyncio.Event()
            self._watching = asyncio.get_running_loop().create_task(self._watch(self._stop))

    async def stop(self) -> None:
        """Stop watching; what was read is still served."""
        self._stop.set()
        if self._watching is not None:
            self._watching.cancel()
            # Unlike awaiting the task, this does not raise its cancellation.
            await asyncio.wait({self._watching})
            self._watching = None

    def entries(self) -> list[SkillEntry]:
        """Return every skill, sorted by URI."""
        return list(self._served.entries.values())

    def entry(self, uri: str) -> SkillEntry | None:
        """Return the skill whose SKILL.md has this URI."""
        return self._served.entries.get(uri)

    def children(self, uri: str) -> list[ResourceDefinition] | None:
        """Return the content of a directory of a skill, sorted by URI; None if there is no such directory."""
        held = self._served.directories.get(uri)
        return None if held is None else [held[one] for one in sorted(held)]

    def documents(self) -> Sequence[SourceDocument]:
        """Return the Markdown files of the skills, each under an id."""
        return tuple(self._by_uri().values())

    def document_uri(self, uri: str) -> str | None:
        """Return the URI of a file as a document, None if it is not one."""
        found = self._by_uri().get(uri)
        return None if found is None else skill_uri(found.id)

    def _by_uri(self) -> dict[str, SourceDocument]:
        if self._documents is None:
            problems: list[Problem] = []
            self._documents = {one.uri: one for one in list_documents(self._served.skills.values(), problems)}
            known, self._unread = self._unread, tuple(sorted(set(problems)))
            _log_new(self._unread, known)
        return self._documents

    async def _watch(self, stop: asyncio.Event) -> None:
        async for _ in watch_directories(self._directories, stop):
            before = self.snapshots
            seen = await asyncio.to_thread(_read_all, before)
            arranged = None if seen.equals(before) else await asyncio.to_thread(self._arrange, seen)
            if self.snapshots is not before:  # folders were added meanwhile; the next reading has them too
                continue
            if arranged is None:
                self.snapshots = seen
            else:
                self._serve(arranged)
                await self._report_change()

    async def _report_change(self) -> None:
        """Report a change to the component that shows the documents; the folders are watched even if that fails."""
        try:
            await self._changed()
        except WaypostError as error:
            _log.warning("a change in folders was not reported: %s", error.message)

    def _directories(self) -> frozenset[Path]:
        roots = (*self.snapshots.skills, *self.snapshots.prompts)
        return frozenset(
            root.joinpath(*place)
            for root, read in zip(roots, self.snapshots.all(), strict=True)
            for place in read.directories
        )

    def _arrange(self, seen: FolderSnapshots, before: ServedSkills | None = None) -> _Arranged:
        # Rows of these folders themselves are replaced, and conflict with nothing.
        def is_foreign(uri: str) -> bool:
            return uri in self._registry[Kind.RESOURCE] and uri not in self._served.rows

        def is_taken(prompt: str) -> bool:
            return self._registry.is_taken(Kind.PROMPT, prompt) and prompt not in self._prompts

        problems = [one for read in seen.all() for one in read.problems]
        skills = [skill for read in seen.skills.values() for skill in read.skills.values()]
        served = arrange_skills(skills, before or self._served, is_foreign, problems)
        written = merge_prompts(seen.prompts, is_taken, problems)
        return _Arranged(seen, served, written, tuple(sorted(set(problems))))

    def _serve(self, arranged: _Arranged, served: ServedSkills | None = None) -> None:
        """Replace what is served; `served` is what was served before, if its rows have left the registry already."""
        old = self.rows
        new = [*arranged.served.rows.values(), *arranged.prompts.values()]
        # Rows of unchanged files are the same objects, and stay: only real changes are announced.
        kept = {id(row) for row in old} & {id(row) for row in new}
        before = served or self._served
        self.snapshots, self._served, self._prompts = arranged.seen, arranged.served, arranged.prompts
        self._documents = None
        known, self._unserved = self._unserved, arranged.problems
        _log_new(self._unserved, known)
        self._registry.replace([row for row in old if id(row) not in kept], [row for row in new if id(row) not in kept])
        for uri in {**before.data, **self._served.data}:
            # An unchanged file keeps its bytes object.
            if self._served.data.get(uri) is not before.data.get(uri):
                self._updated(uri)


def _log_new(problems: Iterable[Problem], known: Iterable[Problem]) -> None:
    """Log problems that were not known before."""
    before = set(known)
    news = [one for one in problems if one not in before]
    for one in news[:_MAX_LOGGED_PROBLEMS]:
        _log.warning("%s", one)
    if len(news) > _MAX_LOGGED_PROBLEMS:
        _log.warning("%d more files and folders of skills are not served", len(news) - _MAX_LOGGED_PROBLEMS)


def _replace_folders(known: Mapping[Path, T], old: Iterable[str], new: Iterable[str], unread: T) -> dict[Path, T]:
    """Return folders with their last contents, some replaced by others."""
    gone = set(map(to_absolute, old))
    stay = {root: read for root, read in known.items() if root not in gone}
    return stay | {root: known.get(root, unread) for root in map(to_absolute, new)}


def _read_all(seen: FolderSnapshots) -> FolderSnapshots:
    """Read all folders; unchanged files are not read again."""
    return FolderSnapshots(
        {root: read_skill_folder(root, before) for root, before in seen.skills.items()},
        {root: read_prompt_folder(root, before) for root, before in seen.prompts.items()},
    )


Setting = tuple[str, int]
"""The setting `folders` or `prompts`, and the index in it."""


def problems(
    of_skills: Iterable[str], of_prompts: Iterable[str], *, as_documents: bool, taken: Container[str] = ()
) -> Iterator[tuple[Setting, Problem]]:
    """Yield what would not be served, or not be a document if documents are wanted, with the setting of its folder.

    Prompts whose names are `taken` are defined elsewhere.
    """
    named = list(map(to_absolute, of_skills))
    read = {folder: read_skill_folder(folder) for folder in named}
    shared: list[Problem] = []
    skills = [skill for one in read.values() for skill in one.skills.values()]
    served = arrange_skills(skills, ServedSkills(), lambda _: False, shared)
    if as_documents:
        list_documents(served.skills.values(), shared)
    yield from ((("folders", named.index(folder)), one) for folder, one in _list_problems(read, shared))
    named, shared = list(map(to_absolute, of_prompts)), []
    written = {folder: read_prompt_folder(folder) for folder in named}
    merge_prompts(written, lambda name: name in taken, shared)
    yield from ((("prompts", named.index(folder)), one) for folder, one in _list_problems(written, shared))


def _list_problems(
    contents: Mapping[Path, FolderContents], shared: Iterable[Problem]
) -> Iterator[tuple[Path, Problem]]:
    """Yield the problems of each folder, its own and those with other folders."""
    homes = {folder: printable(str(folder)) for folder in contents}
    found = {folder: set(one.problems) for folder, one in contents.items()}
    for one in shared:
        around = [
            folder for folder, home in homes.items() if one.path == home or one.path.startswith(f"{home}{os.sep}")
        ]
        # Where a folder is inside another one, the problem is of the inner one.
        found[max(around, key=lambda folder: len(homes[folder]))].add(one)
    for folder, those in found.items():
        yield from ((folder, one) for one in sorted(those))
