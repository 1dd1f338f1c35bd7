"""What a transition writes into the context, and templates of what it hands on.

A mapping gives each slot a path, a literal or an operator: `{set: any}`, `{add|subtract|multiply|divide: [a, b]}`,
`{concat: [...]}`. Its operands are again paths, literals or operators. Numbers: what is missing or null counts as 0;
dividing by 0, and anything that is not a number, gives null; a whole result is an integer, unless it has more than 64
bits. Only `set` takes its value as it is, so a text that begins with `$.` is written `{set: "$.50"}`.

A template is any JSON value; every text inside that is a path stands for what is there.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from typing import Any, Final

from waypost.errors import DefinitionError
from waypost.workflows.paths import MISSING, Path, is_path, parse_path, quoted
from waypost.workflows.scope import GUARD_ROOTS, OUTPUT_ROOTS, Scope

DEEPEST: Final = 64
"""How deep a template or a mapping may be nested."""
_WIDEST: Final = 2**63

Read = Callable[[Scope], Any]
Arithmetic = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Mapping:
    """What is written into the context."""

    paths: tuple[Path, ...]
    """Where it looks, each place once."""
    slots: dict[str, Read] = field(repr=False)

    def apply(self, scope: Scope) -> dict[str, Any]:
        """What to write, all of it as the scope was before; nothing is written here."""
        return {name: read(scope) for name, read in self.slots.items()}


@dataclass(frozen=True, slots=True)
class Template:
    """A JSON value with paths in it."""

    paths: tuple[Path, ...]
    """Where it looks, each place once."""
    fill: Read = field(repr=False)
    """The value. A missing path leaves its entry out of an object and is null in a list; alone it is `MISSING`."""


def compile_mapping(output: dict[str, Any], roots: Set[str] = OUTPUT_ROOTS) -> Mapping:
    """A mapping out of what is written under `output`; `roots` is what its paths may begin with."""
    paths: list[Path] = []
    slots = {name: _slot(name, value, roots, paths) for name, value in output.items()}
    return Mapping(_once(paths), slots)


def compile_template(value: Any, roots: Set[str] = GUARD_ROOTS) -> Template:
    """A template out of a JSON value; `roots` is what its paths may begin with."""
    paths: list[Path] = []
    fill = _filling(value, roots, paths, 0)
    return Template(_once(paths), fill)


def _once(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(paths))


def _slot(name: str, value: Any, roots: Set[str], paths: list[Path]) -> Read:
    try:
        return _present(_mapped(value, roots, paths, 0))
    except DefinitionError as error:
        raise DefinitionError(f"the output {quoted(name)} cannot be used: {error.message}") from None


def _present(read: Read) -> Read:
    return lambda scope: None if (value := read(scope)) is MISSING else value


def _mapped(value: Any, roots: Set[str], paths: list[Path], depth: int) -> Read:
    _check_depth(depth)
    if isinstance(value, str) and is_path(value):
        return _looked_up(value, roots, paths)
    if isinstance(value, dict) and len(value) == 1:
        ((name, operands),) = value.items()
        if name == "set":
            return _literal(operands, depth)
        if name == "concat":
            return _joined(_operands(name, operands, None, roots, paths, depth))
        if name in _ARITHMETIC:
            return _computed(_ARITHMETIC[name], *_operands(name, operands, 2, roots, paths, depth))
    return _literal(value, depth)


def _operands(name: str, given: Any, count: int | None, roots: Set[str], paths: list[Path], depth: int) -> list[Read]:
    if not isinstance(given, list) or (count is not None and len(given) != count):
        raise DefinitionError(f"{name} needs a list of {'values' if count is None else f'{count} numbers or paths'}")
    if count is not None:
        for operand in given:
            _check_number(name, operand)
    return [_mapped(operand, roots, paths, depth + 1) for operand in given]


def _check_number(name: str, operand: Any) -> None:
    usable = operand is None or _is_number(operand) or (isinstance(operand, dict) and _is_operator(operand))
    if not usable and not (isinstance(operand, str) and is_path(operand)):
        raise DefinitionError(f"{name} needs numbers or paths, not {json.dumps(operand, default=str)[:100]}")


def _is_operator(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in ("set", "concat", *_ARITHMETIC)


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _joined(parts: list[Read]) -> Read:
    return lambda scope: "".join([_text(part(scope)) for part in parts])


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


def _computed(compute: Arithmetic, left: Read, right: Read) -> Read:
    def read(scope: Scope) -> Any:
        one, other = _counted(left(scope)), _counted(right(scope))
        if not _is_number(one) or not _is_number(other):
            return None
        try:
            return _plain(compute(one, other))
        except (ZeroDivisionError, OverflowError):
            return None

    return read


def _counted(value: Any) -> Any:
    return 0 if value is None or value is MISSING else value


def _plain(value: int | float) -> int | float | None:
    """A number as JSON has it: finite, whole ones as integers of at most 64 bits."""
    if isinstance(value, int):
        return value if -_WIDEST <= value < _WIDEST else float(value)
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and -_WIDEST <= value < _WIDEST else value


def _divided(one: Any, other: Any) -> Any:
    # Of large integers only this division is exact.
    if isinstance(one, int) and isinstance(other, int) and one % other == 0:
        return one // other
    return one / other


_ARITHMETIC: Final[dict[str, Arithmetic]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": _divided,
}


def _literal(value: Any, depth: int) -> Read:
    """The value itself, a new one each time, so that nobody changes the definition."""
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


def _filling(value: Any, roots: Set[str], paths: list[Path], depth: int) -> Read:
    _check_depth(depth)
    if isinstance(value, str) and is_path(value):
        return _looked_up(value, roots, paths)
    if isinstance(value, dict):
        return _object({key: _filling(item, roots, paths, depth + 1) for key, item in value.items()})
    if isinstance(value, list):
        return _list([_filling(item, roots, paths, depth + 1) for item in value])
    return lambda scope: value


def _looked_up(text: str, roots: Set[str], paths: list[Path]) -> Read:
    path = parse_path(text, roots)
    paths.append(path)
    return path.get


def _object(entries: dict[str, Read]) -> Read:
    return lambda scope: {key: value for key, read in entries.items() if (value := read(scope)) is not MISSING}


def _list(items: list[Read]) -> Read:
    return lambda scope: [None if (value := read(scope)) is MISSING else value for read in items]


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise DefinitionError(f"it is nested deeper than {DEEPEST} levels")
