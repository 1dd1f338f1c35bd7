"""Where in a call a filter looks: `input.items.0.name`, with `\\.` for a dot that belongs to a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from waypost.errors import InvocationFailed

ROOTS: Final = ("input", "output", "error", "caller", "metadata")
"""What there is of a call."""
ELEMENT: Final = "@"
"""The element of a list that `$any` looks at."""
MOST_STEPS: Final = 16

_STEP: Final = re.compile(r"(?:[^.\\]|\\[.\\])+")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,14}")


class Absent:
    """What a path leads to that leads nowhere."""

    __slots__ = ()


ABSENT: Final = Absent()

Find: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""What a path leads to, by root; `ABSENT` where there is nothing."""


def invalid(why: str) -> InvocationFailed:
    """That a filter cannot be used."""
    return InvocationFailed(f"The filter cannot be used: {why}.", "INVALID_FILTER")


def read(path: str, *, in_element: bool) -> tuple[str, Find]:
    """The root of a path, and how to follow it."""
    root, *steps = _steps(path)
    if in_element and root != ELEMENT:
        raise invalid(f"within `$any` the path `{path}` has to begin with `{ELEMENT}`, the element")
    if not in_element and root not in ROOTS:
        raise invalid(f"the path `{path}` begins with none of {', '.join(ROOTS)}")
    if len(steps) > MOST_STEPS:
        raise invalid(f"the path `{path}` has {len(steps)} steps and may have {MOST_STEPS}")
    return root, _follower(root, steps)


def _steps(path: str) -> list[str]:
    steps, at = [], 0
    while True:
        found = _STEP.match(path, at)
        if found is None:
            raise invalid(f"the path `{path}` has an empty step or a lone `\\`")
        steps.append(_ESCAPED.sub(r"\1", found[0]))
        at = found.end()
        if at == len(path):
            return steps
        if path[at] != ".":
            raise invalid(f"in the path `{path}` only `\\.` and `\\\\` may be escaped")
        at += 1


def _follower(root: str, steps: list[str]) -> Find:
    if not steps:
        return lambda document: document.get(root, ABSENT)
    ways = [(step, int(step) if _INDEX.fullmatch(step) else None) for step in steps]

    def find(document: Mapping[str, Any]) -> Any:
        value = document.get(root, ABSENT)
        for name, index in ways:
            if isinstance(value, dict):
                value = value.get(name, ABSENT)
            elif isinstance(value, list) and index is not None and index < len(value):
                value = value[index]
            else:
                return ABSENT
        return value

    return find
