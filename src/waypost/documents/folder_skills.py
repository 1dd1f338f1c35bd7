"""Skills in folders: read, served as resources, and shown as Markdown documents."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from waypost.capabilities.capability import Capability, Metadata
from waypost.capabilities.context import Context
from waypost.documents.content import build_resource
from waypost.documents.folder_files import (
    MAX_FILE_BYTES,
    MIB,
    File,
    FolderContents,
    Listing,
    Place,
    Problem,
    Unfit,
    check_skill,
    is_markdown,
    list_folder,
    problem,
    read_files,
    split,
    stem,
)
from waypost.documents.records import SourceDocument
from waypost.documents.uris import check_body, check_new_id, skill_uri
from waypost.errors import InvocationFailed
from waypost.wire.definitions import DIRECTORY, ResourceDefinition, SkillEntry, SkillFile

SKILL_FILE: Final = "SKILL.md"
SCHEME: Final = "skill://"
MAX_SKILL_FILES: Final = 512
MAX_FOLDER_BYTES: Final = 256 * MIB
"""The limit of all skills of a folder together: they are kept in memory."""
_MAX_READS: Final = 3
_TYPES: Final = mimetypes.MimeTypes()  # without the files of this machine, so that it is the same everywhere
_TYPES.add_type("text/markdown", ".md")
_BINARY_TYPES: Final = ("image/", "audio/", "video/", "font/", "application/pdf")


class Skill(msgspec.Struct, frozen=True, eq=False):
    """A skill as it was read, with its files by their path in its directory."""

    folder: Path
    home: Path
    """Its directory."""
    path: Place
    """The steps of its URI."""
    frontmatter: dict[str, Any]
    body: str
    files: dict[Place, File]
    directories: frozenset[Place]

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.frontmatter["name"])

    @property
    def description(self) -> str:
        """Its description."""
        return str(self.frontmatter["description"])

    @property
    def uri(self) -> str:
        """The URI of its SKILL.md."""
        return uri_of((*self.path, SKILL_FILE))

    def holds(self, files: Mapping[Place, File]) -> bool:
        """Return whether its files are these."""
        return files.keys() == self.files.keys() and all(files[one].data is self.files[one].data for one in files)

    def entry(self) -> SkillEntry:
        """Return the entry that clients see."""
        listed = [
            SkillFile(uri_of((*self.path, *place)), f"sha256:{file.digest}", len(file.data))
            for place, file in sorted(self.files.items())
        ]
        return SkillEntry(self.uri, self.frontmatter, listed)


class SkillFolder(FolderContents, frozen=True, eq=False, kw_only=True):
    """A folder of skills as it was read."""

    skills: dict[Place, Skill] = msgspec.field(default_factory=dict)
    """By the place of their directory in the folder."""


def uri_of(path: Place) -> str:
    """Return the URI of a file or directory of a skill."""
    return SCHEME + "/".join(quote(step, safe="") for step in path)


def mime_type(name: str, data: bytes) -> str:
    """Return the media type of a file by its name, else by its content."""
    # `guess_type` takes URLs: without a scheme, a name such as `data:x.md` would be read as one.
    guessed, encoding = _TYPES.guess_type(f"file:/{quote(name)}")
    # With an encoding, as of `.tar.gz`, the type is that of what is inside.
    if guessed is not None and encoding is None:
        return guessed
    return "application/octet-stream" if text_of(data) is None else "text/plain"


def text_of(data: bytes, kind: str = "") -> str | None:
    """Return the text of a file, None if it is not text; encoded again it is the same bytes."""
    # SVG is an image, and text (`image/svg+xml`).
    if b"\0" in data or (kind.startswith(_BINARY_TYPES) and not kind.endswith("+xml")):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def read_skill_folder(folder: Path, before: SkillFolder | None = None) -> SkillFolder:
    """Read a folder until two readings agree, so that no half-written skill is served."""
    current = SkillFolder() if before is None else before
    for _ in range(_MAX_READS):
        again = _read_once(folder, current)
        if again.equals(current):
            return again
        current = again
    return current


def _read_once(folder: Path, before: SkillFolder) -> SkillFolder:
    found = list_folder(folder)
    problems = list(found.problems)
    members = _group_by_skill(found)
    is_skill = () in members
    # Sizes are added up before anything is read: the limit is on memory.
    wanted: set[Place] = set()
    total = 0
    for home, places in list(members.items()):
        together = total + _total_size((place for place in places if place not in wanted), found)
        reason = _find_exceeded_limit(places, together, found)
        if reason is None:
            wanted.update(places)
            total = together
        else:
            del members[home]
            problems.append(problem(folder.joinpath(*home), reason))
    files = read_files(folder, found, sorted(wanted), before.files, problems)
    skills = {}
    for home, places in members.items():
        steps = len(home)
        held = {place[steps:]: files[place] for place in places if place in files}
        inside = frozenset(one[steps:] for one in found.directories if one[:steps] == home)
        # A folder that is a skill itself begins the URIs with its own name.
        path = (folder.name, *home) if is_skill else home
        try:
            skills[home] = _build_skill(folder, home, path, held, inside, before.skills.get(home))
        except Unfit as unfit:
            problems.append(problem(folder.joinpath(*home, SKILL_FILE), unfit.message))
    directories = frozenset(found.directories)
    return SkillFolder(skills=skills, files=files, directories=directories, problems=tuple(sorted(problems)))


def _group_by_skill(found: Listing) -> dict[Place, list[Place]]:
    """Return the files of each skill by its directory; those of a nested skill belong to the outer one too."""
    homes = {place[:-1]: list[Place]() for place in found.files if place[-1] == SKILL_FILE}
    for place in found.files:
        for depth in range(len(place)):
            if place[:depth] in homes:
                homes[place[:depth]].append(place)
    return dict(sorted(homes.items()))


def _find_exceeded_limit(places: list[Place], together: int, found: Listing) -> str | None:
    """Return which limit a skill exceeds, alone or together with those before it, or None."""
    if len(places) > MAX_SKILL_FILES:
        return f"holds {len(places)} files, and a skill may have {MAX_SKILL_FILES}"
    if _total_size(places, found) > MAX_FILE_BYTES:
        return f"is larger than {MAX_FILE_BYTES // MIB} MiB, the most a skill may have"
    if together > MAX_FOLDER_BYTES:
        return f"is left out, as the skills of a folder may have {MAX_FOLDER_BYTES // MIB} MiB together"
    return None


def _total_size(places: Iterable[Place], found: Listing) -> int:
    return sum(found.files[place].size for place in places)


def _build_skill(
    folder: Path,
    home: Place,
    path: Place,
    files: dict[Place, File],
    directories: frozenset[Place],
    before: Skill | None,
) -> Skill:
    """Return a skill; an unchanged one is the same object as before. Raises Unfit for invalid front matter."""
    main = files.get((SKILL_FILE,))
    if main is None:
        raise Unfit("was gone when it was to be read")
    if before is not None and before.path == path and before.directories == directories and before.holds(files):
        return before
    fields, body = split(main.data)
    check_skill(fields, path[-1])
    return Skill(folder, folder.joinpath(*home), path, fields, body, files, directories)


class ServedSkills(msgspec.Struct, eq=False):
    """The served skills with their entries, rows and directories, by URI."""

    skills: dict[str, Skill] = msgspec.field(default_factory=dict)
    entries: dict[str, SkillEntry] = msgspec.field(default_factory=dict)
    """In the order of their URIs."""
    data: dict[str, bytes] = msgspec.field(default_factory=dict)
    rows: dict[str, Capability] = msgspec.field(default_factory=dict)
    directories: dict[str, dict[str, ResourceDefinition]] = msgspec.field(default_factory=dict)


def arrange_skills(
    skills: Iterable[Skill], before: ServedSkills, is_taken: Callable[[str], bool], problems: list[Problem]
) -> ServedSkills:
    """Return the skills that do not conflict; the row of an unchanged file is the same object as before."""
    served = ServedSkills()
    for skill in skills:
        reason = _find_conflict(skill, served, is_taken)
        if reason is None:
            served.skills[skill.uri] = skill
            _add_skill(skill, served)
        else:
            problems.append(problem(skill.folder, f"holds {skill.uri}, {reason}"))
    for uri in sorted(served.skills):
        served.entries[uri] = served.skills[uri].entry()
        # Of the files of a skill only SKILL.md is listed; the others are hidden, and can be read.
        served.rows[uri] = _row(_to_definition(served.skills[uri]), served.data[uri], hidden=False)
    for uri, row in served.rows.items():
        old = before.rows.get(uri)
        if old is not None and before.data[uri] is served.data[uri] and old.definition == row.definition:
            served.rows[uri] = old
    return served


def _find_conflict(skill: Skill, served: ServedSkills, is_taken: Callable[[str], bool]) -> str | None:
    """Return why a skill conflicts with others, or None."""
    for other in served.skills.values():
        shorter = min(len(skill.path), len(other.path))
        # Only within one folder may skills be inside each other.
        if other.folder != skill.folder and other.path[:shorter] == skill.path[:shorter]:
            return f"which is in the way of {other.uri} in {other.folder}"
    if any(is_taken(uri_of((*skill.path, *place))) for place in skill.files):
        return "where there is another resource already"
    return None


def _add_skill(skill: Skill, served: ServedSkills) -> None:
    for place in skill.directories:
        _add_directory((*skill.path, *place), served)
    for place, file in skill.files.items():
        path = (*skill.path, *place)
        uri, kind = uri_of(path), mime_type(path[-1], file.data)
        served.data[uri] = file.data
        # A file of a nested skill belongs to the outer one too, and has one row.
        served.rows.setdefault(uri, _row(ResourceDefinition(uri, path[-1], mime_type=kind), file.data, hidden=True))
        shown = ResourceDefinition(uri, path[-1], mime_type=kind, size=len(file.data))
        # The SKILL.md of a nested skill may be here already, as a plain file of the outer one.
        if path[-1] == SKILL_FILE and len(path) == len(skill.path) + 1:
            shown = _to_definition(skill)
            served.directories[uri_of(skill.path)][uri] = shown
        else:
            served.directories[uri_of(path[:-1])].setdefault(uri, shown)


def _add_directory(path: Place, served: ServedSkills) -> None:
    """Add a directory and its parents."""
    for depth in range(1, len(path) + 1):
        uri = uri_of(path[:depth])
        served.directories.setdefault(uri, {})
        if depth > 1:
            parent = served.directories[uri_of(path[: depth - 1])]
            parent.setdefault(uri, ResourceDefinition(uri, path[depth - 1], mime_type=DIRECTORY))


def _to_definition(skill: Skill) -> ResourceDefinition:
    """Return the definition of a SKILL.md."""
    return ResourceDefinition(
        skill.uri,
        skill.name,
        title=skill.name,
        description=skill.description,
        mime_type=mime_type(SKILL_FILE, b""),
        size=len(skill.files[(SKILL_FILE,)].data),
    )


def _row(definition: ResourceDefinition, data: bytes, *, hidden: bool) -> Capability:
    """Return a file as a resource; its bytes are those of the published digest."""

    async def read(_arguments: object, _context: Context) -> str | bytes:
        text = text_of(data, definition.mime_type or "")
        return data if text is None else text

    return build_resource(definition, read, owner="skills", metadata=Metadata(hidden=hidden))


def list_documents(skills: Iterable[Skill], problems: list[Problem]) -> list[SourceDocument]:
    """Return the Markdown files of skills, each under its own id; one without a valid id is among the problems."""
    found: dict[str, SourceDocument] = {}
    for skill in skills:
        # Its own SKILL.md first, for it has the shortest id; that of a nested skill belongs to that skill.
        texts = [place for place in sorted(skill.files) if place[-1] != SKILL_FILE and is_markdown(place[-1])]
        for place in ((SKILL_FILE,), *texts):
            inner = () if place == (SKILL_FILE,) else (*place[:-1], stem(place[-1]))
            # File names may have capital letters, ids may not.
            document_id = "/".join((*skill.path, *inner)).lower()
            try:
                made = _document(skill, place, document_id)
                other = found.setdefault(document_id, made)
                if other.uri != made.uri:
                    raise Unfit(f"{other.uri} is read there")
            except (Unfit, InvocationFailed) as error:
                reason = f"is not read at {skill_uri(document_id)}: {error.message}"
                problems.append(problem(skill.home.joinpath(*place), reason))
    return list(found.values())


def _document(skill: Skill, place: Place, document_id: str) -> SourceDocument:
    """Return a file as a document; raises if it has no valid id or body."""
    check_new_id(document_id)
    body = skill.body if place == (SKILL_FILE,) else _body(skill.files[place].data)
    check_body(body)
    return SourceDocument(document_id, body, f"folder:{skill.folder}", uri_of((*skill.path, *place)))


def _body(data: bytes) -> str:
    """Return a Markdown file without its front matter."""
    with suppress(Unfit):
        return split(data).body
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unfit("it is not UTF-8 text") from None
