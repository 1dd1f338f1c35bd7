"""Suggestions for unknown names: the known names that look most like the one that was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from heapq import nlargest
from typing import Final

MAX_COMPARED_CHARACTERS: Final = 200
"""Further characters of the wanted name are ignored: comparing two names takes longer than both are long."""

MAX_CANDIDATES: Final = 100
"""Names that `preselect` keeps."""

_PRESELECTING_CHARACTERS: Final = 60
"""Characters of the wanted name that `preselect` looks at."""


def preselect(wanted: str, known: Iterable[str]) -> list[str]:
    """Return the names that share most character pairs with `wanted`, as a cheap filter before `find_nearest`."""
    wanted = wanted[:MAX_COMPARED_CHARACTERS]
    pairs = {wanted[start : start + 2] for start in range(min(len(wanted), _PRESELECTING_CHARACTERS) - 1)}

    def shared_pairs(name: str) -> tuple[int, int]:
        return sum(pair in name for pair in pairs), -abs(len(wanted) - len(name))

    return nlargest(MAX_CANDIDATES, known, key=shared_pairs)


def find_nearest(wanted: str, known: Iterable[str], limit: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the known names that are most similar to `wanted`, best first; `cutoff` is 1 for equal names."""
    return get_close_matches(wanted[:MAX_COMPARED_CHARACTERS], known, n=limit, cutoff=cutoff)


def did_you_mean(wanted: str, known: Iterable[str], prefix: str = "", *, quote: Callable[[str], str] = repr) -> str:
    """Return `prefix` and a question that suggests the nearest known name; empty if no name is near."""
    near = find_nearest(wanted, known)
    return f"{prefix}did you mean {quote(near[0])}?" if near else ""
