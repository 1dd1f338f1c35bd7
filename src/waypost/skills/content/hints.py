"""Suggestions for unknown ids of documents and names of prompts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from waypost.skills.content.refusals import quoted
from waypost.suggestions import MAX_COMPARED_CHARACTERS, find_nearest, preselect

MAX_SUGGESTIONS: Final = 3


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests up to three known ids; empty if none is similar."""
    near = find_similar(wanted, known)
    if not near:
        return ""
    *others, last = map(quoted, near)
    return f"; did you mean {', '.join(others)} or {last}?" if others else f"; did you mean {last}?"


def find_similar(wanted: str, known: Iterable[str]) -> list[str]:
    """Return up to three known ids: the most similar ones, then those with the same last segment."""
    wanted = wanted[:MAX_COMPARED_CHARACTERS].lower()
    candidates = preselect(wanted, known)
    last = wanted.rpartition("/")[2]
    alike = find_nearest(wanted, candidates, limit=MAX_SUGGESTIONS)
    same = sorted(one for one in candidates if one.rpartition("/")[2] == last or one.rpartition("/")[0] == wanted)
    return list(dict.fromkeys([*alike, *(one for one in same if wanted)]))[:MAX_SUGGESTIONS]
