"""What somebody who asked for the wrong id or name may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from waypost.skills.content.refusals import quoted
from waypost.suggestions import MAX_COMPARED_CHARACTERS, find_nearest, preselect

_MOST: Final = 3


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """The rest of a sentence that names those nearest to what was wanted, if any are near."""
    near = meant(wanted, known)
    if not near:
        return ""
    *others, last = map(quoted, near)
    return f"; did you mean {', '.join(others)} or {last}?" if others else f"; did you mean {last}?"


def meant(wanted: str, known: Iterable[str]) -> list[str]:
    """Up to three of the known, those that look most alike first, then those with the same last part."""
    wanted = wanted[:MAX_COMPARED_CHARACTERS].lower()
    candidates = preselect(wanted, known)
    last = wanted.rpartition("/")[2]
    alike = find_nearest(wanted, candidates, limit=_MOST)
    same = sorted(one for one in candidates if one.rpartition("/")[2] == last or one.rpartition("/")[0] == wanted)
    return list(dict.fromkeys([*alike, *(one for one in same if wanted)]))[:_MOST]
