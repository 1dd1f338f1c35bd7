"""What readers see: titles and descriptions of markdown, the index of all skills, the answers of functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from waypost.skills.content.uris import skill_uri

MARKDOWN: Final = "text/markdown"
JSON: Final = "application/json"
SHORT: Final = 140
_HEAD: Final = "# Skills\n\n"
_INTRODUCTION: Final = (
    "Read each skill's resource for orientation on when and why to call its functions. "
    "Sub-skills are indented under their parent path so a top-level skill stays small and the LLM can drill in only "
    "when it needs more detail.\n\n"
)
_NONE: Final = "_No skills are currently registered._\n"
_LINE: Final = re.compile(r"[^\n]*\n?")


class Rendered(NamedTuple):
    """A text and what it is written in."""

    mime_type: str
    text: str


def title(body: str) -> str | None:
    """The first heading of the first level."""
    for line in _lines(body):
        if line.startswith("# ") and (found := line[2:].strip()):
            return found
    return None


def description(body: str) -> str | None:
    """The first paragraph, on one line."""
    paragraph: list[str] = []
    for line in _lines(body):
        if line and not line.startswith("#"):
            paragraph.append(line)
        elif paragraph:
            break
    return " ".join(paragraph) or None


def _lines(body: str) -> Iterator[str]:
    """The lines of a text, trimmed; a long text is not taken apart further than it is read."""
    return (found[0].strip() for found in _LINE.finditer(body))


def cut(text: str, most: int = SHORT) -> str:
    """A text of so many characters at most, and dots where there was more."""
    return text if len(text) <= most else f"{text[:most]}..."


def index(skills: Iterable[tuple[str, str]]) -> str:
    """The index of skills given as id and body."""
    rows = [_row(skill_id, body) for skill_id, body in sorted(skills)]
    return f"{_HEAD}{_INTRODUCTION}{''.join(rows) or _NONE}"


def broken_index(problem: str) -> str:
    """What stands in for the index where it cannot be made."""
    return f"{_HEAD}_Error reading skills index: {problem}_\n"


def _row(skill_id: str, body: str) -> str:
    told = description(body)
    about = "" if told is None else f" — {cut(told)}"
    indent = "  " * skill_id.count("/")
    return f"{indent}- [`{skill_id}`]({skill_uri(skill_id)}) — {title(body) or skill_id}{about}\n"


def rendered(output: Any) -> Rendered:
    """What a function answered, to be read."""
    if isinstance(output, str):
        return Rendered(MARKDOWN, output)
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        return Rendered(MARKDOWN, output["content"])
    return Rendered(JSON, msgspec.json.format(msgspec.json.encode(output), indent=2).decode())
