"""Filters: which calls an observer receives, as operators over paths.

`{"input.amount": {"$gte": 500}, "$not": {"caller.worker_name": {"$prefix": "test"}}}`. Every clause has to hold. There
is no shorthand: a path always has an object of operators, and a dot within a name is written as `\\.`. Workers evaluate
the same filters themselves, so validity, limits and matches have to be the same on both sides.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from waypost.errors import InvocationFailed

ROOTS: Final = ("input", "output", "error", "caller", "metadata")
"""The parts of a call that a path may begin with."""
ELEMENT: Final = "@"
"""The root of paths within `$any`: the element of the list."""
MAX_PATH_STEPS: Final = 16

_STEP: Final = re.compile(r"(?:[^.\\]|\\[.\\])+")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,14}")


ABSENT: Final = object()
"""The value of a path that leads nowhere."""

Find: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""Finds the value of a path in the parts of a call; `ABSENT` if there is none."""


def invalid(why: str) -> InvocationFailed:
    """The error for a filter that is not valid."""
    return InvocationFailed(f"The filter cannot be used: {why}.", "INVALID_FILTER")


def read_path(path: str, *, in_element: bool) -> tuple[str, Find]:
    """Parse a path; returns its root, and a function that finds its value."""
    root, *steps = _split_path(path)
    if in_element and root != ELEMENT:
        raise invalid(f"within `$any` the path `{path}` has to begin with `{ELEMENT}`, the element")
    if not in_element and root not in ROOTS:
        raise invalid(f"the path `{path}` begins with none of {', '.join(ROOTS)}")
    if len(steps) > MAX_PATH_STEPS:
        raise invalid(f"the path `{path}` has {len(steps)} steps and may have {MAX_PATH_STEPS}")
    return root, _build_finder(root, steps)


def _split_path(path: str) -> list[str]:
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


def _build_finder(root: str, steps: list[str]) -> Find:
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


MAX_DEPTH: Final = 8
"""Levels of `$or`, `$not` and `$any`."""
MAX_OPERATORS: Final = 64
MAX_CHOICES: Final = 256
"""Values of one `$in` or `$nin`."""
MAX_FILTER_BYTES: Final = 8192
_MAX_EXACT_NUMBER: Final = 2**53
"""Beyond it, decoders that use doubles and those that use integers differ."""
_MAX_LITERAL_DEPTH: Final = 32
_MAX_JSON_DEPTH: Final = 120

Test: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Whether the parts of a call match."""
Check: TypeAlias = Callable[[Any], bool]
"""Whether one value matches; it may be `ABSENT`."""

_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class Filter:
    """A valid filter, compiled to functions."""

    __slots__ = ("_test", "roots", "source")

    def __init__(self, source: Any = None) -> None:
        self.source: dict[str, Any] = {} if source is None else source
        _check_limits(self.source)
        compiler = _Compiler()
        self._test = compiler.test(self.source, 1, in_element=False)
        self.roots = frozenset(compiler.roots)
        """The parts of a call that it reads."""

    def matches(self, document: Mapping[str, Any]) -> bool:
        """Whether a call matches, given its parts by root."""
        return self._test(document)


class _Compiler:
    """Compiles one filter, and counts its operators."""

    def __init__(self) -> None:
        self.roots: set[str] = set()
        self._nodes = 0

    def test(self, given: Any, depth: int, *, in_element: bool) -> Test:
        if depth > MAX_DEPTH:
            raise invalid(f"it goes deeper than {MAX_DEPTH} levels")
        tests: list[Test] = []
        waiting = [given]  # `$and` is no level of its own, so it may go as deep as JSON does
        while waiting:
            one = _require_object(waiting.pop())
            waiting.extend(_require_filters(one["$and"], "$and") if "$and" in one else ())
            tests.extend(self._clause(key, one[key], depth, in_element) for key in one if key != "$and")
        if len(tests) == 1:
            return tests[0]
        return lambda document: all(test(document) for test in tests)

    def _clause(self, key: str, given: Any, depth: int, in_element: bool) -> Test:
        if key == "$or":
            self._count()
            tests = [self.test(one, depth + 1, in_element=in_element) for one in _require_filters(given, key)]
            return lambda document: any(test(document) for test in tests)
        if key == "$not":
            self._count()
            test = self.test(given, depth + 1, in_element=in_element)
            return lambda document: not test(document)
        if key.startswith("$"):
            raise invalid(f"`{key}` cannot stand in place of a path")
        root, find = read_path(key, in_element=in_element)
        if root != ELEMENT:
            self.roots.add(root)
        check = self._checks(key, given, depth)
        return lambda document: check(find(document))

    def _checks(self, path: str, given: Any, depth: int) -> Check:
        if not isinstance(given, dict) or not given or not all(key.startswith("$") for key in given):
            raise invalid(f'`{path}` needs operators, such as {{"$eq": ...}}')
        checks = [self._check(path, name, operand, depth) for name, operand in given.items()]
        if len(checks) == 1:
            return checks[0]
        return lambda value: all(check(value) for check in checks)

    def _check(self, path: str, name: str, operand: Any, depth: int) -> Check:
        self._count()
        if name == "$any":
            return self._any(path, operand, depth + 1)
        build = _BUILDERS.get(name)
        if build is None:
            raise invalid(f"`{path}` has an operator `{name}`, and there is none")
        return build(path, operand)

    def _any(self, path: str, operand: Any, depth: int) -> Check:
        if not isinstance(operand, dict):
            raise invalid(f"`{path}` has an `$any` that is not an object")
        if depth > MAX_DEPTH:
            raise invalid(f"it goes deeper than {MAX_DEPTH} levels")
        if operand and _CHECKS.issuperset(operand):
            check = self._checks(path, operand, depth)
            return lambda value: isinstance(value, list) and any(check(one) for one in value)
        test = self.test(operand, depth, in_element=True)
        return lambda value: isinstance(value, list) and any(test({ELEMENT: one}) for one in value)

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MAX_OPERATORS:
            raise invalid(f"it has more than {MAX_OPERATORS} operators")


def is_same_json(value: Any, literal: Any) -> bool:
    """Whether two values are the same JSON; numbers are compared as doubles."""
    if isinstance(literal, dict):
        return (
            isinstance(value, dict)
            and value.keys() == literal.keys()
            and all(is_same_json(value[key], literal[key]) for key in literal)
        )
    if isinstance(literal, list):
        return (
            isinstance(value, list)
            and len(value) == len(literal)
            and all(is_same_json(one, other) for one, other in zip(value, literal, strict=True))
        )
    if _is_number(literal):
        number = _to_double(value)
        return number is not None and number == float(literal)
    if literal is None:  # a number that is too large for a double is null to other decoders
        return value is None or (_is_number(value) and _to_double(value) is None)
    return type(value) is type(literal) and bool(value == literal)


def _equal(path: str, operand: Any) -> Check:
    _check_depth(path, operand)
    return lambda value: value is not ABSENT and is_same_json(value, operand)


def _among(path: str, operand: Any) -> Check:
    if not isinstance(operand, list) or len(operand) > MAX_CHOICES:
        raise invalid(f"`{path}` needs a list of at most {MAX_CHOICES} values")
    for one in operand:
        _check_depth(path, one)
    # Plain values are looked up in a set: 256 of them would otherwise be compared with every call of a busy function.
    nested = [one for one in operand if isinstance(one, (dict, list))]
    plain = {_to_key(one) for one in operand if not isinstance(one, (dict, list))}

    def check(value: Any) -> bool:
        if isinstance(value, (dict, list)):
            return any(is_same_json(value, one) for one in nested)
        return value is not ABSENT and _to_key(value) in plain

    return check


def _existing(path: str, operand: Any) -> Check:
    if not isinstance(operand, bool):
        raise invalid(f"`{path}` has an `$exists` that is neither true nor false")
    return lambda value: (value is not ABSENT) is operand


def _prefixed(path: str, operand: Any) -> Check:
    if not isinstance(operand, str):
        raise invalid(f"`{path}` has a `$prefix` that is not a text")
    return lambda value: isinstance(value, str) and value.startswith(operand)


def _negated(build: Callable[[str, Any], Check]) -> Callable[[str, Any], Check]:
    def build_negated(path: str, operand: Any) -> Check:
        check = build(path, operand)
        return lambda value: not check(value)

    return build_negated


def _ordered(name: str, path: str, operand: Any) -> Check:
    holds = _ORDER[name]
    if isinstance(operand, str):
        return lambda value: isinstance(value, str) and holds(value, operand)
    if not _is_number(operand):
        raise invalid(f"`{path}` has a `{name}` that is neither a number nor a text")
    bound = float(operand)

    def check(value: Any) -> bool:
        number = _to_double(value)
        return number is not None and holds(number, bound)

    return check


_BUILDERS: Final[dict[str, Callable[[str, Any], Check]]] = {
    "$eq": _equal,
    "$ne": _negated(_equal),
    "$in": _among,
    "$nin": _negated(_among),
    "$exists": _existing,
    "$prefix": _prefixed,
    **{name: partial(_ordered, name) for name in _ORDER},
}
_CHECKS: Final = frozenset(("$any", *_BUILDERS))


def _require_object(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise invalid(f"a filter is an object, not {type(given).__name__}")
    return given


def _require_filters(given: Any, name: str) -> list[Any]:
    if not isinstance(given, list) or not given:
        raise invalid(f"`{name}` takes a list of filters that is not empty")
    return given


def _check_depth(path: str, literal: Any) -> None:
    if any(depth > _MAX_LITERAL_DEPTH for _, depth in _containers(literal)):
        raise invalid(f"`{path}` has a value that is deeper than {_MAX_LITERAL_DEPTH} levels")


def _check_limits(source: Any) -> None:
    _require_object(source)
    for container, depth in _containers(source):
        if depth > _MAX_JSON_DEPTH:
            raise invalid(f"its JSON is deeper than {_MAX_JSON_DEPTH} levels")
        for one in _members(container):
            if _is_number(one) and not abs(one) <= _MAX_EXACT_NUMBER:
                raise invalid(f"the number {one} is beyond 2^53, where decoders differ")
    if len(msgspec.json.encode(source)) > MAX_FILTER_BYTES:
        raise invalid(f"it has more than {MAX_FILTER_BYTES} bytes")


def _containers(value: Any) -> Iterator[tuple[Any, int]]:
    """Every object and list in a value, with its depth."""
    waiting = [(value, 1)]
    while waiting:
        one, depth = waiting.pop()
        if isinstance(one, (dict, list)):
            yield one, depth
            waiting.extend((member, depth + 1) for member in _members(one))


def _members(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _to_key(value: Any) -> Any:
    """A key that is equal for equal scalars."""
    if not _is_number(value):
        # In a tuple, because to Python `True == 1`.
        return (value,)
    number = _to_double(value)
    return (None,) if number is None else number


def _to_double(value: Any) -> float | None:
    """A number as a double; nothing if it is not a number, or too large."""
    if not _is_number(value):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
