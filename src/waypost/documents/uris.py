"""Ids and URIs of documents: parsing, links between documents, and hints for unknown ids."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from waypost.capabilities.resources import MAX_URI_CHARACTERS
from waypost.errors import InvocationFailed, shorten
from waypost.suggestions import MAX_COMPARED_CHARACTERS, find_nearest, preselect
from waypost.workers.functions import is_internal

# Compared with sizes in bytes, which are the same for valid ids: those are ASCII.
MAX_ID_CHARACTERS: Final = 1024
MAX_SEGMENT_CHARACTERS: Final = 64
MAX_BODY_BYTES: Final = 256 * 1024
MAX_ARGUMENTS: Final = 100
SECTION: Final = "fn"
"""The first segment of the URIs that run a function."""
INDEX: Final = "skills"
"""The id of the index of all skills."""
_ALLOWED: Final = re.compile(r"[a-z0-9_-]+")
_RULE: Final = "may only contain lowercase ASCII letters, digits, '-' and '_'"


_MAX_QUOTED_CHARACTERS: Final = 1024
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


class NotThere(InvocationFailed):
    """The document does not exist."""


def refused(text: str) -> InvocationFailed:
    """Return the error for an invalid call."""
    return InvocationFailed(text)


def quoted(text: str) -> str:
    """Return a text in double quotes and escaped; one that is longer than any id is cut."""
    shown = shorten(text, _MAX_QUOTED_CHARACTERS)
    return '"' + "".join(_ESCAPES.get(one, one if one.isprintable() else f"\\u{{{ord(one):x}}}") for one in shown) + '"'


def size(text: str) -> int:
    """Return the length of a text in bytes."""
    return len(text.encode(errors="surrogatepass"))


def check_id(skill_id: str) -> None:
    """Refuse an invalid id of a skill."""
    if not skill_id:
        raise refused("id must be non-empty")
    if skill_id.startswith("/") or skill_id.endswith("/"):
        raise refused(f"id may not have a leading or trailing '/': {quoted(skill_id)}")
    if size(skill_id) > MAX_ID_CHARACTERS:
        raise refused(f"id too long ({size(skill_id)} chars; max {MAX_ID_CHARACTERS}): {quoted(skill_id)}")
    segments = skill_id.split("/")
    for place, segment in enumerate(segments, 1):
        if problem := segment_problem(segment):
            raise refused(f"invalid id (segment {place} of {quoted(skill_id)}): {problem}")
    if segments[0] == SECTION:
        raise refused(
            f'id may not have "fn" as its first segment (reserved as the iii://fn/ section-URI marker): '
            f"{quoted(skill_id)}"
        )


def check_new_id(skill_id: str) -> None:
    """Refuse an id that is invalid or could never be read."""
    check_id(skill_id)
    if skill_id == INDEX:
        raise refused('id may not be "skills", because iii://skills is the index of all skills')


def segment_problem(segment: str) -> str:
    """Return what is wrong with a segment, or an empty text."""
    if not segment:
        return "segment must be non-empty"
    if size(segment) > MAX_SEGMENT_CHARACTERS:
        return f"segment too long ({size(segment)} chars; max {MAX_SEGMENT_CHARACTERS}): {quoted(segment)}"
    if not _ALLOWED.fullmatch(segment):
        return f"segment {_RULE}: {quoted(segment)}"
    return ""


def check_body(body: str) -> None:
    """Refuse an invalid body of a skill."""
    if not body:
        raise refused("skill must be non-empty")
    if size(body) > MAX_BODY_BYTES:
        raise refused(f"skill body too large ({size(body)} bytes; max {MAX_BODY_BYTES})")


def check_name(name: str) -> None:
    """Refuse an invalid name of a prompt."""
    if not name:
        raise refused("name must be non-empty")
    if size(name) > MAX_SEGMENT_CHARACTERS:
        raise refused(f"name too long ({size(name)} chars; max {MAX_SEGMENT_CHARACTERS})")
    if not _ALLOWED.fullmatch(name):
        raise refused(f"name {_RULE}: {quoted(name)}")


def check_arguments(names: Iterable[str]) -> None:
    """Refuse arguments with an empty or repeated name, and too many of them."""
    seen: set[str] = set()
    for name in names:
        if len(seen) == MAX_ARGUMENTS:
            raise refused(f"too many arguments (max {MAX_ARGUMENTS})")
        if not name.strip():
            raise refused("argument name must be non-empty")
        if name in seen:
            raise refused(f"duplicate argument name: {shorten(name)}")
        seen.add(name)


SCHEME: Final = "iii://"
INDEX_URI: Final = f"{SCHEME}{INDEX}"
SECTIONS: Final = f"{SCHEME}{SECTION}/"


class Index(NamedTuple):
    """The index of all skills."""


class Skill(NamedTuple):
    """A skill by its id, which is not checked yet."""

    id: str


class Section(NamedTuple):
    """The answer of a function."""

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
            # In `iii://fn/a::b`, a likely mistake, the parts are valid segments.
            meant = section_uri("::".join(segments))
            hint = f"; did you mean {meant}?" if meant else ""
            raise NotThere(f"invalid section URI segment {quoted(segment)}: {problem}{hint}")
    return Section("::".join(segments))


def section_uri(function_id: str) -> str:
    """Return the URI of a function's answer; empty if it can have none."""
    segments = function_id.split("::")
    return "" if any(map(segment_problem, segments)) else SECTIONS + "/".join(segments)


def skill_uri(skill_id: str) -> str:
    """Return the URI of a skill."""
    return SCHEME + skill_id


def check_readable(skill_id: str) -> None:
    """Refuse an id that no skill can have; the old form of section URIs is answered with the new one."""
    try:
        check_id(skill_id)
    except InvocationFailed as error:
        if "::" not in skill_id:
            raise NotThere(error.message) from None
        raise NotThere(f"Skill not found: {shorten(skill_id)}{_suggest_new_form(skill_id)}; {error.message}") from None


def _suggest_new_form(skill_id: str) -> str:
    function_id = skill_id.rpartition("/")[2]
    uri = section_uri(function_id)
    if not uri:
        return ""
    if is_internal(function_id):
        return f"; functions are read at URIs like {uri} now, but {function_id} is internal and cannot be"
    return f"; functions are read at URIs of another form now: {uri}"


_LINK: Final = re.compile(r"iii://[^\s()\[\]<>\"'`|\\]+")
_PLACEHOLDER: Final = re.compile(r"[{}*…]|\.\.\.")
_PUNCTUATION: Final = ".,;:!?"
_MAX_CHECKED_LINKS: Final = 50


def list_links(body: str) -> list[str]:
    """Return the `iii://` URIs of a text, each once, without patterns such as `iii://{id}`."""
    # The full stop of a sentence is not part of the link before it.
    found = (link.rstrip(_PUNCTUATION) for link in _LINK.findall(body) if not _PLACEHOLDER.search(link))
    return list(dict.fromkeys(found))


async def find_dead_links(skill_id: str, body: str, is_known: Callable[[str], Awaitable[bool]]) -> list[str]:
    """Return one sentence for each link whose target does not exist."""
    return [
        f"{link}: {problem}"
        for link in list_links(body)[:_MAX_CHECKED_LINKS]
        if (problem := await _find_problem(link, skill_id, is_known))
    ]


async def _find_problem(link: str, own: str, is_known: Callable[[str], Awaitable[bool]]) -> str:
    try:
        target = parse(link)
        if isinstance(target, Skill):
            check_readable(target.id)
    except InvocationFailed as error:
        return error.message
    if isinstance(target, Section) and is_internal(target.function_id):
        return f"{target.function_id} is in an internal namespace and cannot be read"
    # A link to the skill itself needs no lookup.
    if isinstance(target, Skill) and target.id != own and not await is_known(target.id):
        return "no skill is registered under this id yet"
    return ""


MAX_SUGGESTIONS: Final = 3


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests up to three known ids; empty if none is similar."""
    near = find_similar(wanted, known)
    if not near:
        return ""
    *others, last = map(quoted, near)
    return f"; did you mean {', '.join(others)} or {last}?" if others else f"; did you mean {last}?"


def find_similar(wanted: str, known: Iterable[str]) -> list[str]:
    """Return up to three known ids: the most similar ones, then those with the same last segment or one level below."""
    wanted = wanted[:MAX_COMPARED_CHARACTERS].lower()
    candidates = preselect(wanted, known)
    last = wanted.rpartition("/")[2]
    alike = find_nearest(wanted, candidates, limit=MAX_SUGGESTIONS)
    same = sorted(one for one in candidates if one.rpartition("/")[2] == last or one.rpartition("/")[0] == wanted)
    # The empty text would be the parent of every id without a slash.
    return list(dict.fromkeys([*alike, *(one for one in same if wanted)]))[:MAX_SUGGESTIONS]
