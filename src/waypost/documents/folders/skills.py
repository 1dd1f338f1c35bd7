"""Skills in folders: read, served as resources, and shown as Markdown documents."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from waypost.capabilities.capability import Capability, Kind, McpFeatures
from waypost.capabilities.context import Context
from waypost.capabilities.options import Metadata
from waypost.documents.content import find_title
from waypost.documents.folders.files import (
    LARGEST,
    MIB,
    File,
    Found,
    Look,
    Place,
    Problem,
    Unfit,
    is_markdown,
    problem,
    read,
    size_in,
    stem,
    walk,
)
from waypost.documents.folders.front_matter import check_skill, split
from waypost.documents.uris import check_body, check_new_id, skill_uri
from waypost.errors import InvocationFailed
from waypost.wire.definitions import DIRECTORY, ResourceDefinition, SkillEntry, SkillFile

SKILL_FILE: Final = "SKILL.md"
SCHEME: Final = "skill://"
MOST_FILES: Final = 512
"""How many files a skill may have."""
LARGEST_FOLDER: Final = 256 * MIB
"""How many bytes all skills of a folder may have together, as they are kept in memory."""
_PASSES: Final = 3
_TYPES: Final = mimetypes.MimeTypes()  # without the files of this machine, so that it is the same everywhere
_TYPES.add_type("text/markdown", ".md")
_NO_TEXT: Final = ("image/", "audio/", "video/", "font/", "application/pdf")


class Skill(msgspec.Struct, frozen=True, eq=False):
    """One skill as it was read, its files by where they lie in its directory."""

    folder: Path
    home: Path
    """Where it lies in the folder."""
    path: Place
    """The steps of its URI."""
    frontmatter: dict[str, Any]
    body: str
    files: dict[Place, File]
    directories: frozenset[Place]

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self.frontmatter["name"])

    @property
    def description(self) -> str:
        """What it is for."""
        return str(self.frontmatter["description"])

    @property
    def uri(self) -> str:
        """The URI of its SKILL.md."""
        return uri_of((*self.path, SKILL_FILE))

    def holds(self, files: Mapping[Place, File]) -> bool:
        """Whether its files are these."""
        return files.keys() == self.files.keys() and all(files[one].data is self.files[one].data for one in files)

    def entry(self) -> SkillEntry:
        """As clients see it."""
        listed = [
            SkillFile(uri_of((*self.path, *place)), f"sha256:{file.digest}", len(file.data))
            for place, file in sorted(self.files.items())
        ]
        return SkillEntry(self.uri, self.frontmatter, listed)


class Snapshot(Look, frozen=True, eq=False, kw_only=True):
    """A folder of skills as it was read."""

    skills: dict[Place, Skill] = msgspec.field(default_factory=dict)
    """By the place of their directory in the folder."""


def uri_of(path: Place) -> str:
    """The URI of a file or directory of a skill."""
    return SCHEME + "/".join(quote(step, safe="") for step in path)


def mime_type(name: str, data: bytes) -> str:
    """What kind of data a file holds, by its name, else by whether it is text."""
    guessed, encoding = _TYPES.guess_type(f"file:/{quote(name)}")
    if guessed is not None and encoding is None:
        return guessed
    return "application/octet-stream" if text_of(data) is None else "text/plain"


def text_of(data: bytes, kind: str = "") -> str | None:
    """The text that a file holds, if it is text; encoded again it is the same bytes."""
    if b"\0" in data or (kind.startswith(_NO_TEXT) and not kind.endswith("+xml")):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def snapshot(folder: Path, before: Snapshot | None = None) -> Snapshot:
    """A folder as it is now, read again until two looks at it agree."""
    current = Snapshot() if before is None else before
    for _ in range(_PASSES):
        again = _look(folder, current)
        if again.is_like(current):
            return again
        current = again
    return current


def _look(folder: Path, before: Snapshot) -> Snapshot:
    found = walk(folder)
    problems = list(found.problems)
    members = _members(found)
    is_skill = () in members
    wanted: set[Place] = set()
    total = 0
    for home, places in list(members.items()):
        together = total + _size((place for place in places if place not in wanted), found)
        reason = _excess(places, together, found)
        if reason is None:
            wanted.update(places)
            total = together
        else:
            del members[home]
            problems.append(problem(folder.joinpath(*home), reason))
    files = read(folder, found, sorted(wanted), before.files, problems)
    skills = {}
    for home, places in members.items():
        steps = len(home)
        held = {place[steps:]: files[place] for place in places if place in files}
        inside = frozenset(one[steps:] for one in found.directories if one[:steps] == home)
        path = (folder.name, *home) if is_skill else home
        try:
            skills[home] = _skill(folder, home, path, held, inside, before.skills.get(home))
        except Unfit as unfit:
            problems.append(problem(folder.joinpath(*home, SKILL_FILE), unfit.message))
    directories = frozenset(found.directories)
    return Snapshot(skills=skills, files=files, directories=directories, problems=tuple(sorted(problems)))


def _members(found: Found) -> dict[Place, list[Place]]:
    """The files of each skill, by its directory; those of a nested skill belong to the outer one too."""
    homes = {place[:-1]: list[Place]() for place in found.files if place[-1] == SKILL_FILE}
    for place in found.files:
        for depth in range(len(place)):
            if place[:depth] in homes:
                homes[place[:depth]].append(place)
    return dict(sorted(homes.items()))


def _excess(places: list[Place], together: int, found: Found) -> str | None:
    """Which limit a skill exceeds, by itself or together with those before it, if any."""
    if len(places) > MOST_FILES:
        return f"holds {len(places)} files, and a skill may have {MOST_FILES}"
    if _size(places, found) > LARGEST:
        return f"is larger than {LARGEST // MIB} MiB, the most a skill may have"
    if together > LARGEST_FOLDER:
        return f"is left out, as the skills of a folder may have {LARGEST_FOLDER // MIB} MiB together"
    return None


def _size(places: Iterable[Place], found: Found) -> int:
    return sum(size_in(found.files[place]) for place in places)


def _skill(
    folder: Path,
    home: Place,
    path: Place,
    files: dict[Place, File],
    directories: frozenset[Place],
    before: Skill | None,
) -> Skill:
    """A skill, if its files are there and its front matter is right; one that has not changed is what it was."""
    main = files.get((SKILL_FILE,))
    if main is None:
        raise Unfit("was gone when it was to be read")
    if before is not None and before.path == path and before.directories == directories and before.holds(files):
        return before
    fields, body = split(main.data)
    check_skill(fields, path[-1])
    return Skill(folder, folder.joinpath(*home), path, fields, body, files, directories)


class ServedSkills(msgspec.Struct, eq=False):
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


def arrange_skills(
    skills: Iterable[Skill], before: ServedSkills, is_taken: Callable[[str], bool], problems: list[Problem]
) -> ServedSkills:
    """The skills that are not in each other's way; a row whose file has not changed is the one of before."""
    shelf = ServedSkills()
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


def _hindrance(skill: Skill, shelf: ServedSkills, is_taken: Callable[[str], bool]) -> str | None:
    """Why a skill cannot be served beside the others, if it cannot."""
    for other in shelf.skills.values():
        shorter = min(len(skill.path), len(other.path))
        if other.folder != skill.folder and other.path[:shorter] == skill.path[:shorter]:
            return f"which is in the way of {other.uri} in {other.folder}"
    if any(is_taken(uri_of((*skill.path, *place))) for place in skill.files):
        return "where there is another resource already"
    return None


def _put(skill: Skill, shelf: ServedSkills) -> None:
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


def _put_directory(path: Place, shelf: ServedSkills) -> None:
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
        owner="skills",
        metadata=Metadata(hidden=hidden),
        mcp=McpFeatures(subscribable=True),
    )


class Document(msgspec.Struct, frozen=True):
    """A Markdown text under an id such as `pdf` or `pdf/references/forms`."""

    id: str
    title: str
    description: str
    body: str
    owner: str
    """Where it comes from: `folder:` and the path of its folder."""
    uri: str
    """That of its file."""


def documents(skills: Iterable[Skill], problems: list[Problem]) -> list[Document]:
    """The Markdown files of skills, each under an id of its own; one that cannot have any is among the problems."""
    found: dict[str, Document] = {}
    for skill in skills:
        for place in sorted(filter(_is_one, skill.files), key=lambda place: (place != (SKILL_FILE,), place)):
            document_id = _id(skill, place)
            try:
                made = _document(skill, place, document_id)
                other = found.setdefault(document_id, made)
                if other.uri != made.uri:
                    raise Unfit(f"{other.uri} is read there")
            except (Unfit, InvocationFailed) as error:
                reason = f"is not read at {skill_uri(document_id)}: {error.message}"
                problems.append(problem(skill.home.joinpath(*place), reason))
    return list(found.values())


def _is_one(place: Place) -> bool:
    """Whether a file may be a document; the SKILL.md of a nested skill is left to that skill."""
    return place == (SKILL_FILE,) or (place[-1] != SKILL_FILE and is_markdown(place[-1]))


def _id(skill: Skill, place: Place) -> str:
    inner = () if place == (SKILL_FILE,) else (*place[:-1], stem(place[-1]))
    return "/".join((*skill.path, *inner)).lower()


def _document(skill: Skill, place: Place, document_id: str) -> Document:
    """A file as a document, if it can be one."""
    check_new_id(document_id)
    if place == (SKILL_FILE,):
        name, description, body = skill.name, skill.description, skill.body
    else:
        name, description, body = stem(place[-1]), "", _body(skill.files[place].data)
    check_body(body)
    owner, uri = f"folder:{skill.folder}", uri_of((*skill.path, *place))
    return Document(document_id, find_title(body) or name, description, body, owner, uri)


def _body(data: bytes) -> str:
    """A Markdown file without its front matter, if it has any."""
    with suppress(Unfit):
        return split(data).body
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unfit("it is not UTF-8 text") from None
