"""What somebody who asked for the wrong id or name may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from heapq import nlargest
from typing import Final

from waypost.skills.content.refusals import quoted

_MOST: Final = 3
_COMPARED: Final = 100
"""Comparing takes time; only so many that have most in common are compared."""
_GLANCE: Final = 60
"""Characters of what was wanted that decide which are compared."""


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """The rest of a sentence that names those nearest to what was wanted, if any are near."""
    near = nearest(wanted, known)
    if not near:
        return ""
    *others, last = map(quoted, near)
    return f"; did you mean {', '.join(others)} or {last}?" if others else f"; did you mean {last}?"


def nearest(wanted: str, known: Iterable[str]) -> list[str]:
    """Up to three of the known, those that look most alike first, then those with the same last part."""
    wanted = wanted[:200].lower()
    pairs = {wanted[place : place + 2] for place in range(min(len(wanted), _GLANCE) - 1)}

    def in_common(one: str) -> tuple[int, int]:
        return sum(pair in one for pair in pairs), -abs(len(wanted) - len(one))

    candidates = nlargest(_COMPARED, known, key=in_common)
    last = wanted.rpartition("/")[2]
    alike = get_close_matches(wanted, candidates, n=_MOST)
    same = sorted(one for one in candidates if one.rpartition("/")[2] == last or one.rpartition("/")[0] == wanted)
    return list(dict.fromkeys([*alike, *(one for one in same if wanted)]))[:_MOST]
