"""`iii://` URIs: the index, a skill, or a section that a function writes."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from waypost.capabilities.resources import MAX_URI_CHARACTERS
from waypost.errors import InvocationFailed, shorten
from waypost.skills.content.ids import INDEX, SECTION, check_id, segment_problem
from waypost.skills.content.refusals import NotThere, quoted, refused
from waypost.workers.functions import is_internal

SCHEME: Final = "iii://"
INDEX_URI: Final = f"{SCHEME}{INDEX}"
_SECTIONS: Final = f"{SCHEME}{SECTION}/"


class Index(NamedTuple):
    """The list of all skills."""


class Skill(NamedTuple):
    """A skill by its id, which need not be one."""

    id: str


class Section(NamedTuple):
    """What a function answers."""

    function_id: str


Target: TypeAlias = Index | Skill | Section


def parse(uri: str) -> Target:
    """Return what a URI points at."""
    if len(uri) > MAX_URI_CHARACTERS:
        raise NotThere(f"Resource URI too long ({len(uri)} chars; max {MAX_URI_CHARACTERS}): {shorten(uri)}")
    if not uri.startswith(SCHEME):
        raise refused(f"Resource URI must start with iii://: {shorten(uri)}")
    rest = uri.removeprefix(SCHEME)
    if not rest:
        raise NotThere(f"Empty resource id: {uri}")
    if uri == INDEX_URI:
        return Index()
    segments = rest.split("/")
    if not all(segments):
        raise NotThere(
            f"Resource URI may not contain empty segments (no leading, trailing, or doubled '/'): {shorten(uri)}"
        )
    return _section(uri, segments[1:]) if segments[0] == SECTION else Skill(rest)


def _section(uri: str, segments: list[str]) -> Section:
    if not segments:
        raise NotThere(f"Section URI 'iii://fn' is missing a function path: expected iii://fn/{{a}}/{{b}}/...: {uri}")
    for segment in segments:
        if problem := segment_problem(segment):
            raise NotThere(f"invalid section URI segment {quoted(segment)}: {problem}{_today(segments)}")
    return Section("::".join(segments))


def _today(segments: list[str]) -> str:
    meant = section_uri("::".join(segments))
    return f"; did you mean {meant}?" if meant else ""


def section_uri(function_id: str) -> str:
    """Where the answer of a function is read; nothing where it cannot be."""
    segments = function_id.split("::")
    return "" if any(map(segment_problem, segments)) else _SECTIONS + "/".join(segments)


def skill_uri(skill_id: str) -> str:
    """Where a skill is read."""
    return SCHEME + skill_id


def check_readable(skill_id: str) -> None:
    """Refuse an id that no skill has; the form that functions were read at long ago gets the one of today."""
    try:
        check_id(skill_id)
    except InvocationFailed as error:
        if "::" not in skill_id:
            raise NotThere(error.message) from None
        raise NotThere(f"Skill not found: {shorten(skill_id)}{_successor(skill_id)}; {error.message}") from None


def _successor(skill_id: str) -> str:
    function_id = skill_id.rpartition("/")[2]
    uri = section_uri(function_id)
    if not uri:
        return ""
    if is_internal(function_id):
        return f"; functions are read at URIs like {uri} now, but {function_id} is internal and cannot be"
    return f"; functions are read at URIs of another form now: {uri}"
