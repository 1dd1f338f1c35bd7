"""What may be an id, a body, the name of a prompt and those of its arguments; the first rule that is broken is told."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from waypost.errors import shorten
from waypost.skills.content.refusals import quoted, refused, size

LONGEST_ID: Final = 1024
LONGEST_SEGMENT: Final = 64
LARGEST_BODY: Final = 256 * 1024
SECTION: Final = "fn"
"""The first segment of URIs that run a function."""
INDEX: Final = "skills"
"""The id that the index of all skills is read at."""
_ALLOWED: Final = re.compile(r"[a-z0-9_-]+")
_RULE: Final = "may only contain lowercase ASCII letters, digits, '-' and '_'"


def check_id(skill_id: str) -> None:
    """Refuse what cannot be the id of a skill."""
    if not skill_id:
        raise refused("id must be non-empty")
    if skill_id.startswith("/") or skill_id.endswith("/"):
        raise refused(f"id may not have a leading or trailing '/': {quoted(skill_id)}")
    if size(skill_id) > LONGEST_ID:
        raise refused(f"id too long ({size(skill_id)} chars; max {LONGEST_ID}): {quoted(skill_id)}")
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
    """Refuse what cannot be the id of a skill, or could never be read."""
    check_id(skill_id)
    if skill_id == INDEX:
        raise refused('id may not be "skills", because iii://skills is the index of all skills')


def segment_problem(segment: str) -> str:
    """What is wrong with a segment, if anything is."""
    if not segment:
        return "segment must be non-empty"
    if size(segment) > LONGEST_SEGMENT:
        return f"segment too long ({size(segment)} chars; max {LONGEST_SEGMENT}): {quoted(segment)}"
    if not _ALLOWED.fullmatch(segment):
        return f"segment {_RULE}: {quoted(segment)}"
    return ""


def check_body(body: str) -> None:
    """Refuse what cannot be the text of a skill."""
    if not body:
        raise refused("skill must be non-empty")
    if size(body) > LARGEST_BODY:
        raise refused(f"skill body too large ({size(body)} bytes; max {LARGEST_BODY})")


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a prompt."""
    if not name:
        raise refused("name must be non-empty")
    if size(name) > LONGEST_SEGMENT:
        raise refused(f"name too long ({size(name)} chars; max {LONGEST_SEGMENT})")
    if not _ALLOWED.fullmatch(name):
        raise refused(f"name {_RULE}: {quoted(name)}")


def check_arguments(names: Iterable[str]) -> None:
    """Refuse arguments without a name, or two with one."""
    seen: set[str] = set()
    for name in names:
        if not name.strip():
            raise refused("argument name must be non-empty")
        if name in seen:
            raise refused(f"duplicate argument name: {shorten(name)}")
        seen.add(name)
