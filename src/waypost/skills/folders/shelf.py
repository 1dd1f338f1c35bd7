"""What the skills of several folders come to: entries, directories, and rows of the registry, by URI."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Context
from waypost.skills.folders.problems import Problem, problem
from waypost.skills.folders.skills import SKILL_FILE, Skill, mime_type, text_of, uri_of
from waypost.skills.folders.walking import Place
from waypost.wire.definitions import DIRECTORY, ResourceDefinition, SkillEntry


class Shelf(msgspec.Struct, eq=False):
    """Everything that is served of the skills."""

    skills: dict[str, Skill] = msgspec.field(default_factory=dict)
    entries: dict[str, SkillEntry] = msgspec.field(default_factory=dict)
    """In the order of their URIs."""
    data: dict[str, bytes] = msgspec.field(default_factory=dict)
    rows: dict[str, Capability] = msgspec.field(default_factory=dict)
    directories: dict[str, dict[str, ResourceDefinition]] = msgspec.field(default_factory=dict)

    def children(self, uri: str) -> list[ResourceDefinition] | None:
        """What lies in a directory, in the order of the URIs."""
        held = self.directories.get(uri)
        return None if held is None else [held[one] for one in sorted(held)]


def shelved(skills: Iterable[Skill], before: Shelf, is_taken: Callable[[str], bool], problems: list[Problem]) -> Shelf:
    """The skills that are not in each other's way; a row whose file has not changed is the one of before."""
    shelf = Shelf()
    for skill in skills:
        reason = _hindrance(skill, shelf, is_taken)
        if reason is None:
            shelf.skills[skill.uri] = skill
            _put(skill, shelf)
        else:
            problems.append(problem(skill.folder, f"holds {skill.uri}, {reason}"))
    for uri in sorted(shelf.skills):
        shelf.entries[uri] = shelf.skills[uri].entry()
        shelf.rows[uri] = _main_row(shelf.skills[uri])
    for uri, row in shelf.rows.items():
        old = before.rows.get(uri)
        if old is not None and before.data[uri] is shelf.data[uri] and old.definition == row.definition:
            shelf.rows[uri] = old
    return shelf


def _hindrance(skill: Skill, shelf: Shelf, is_taken: Callable[[str], bool]) -> str | None:
    """Why a skill cannot be served beside the others, if it cannot."""
    for other in shelf.skills.values():
        shorter = min(len(skill.path), len(other.path))
        if other.folder != skill.folder and other.path[:shorter] == skill.path[:shorter]:
            return f"which is in the way of {other.uri} in {other.folder}"
    if any(is_taken(uri_of((*skill.path, *place))) for place in skill.files):
        return "where there is another resource already"
    return None


def _put(skill: Skill, shelf: Shelf) -> None:
    for place in skill.directories:
        _put_directory((*skill.path, *place), shelf)
    for place, file in skill.files.items():
        path = (*skill.path, *place)
        uri, kind = uri_of(path), mime_type(path[-1], file.data)
        shelf.data[uri] = file.data
        shelf.rows.setdefault(uri, _row(ResourceDefinition(uri, path[-1], mime_type=kind), file.data, hidden=True))
        shown = ResourceDefinition(uri, path[-1], mime_type=kind, size=len(file.data))
        if path[-1] == SKILL_FILE and len(path) == len(skill.path) + 1:
            shown = _described(skill)
            shelf.directories[uri_of(skill.path)][uri] = shown
        else:
            shelf.directories[uri_of(path[:-1])].setdefault(uri, shown)


def _put_directory(path: Place, shelf: Shelf) -> None:
    """Have a directory, and those it lies in."""
    for depth in range(1, len(path) + 1):
        uri = uri_of(path[:depth])
        shelf.directories.setdefault(uri, {})
        if depth > 1:
            parent = shelf.directories[uri_of(path[: depth - 1])]
            parent.setdefault(uri, ResourceDefinition(uri, path[depth - 1], mime_type=DIRECTORY))


def _described(skill: Skill) -> ResourceDefinition:
    """A SKILL.md as lists show it."""
    return ResourceDefinition(
        skill.uri,
        skill.name,
        title=skill.name,
        description=skill.description,
        mime_type=mime_type(SKILL_FILE, b""),
        size=len(skill.files[(SKILL_FILE,)].data),
    )


def _main_row(skill: Skill) -> Capability:
    return _row(_described(skill), skill.files[(SKILL_FILE,)].data, hidden=False)


def _row(definition: ResourceDefinition, data: bytes, *, hidden: bool) -> Capability:
    """A file as a resource: text where it is text, and always the bytes whose digest is told."""

    async def read(_arguments: object, _context: Context) -> str | bytes:
        text = text_of(data, definition.mime_type or "")
        return data if text is None else text

    return Capability(
        kind=Kind.RESOURCE,
        id=definition.uri,
        definition=definition,
        handler=read,
        is_async=True,
        hidden=hidden,
        subscribable=True,
        owner="skills",
    )
