"""Names that somebody who wrote another one may have meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from heapq import nlargest
from typing import Final

LONGEST: Final = 200
"""Characters of what was written that are compared: comparing takes the more time the longer both are."""


_COMPARED: Final = 100
_GLANCE: Final = 60
"""Characters of what was written that decide which of many are compared."""


def likely(wanted: str, known: Iterable[str]) -> list[str]:
    """Those of very many that have most in common with what was wanted, and are worth comparing with it."""
    wanted = wanted[:LONGEST]
    pairs = {wanted[place : place + 2] for place in range(min(len(wanted), _GLANCE) - 1)}

    def in_common(one: str) -> tuple[int, int]:
        return sum(pair in one for pair in pairs), -abs(len(wanted) - len(one))

    return nlargest(_COMPARED, known, key=in_common)


def nearest(wanted: str, known: Iterable[str], most: int = 1, alike: float = 0.6) -> list[str]:
    """Those of the known that look most like what was wanted, the nearest first; `alike` is 1 for the same name."""
    return get_close_matches(wanted[:LONGEST], known, n=most, cutoff=alike)


def did_you_mean(wanted: str, known: Iterable[str], joint: str = "", *, quoted: Callable[[str], str] = repr) -> str:
    """The question whether the nearest was meant, after `joint`; nothing at all where none is near."""
    near = nearest(wanted, known)
    return f"{joint}did you mean {quoted(near[0])}?" if near else ""
