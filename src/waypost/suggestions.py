"""Suggestions for unknown names: the known names that look most like the one that was given.

Comparing two names takes more than the product of their lengths, and both may come from outside. So whatever is asked
and however many names there are, only `MAX_CANDIDATES` names are compared, by their first `MAX_COMPARED_CHARACTERS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import Final

MAX_COMPARED_CHARACTERS: Final = 100
MAX_CANDIDATES: Final = 30
MAX_SCANNED_NAMES: Final = 10_000
"""Names whose character pairs are counted to choose the candidates."""

_MAX_PAIRS: Final = 24
_PREFIX: Final = re.compile(r"[\w.+-]+:+/*(?=.)")


def preselect(wanted: str, known: Iterable[str]) -> list[str]:
    """Return at most `MAX_CANDIDATES` names, those that share most character pairs with `wanted`."""
    wanted = _comparable(wanted)
    names = list(known)
    if len(names) <= MAX_CANDIDATES:
        return names
    if len(names) > MAX_SCANNED_NAMES:
        middle = len(wanted) // 2
        start, inner, end = wanted[:3], wanted[middle : middle + 3], wanted[-3:]
        names = [name for name in names if start in name or inner in name or end in name][:MAX_SCANNED_NAMES]
    pairs = [wanted[start : start + 2] for start in range(0, len(wanted) - 1, len(wanted) // _MAX_PAIRS + 1)]

    def shared_pairs(name: str) -> tuple[int, int]:
        name = _comparable(name)
        return sum(pair in name for pair in pairs), -abs(len(wanted) - len(name))

    return nlargest(MAX_CANDIDATES, names, key=shared_pairs)


def find_nearest(wanted: str, known: Iterable[str], limit: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return up to `limit` known names that are similar to `wanted`, best first; case only decides between equals.

    The similarity is 1 for equal names and 0 for names without a common character; `cutoff` is the least that counts.
    A prefix such as `skill:` or `docs://` that both have does not make them more similar.
    """
    found = _PREFIX.match(_comparable(wanted))
    prefix = found[0] if found else ""
    # Imported where a name is unknown: few programs ever compare any.
    from difflib import SequenceMatcher

    whole = SequenceMatcher(b=_comparable(wanted))
    rest = SequenceMatcher(b=_comparable(wanted).removeprefix(prefix)) if prefix else whole
    letters = set(wanted[:MAX_COMPARED_CHARACTERS])
    rated: list[tuple[float, int, str]] = []
    for name in preselect(wanted, known):
        compared = _comparable(name)
        matcher = rest if compared.startswith(prefix) else whole
        matcher.set_seq1(compared.removeprefix(prefix))
        # The quick ratios are upper bounds, and cost next to nothing.
        if matcher.real_quick_ratio() >= cutoff and matcher.quick_ratio() >= cutoff:
            similarity = matcher.ratio()
            if similarity >= cutoff:
                rated.append((-similarity, len(set(name[:MAX_COMPARED_CHARACTERS]) - letters), name))
    return [name for _, _, name in sorted(rated)[: max(0, limit)]]


def did_you_mean(wanted: str, known: Iterable[str], prefix: str = "", *, quote: Callable[[str], str] = repr) -> str:
    """Return `prefix` and a question that suggests the nearest known name; empty if no name is near."""
    near = find_nearest(wanted, known)
    return f"{prefix}did you mean {quote(near[0])}?" if near else ""


def _comparable(name: str) -> str:
    return name[:MAX_COMPARED_CHARACTERS].lower()
