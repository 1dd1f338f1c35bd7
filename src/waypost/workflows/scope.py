"""What expressions, mappings and templates read: the scope, paths into it, and values made from it.

A `Scope` is one moment of one instance. A path such as `$.context.items[0].name` is parsed once and then looked up
without ever failing. A name behind a dot has letters, digits, `_` and `-`; any other key is quoted:
`$.context["odd key"]`.

A mapping gives each slot of the context a path, a literal or an operator: `{set: any}`,
`{add|subtract|multiply|divide: [a, b]}`, `{concat: [...]}`. Its operands are again paths, literals or operators.
Numbers: what is missing or null counts as 0; dividing by 0, and anything that is not a number, gives null; a whole
result is an integer, unless it has more than 64 bits. Only `set` takes its value as it is, so a text that begins with
`$.` is written `{set: "$.50"}`.

A template is any JSON value; every text inside that is a path stands for the value at that path.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import msgspec

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import DefinitionError

GUARD_ROOTS: Final = frozenset({"context", "arguments", "input", "workflow"})
"""The roots of paths, after `$.`, in guards."""
OUTPUT_ROOTS: Final = GUARD_ROOTS | {"output"}
NESTED_ROOTS: Final = GUARD_ROOTS | {"branch", "steps", "previous"}
WORKFLOW_FIELDS: Final = ("id", "state", "version", "input")


class Proof(msgspec.Struct, frozen=True):
    """Evidence that something was done: its kind, the principal, and the version of the instance."""

    kind: str
    by: str
    version: int


class Scope(msgspec.Struct):
    """The values of an instance at one moment, and the principal who acts."""

    context: dict[str, Any]
    arguments: dict[str, Any]
    input: dict[str, Any]
    id: str = ""
    state: str = ""
    version: int = 0
    principal: Principal = ANONYMOUS
    evidence: Sequence[Proof] = ()
    output: Any = None
    branch: dict[str, Any] | None = None
    """`{"value": ..., "index": ...}` of the current branch of a parallel executor."""
    steps: Sequence[Any] = ()
    """The results of the earlier steps of a pipeline: `{"status": ..., "output": ...}` each."""
    previous: Any = None
    """The output of the previous step."""


ALL_ROOTS: Final = NESTED_ROOTS | OUTPUT_ROOTS
LONGEST: Final = 4096
"""The maximum length of a path or an expression, in characters."""

_NAME: Final = re.compile(r"[\w-]+")
_INDEX: Final = re.compile(r"\[([0-9]{1,9})\]")
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.DOTALL)
_ESCAPE: Final = re.compile(r'\\.|"', re.DOTALL)
_ROOTED: Final = rf"(?:{'|'.join(sorted(ALL_ROOTS))})(?:\.[\w-]+|\[[0-9]+\])+"
# `{{ ... }}` is how other systems write it; in single braces only a name with a root, which no path of a URL has.
_EMBEDDED: Final = re.compile(rf"\$\.({_ROOTED})|\{{+ *({_ROOTED}) *\}}+")
_FIELDS: Final = {"workflow": WORKFLOW_FIELDS, "branch": ("value", "index")}


class Missing:
    """The type of `MISSING`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()
"""The value of a path that does not exist."""


class Unreadable(Exception):
    """A text cannot be read, from a position on."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at
        self.why = why

    def within(self, kind: str, text: str) -> DefinitionError:
        """The error to raise about the whole text."""
        shown = text if len(text) <= 200 else f"{text[:200]}…"
        return DefinitionError(f"the {kind} {quote(shown)} cannot be read at position {self.at + 1}: {self.why}")


@dataclass(frozen=True, slots=True)
class Path:
    """A parsed path; two spellings of the same path are equal."""

    text: str = field(compare=False)
    root: str
    keys: tuple[str | int, ...]
    get: Callable[[Scope], Any] = field(compare=False, repr=False)
    """Read the value from a scope; `MISSING` if there is none."""


def is_path(text: str) -> bool:
    """Whether a text is a path: it begins with `$.`."""
    return text.startswith("$.")


def find_embedded_path(text: str) -> str | None:
    """The first path in a text that is no path itself, which templates leave as it is; also one in braces."""
    found = None if is_path(text) else _EMBEDDED.search(text)
    return None if found is None else f"$.{found[1] or found[2]}"


def parse_path(text: str, roots: Set[str] = ALL_ROOTS) -> Path:
    """Parse a path; `roots` are the allowed roots."""
    try:
        if len(text) > LONGEST:
            raise Unreadable(LONGEST, f"it is longer than {LONGEST} characters")
        path, end = scan_path(text, 0, roots)
        if end < len(text):
            raise Unreadable(end, f'{quote(text[end])} cannot stand in a name; write such a key as `["key"]`')
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
        # A lone surrogate is not a character, and could not be stored.
        value.encode()
    except ValueError:
        raise Unreadable(start, "the text in quotes has an escape that stands for no character") from None
    return str(value), found.end()


def quote(text: str) -> str:
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
    get: Callable[[Scope], Any]
    if root == "workflow":
        get = attrgetter(str(keys[0]))
    elif not keys:
        get = attrgetter(root)
    elif root == "context" and len(keys) == 1 and isinstance(key := keys[0], str):
        # Most guards read a slot of the context, and the two calls this saves are half of their cost.
        get = lambda scope: scope.context.get(key, MISSING)  # noqa: E731
    else:
        get = _get_nested(attrgetter(root), keys)
    return Path(text, root, keys, get)


def _get_nested(base: Callable[[Scope], Any], keys: tuple[str | int, ...]) -> Callable[[Scope], Any]:
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


DEEPEST: Final = 64
"""The maximum depth of a template or a mapping."""
_INT64_LIMIT: Final = 2**63

Read = Callable[[Scope], Any]
Arithmetic = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Mapping:
    """A compiled output mapping."""

    paths: tuple[Path, ...]
    """Where it looks, each place once."""
    slots: dict[str, Read] = field(repr=False)

    def apply(self, scope: Scope) -> dict[str, Any]:
        """The values to write, all computed from the scope; nothing is written here."""
        return {name: read(scope) for name, read in self.slots.items()}


@dataclass(frozen=True, slots=True)
class Template:
    """A JSON value with paths in it."""

    paths: tuple[Path, ...]
    """Where it looks, each place once."""
    fill: Read = field(repr=False)
    """The value. A missing path leaves its entry out of an object and is null in a list; alone it is `MISSING`."""


def compile_mapping(output: dict[str, Any]) -> Mapping:
    """Compile an `output` mapping."""
    paths: list[Path] = []
    slots = {name: _compile_slot(name, value, paths) for name, value in output.items()}
    return Mapping(tuple(dict.fromkeys(paths)), slots)


def compile_template(value: Any, roots: Set[str] = GUARD_ROOTS) -> Template:
    """Compile a JSON value with paths in it; `roots` are the allowed roots."""
    paths: list[Path] = []
    fill = _compile_template_part(value, roots, paths, 0)
    return Template(tuple(dict.fromkeys(paths)), fill)


def _compile_slot(name: str, value: Any, paths: list[Path]) -> Read:
    try:
        read = _compile_value(value, paths, 0)
        return lambda scope: None if (found := read(scope)) is MISSING else found
    except DefinitionError as error:
        raise DefinitionError(f"the output {quote(name)} cannot be used: {error.message}") from None


def _compile_value(value: Any, paths: list[Path], depth: int) -> Read:
    _check_depth(depth)
    if isinstance(value, str) and is_path(value):
        return _compile_path(value, OUTPUT_ROOTS, paths)
    if isinstance(value, dict) and len(value) == 1:
        ((name, operands),) = value.items()
        if name == "set":
            return _compile_literal(operands, depth)
        if name == "concat":
            parts = _compile_operands(name, operands, None, paths, depth)
            return lambda scope: "".join([_text(part(scope)) for part in parts])
        if name in _ARITHMETIC:
            return _compute(_ARITHMETIC[name], *_compile_operands(name, operands, 2, paths, depth))
    return _compile_literal(value, depth)


def _compile_operands(name: str, given: Any, count: int | None, paths: list[Path], depth: int) -> list[Read]:
    if not isinstance(given, list) or (count is not None and len(given) != count):
        raise DefinitionError(f"{name} needs a list of {'values' if count is None else f'{count} numbers or paths'}")
    for operand in given if count is not None else ():
        is_operator = isinstance(operand, dict) and len(operand) == 1 and next(iter(operand)) in _OPERATORS
        usable = operand is None or is_number(operand) or is_operator
        if not usable and not (isinstance(operand, str) and is_path(operand)):
            raise DefinitionError(f"{name} needs numbers or paths, not {json.dumps(operand, default=str)[:100]}")
    return [_compile_value(operand, paths, depth + 1) for operand in given]


def is_number(value: Any) -> bool:
    """Whether a value is a JSON number; to Python, booleans are integers."""
    return type(value) is int or type(value) is float


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or value is MISSING:
        return "null"
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        # What JSON cannot say has no text either.
        return "null"


def _compute(compute: Arithmetic, left: Read, right: Read) -> Read:
    def read(scope: Scope) -> Any:
        one, other = _to_number(left(scope)), _to_number(right(scope))
        if not is_number(one) or not is_number(other):
            return None
        try:
            return _to_json_number(compute(one, other))
        except (ZeroDivisionError, OverflowError):
            return None

    return read


def _to_number(value: Any) -> Any:
    return 0 if value is None or value is MISSING else value


def _to_json_number(value: int | float) -> int | float | None:
    """A number as JSON has it: finite, whole ones as integers of at most 64 bits."""
    if isinstance(value, int):
        return value if -_INT64_LIMIT <= value < _INT64_LIMIT else float(value)
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and -_INT64_LIMIT <= value < _INT64_LIMIT else value


def _divide(one: Any, other: Any) -> Any:
    # Of large integers only this division is exact.
    if isinstance(one, int) and isinstance(other, int) and one % other == 0:
        return one // other
    return one / other


_ARITHMETIC: Final[dict[str, Arithmetic]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": _divide,
}
_OPERATORS: Final = ("set", "concat", *_ARITHMETIC)


def _compile_literal(value: Any, depth: int) -> Read:
    """The value itself, a new one each time, so that no instance changes the definition."""
    if not isinstance(value, dict | list):
        return lambda scope: value
    _check_copyable(value, depth)
    return lambda scope: _copy(value)


def _check_copyable(value: Any, depth: int) -> None:
    _check_depth(depth)
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_copyable(item, depth + 1)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _compile_template_part(value: Any, roots: Set[str], paths: list[Path], depth: int) -> Read:
    _check_depth(depth)
    if isinstance(value, str) and is_path(value):
        return _compile_path(value, roots, paths)
    if isinstance(value, dict):
        entries = {key: _compile_template_part(item, roots, paths, depth + 1) for key, item in value.items()}
        return lambda scope: {key: item for key, read in entries.items() if (item := read(scope)) is not MISSING}
    if isinstance(value, list):
        items = [_compile_template_part(item, roots, paths, depth + 1) for item in value]
        return lambda scope: [None if (item := read(scope)) is MISSING else item for read in items]
    return lambda scope: value


def _compile_path(text: str, roots: Set[str], paths: list[Path]) -> Read:
    path = parse_path(text, roots)
    paths.append(path)
    return path.get


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise DefinitionError(f"it is nested deeper than {DEEPEST} levels")
