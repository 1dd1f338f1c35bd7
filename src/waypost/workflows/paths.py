"""Paths such as `$.context.items[0].name`: read once, then looked up without ever failing.

A name behind a dot has letters, digits, `_` and `-`; any other key is quoted: `$.context["odd key"]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from waypost.errors import DefinitionError
from waypost.workflows.scope import NESTED_ROOTS, OUTPUT_ROOTS, WORKFLOW_FIELDS, Scope

ALL_ROOTS: Final = NESTED_ROOTS | OUTPUT_ROOTS
LONGEST: Final = 4096
"""How long a path or an expression may be, in characters."""

_NAME: Final = re.compile(r"[\w-]+")
_INDEX: Final = re.compile(r"\[([0-9]{1,9})\]")
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.DOTALL)
_ESCAPE: Final = re.compile(r'\\.|"', re.DOTALL)
_FIELDS: Final = {"workflow": WORKFLOW_FIELDS, "branch": ("value", "index")}


class Missing:
    """The kind of `MISSING`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()
"""What a path gives when something on its way is not there."""


class Unreadable(Exception):
    """A text cannot be read, from a position on."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at
        self.why = why

    def within(self, kind: str, text: str) -> DefinitionError:
        """The error to raise about the whole text."""
        shown = text if len(text) <= 200 else f"{text[:200]}…"
        return DefinitionError(f"the {kind} {quoted(shown)} cannot be read at position {self.at + 1}: {self.why}")


@dataclass(frozen=True, slots=True)
class Path:
    """Where to look in a scope; two paths to the same place are equal, however they are written."""

    text: str = field(compare=False)
    root: str
    keys: tuple[str | int, ...]
    get: Callable[[Scope], Any] = field(compare=False, repr=False)
    """What is there, or `MISSING`."""


def is_path(text: str) -> bool:
    """Whether a text is meant as a path."""
    return text.startswith("$.")


def parse_path(text: str, roots: Set[str] = ALL_ROOTS) -> Path:
    """A path out of its text; `roots` is what it may begin with."""
    try:
        if len(text) > LONGEST:
            raise Unreadable(LONGEST, f"it is longer than {LONGEST} characters")
        path, end = scan_path(text, 0, roots)
        if end < len(text):
            raise Unreadable(end, f'{quoted(text[end])} cannot stand in a name; write such a key as `["key"]`')
        return path
    except Unreadable as error:
        raise error.within("path", text) from None


def scan_path(text: str, start: int, roots: Set[str]) -> tuple[Path, int]:
    """The path that begins at a position, and where it ends; raises `Unreadable`."""
    if not text.startswith("$.", start):
        raise Unreadable(start, "a path begins with `$.`")
    keys: list[str | int] = []
    at = start + 1
    while at < len(text) and text[at] in ".[":
        key, at = _scan_key(text, at)
        keys.append(key)
    root = str(keys[0])
    if root not in roots:
        known = ", ".join(f"$.{name}" for name in sorted(roots))
        raise Unreadable(start, f"$.{root} is not known here; a path begins with one of {known}")
    _check_fields(root, keys[1:], start)
    return _path(text[start:at], root, tuple(keys[1:])), at


def scan_text(text: str, start: int) -> tuple[str, int]:
    """The text in quotes that begins at a position, and where it ends; raises `Unreadable`.

    Escapes are those of JSON; a backslash before any other character stays, so that `\\d` need not be `\\\\d`.
    """
    found = _QUOTED.match(text, start)
    if found is None:
        raise Unreadable(start, "the text in quotes does not end")
    try:
        value = json.loads(f'"{_ESCAPE.sub(_json_escape, found[0][1:-1])}"', strict=False)
        value.encode()
    except ValueError:
        raise Unreadable(start, "the text in quotes has an escape that stands for no character") from None
    return str(value), found.end()


def quoted(text: str) -> str:
    """A text in double quotes, as it can be written in an expression."""
    return json.dumps(text, ensure_ascii=False)


def _json_escape(found: re.Match[str]) -> str:
    escape = found[0]
    if escape == "\\'":
        return "'"
    if escape == '"':
        return '\\"'
    return escape if escape[1] in '"\\/bfnrtu' else f"\\{escape}"


def _scan_key(text: str, at: int) -> tuple[str | int, int]:
    if text[at] == ".":
        name = _NAME.match(text, at + 1)
        if name is None:
            raise Unreadable(at + 1, 'a name is missing behind the dot; write an odd one as `["key"]`')
        return name[0], name.end()
    index = _INDEX.match(text, at)
    if index is not None:
        return int(index[1]), index.end()
    if text[at + 1 : at + 2] not in ('"', "'"):
        raise Unreadable(at, "in brackets there is a position from 0, or a key in quotes")
    key, end = scan_text(text, at + 1)
    if text[end : end + 1] != "]":
        raise Unreadable(end, "a closing bracket is missing")
    return key, end + 1


def _check_fields(root: str, keys: list[str | int], at: int) -> None:
    if root == "steps" and keys and not isinstance(keys[0], int):
        raise Unreadable(at, "a step is named by its position, such as $.steps[0]")
    fields = _FIELDS.get(root)
    if fields is None:
        return
    if not keys or keys[0] not in fields:
        raise Unreadable(at, f"$.{root} goes on with one of {', '.join(f'.{name}' for name in fields)}")
    if len(keys) > 1 and keys[0] not in ("input", "value"):
        raise Unreadable(at, f"there is nothing inside $.{root}.{keys[0]}")


def _path(text: str, root: str, keys: tuple[str | int, ...]) -> Path:
    if root == "workflow" and keys[0] == "input":
        root, keys = "input", keys[1:]
    return Path(text, root, keys, _getter(root, keys))


def _getter(root: str, keys: tuple[str | int, ...]) -> Callable[[Scope], Any]:
    if root == "workflow":
        return attrgetter(str(keys[0]))
    if not keys:
        return attrgetter(root)
    if root == "context" and len(keys) == 1 and isinstance(keys[0], str):
        return _of_context(keys[0])
    return _inside(attrgetter(root), keys)


def _of_context(key: str) -> Callable[[Scope], Any]:
    # Most guards look here, and the two calls this saves are half of what they cost.
    def get(scope: Scope) -> Any:
        return scope.context.get(key, MISSING)

    return get


def _inside(base: Callable[[Scope], Any], keys: tuple[str | int, ...]) -> Callable[[Scope], Any]:
    def get(scope: Scope) -> Any:
        value = base(scope)
        for key in keys:
            if isinstance(value, dict):
                value = value.get(key, MISSING)
            elif isinstance(value, list | tuple) and isinstance(key, int) and key < len(value):
                value = value[key]
            else:
                return MISSING
        return value

    return get
