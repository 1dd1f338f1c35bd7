"""Expressions such as `$.context.tests == true && $.context.coverage >= 80`: compiled once, then asked often.

Values are compared as JSON: a missing path is null, booleans are not numbers, 1 equals 1.0, lists and objects are equal
when all of them is. `<` and its like compare two numbers or two texts; `contains` finds a text in a text or a value in
a list, `in` is the same the other way round. Whatever does not fit its operator is false, and nothing raises.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from waypost.workflows.expression_parsing import (
    ORDERED,
    And,
    Compare,
    Literal,
    Node,
    Not,
    Operand,
    Or,
    matcher,
    parse,
    paths_of,
    render,
)
from waypost.workflows.paths import MISSING, Path
from waypost.workflows.scope import GUARD_ROOTS, Scope

Test = Callable[[Scope], bool]
Relation = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of an expression that was false, and what its paths stood for."""

    text: str
    operands: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Part:
    node: Node
    holds: Test
    parts: tuple[_Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression."""

    text: str
    tree: Node
    paths: tuple[Path, ...]
    """Where it looks, each place once."""
    holds: Test = field(compare=False, repr=False)
    _root: _Part = field(compare=False, repr=False)

    def failures(self, scope: Scope) -> list[Failure]:
        """The parts that make it false, with what they looked at; empty when it holds."""
        return [Failure(render(node), _operands(node, scope)) for node in self.false_parts(scope)]

    def false_parts(self, scope: Scope) -> list[Node]:
        """The parts that make it false: of `&&` the false ones, of `||` all, of `!` the whole."""
        return _false_parts(self._root, scope)


def compile_expression(text: str, roots: Set[str] = GUARD_ROOTS) -> Expression:
    """An expression out of its text; `roots` is what its paths may begin with."""
    tree = parse(text, roots)
    part = _compiled(tree)
    return Expression(text, tree, tuple(dict.fromkeys(paths_of(tree))), part.holds, part)


def equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same."""
    # Not recursive, for data that is nested deeper than Python's stack.
    pairs = [(left, right)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, dict):
            if not isinstance(other, dict) or one.keys() != other.keys():
                return False
            pairs.extend((value, other[key]) for key, value in one.items())
        elif isinstance(one, list | tuple):
            if not isinstance(other, list | tuple) or len(one) != len(other):
                return False
            pairs.extend(zip(one, other, strict=True))
        elif one is True or one is False or other is True or other is False:
            if one is not other:
                return False
        elif one != other:
            return False
    return True


def _unequal(left: Any, right: Any) -> bool:
    return not equal(left, right)


def _ordered(compare: Relation, left: Any, right: Any) -> bool:
    if type(left) is str:
        return type(right) is str and compare(left, right)
    return _is_number(left) and _is_number(right) and compare(left, right)


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _starts_with(left: Any, right: Any) -> bool:
    return isinstance(left, str) and isinstance(right, str) and left.startswith(right)


def _contains(left: Any, right: Any) -> bool:
    if isinstance(left, str):
        return isinstance(right, str) and right in left
    return isinstance(left, list | tuple) and any(equal(item, right) for item in left)


def _within(left: Any, right: Any) -> bool:
    return _contains(right, left)


_ORDER: Final[dict[str, Relation]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_RELATIONS: Final[dict[str, Relation]] = {
    "==": equal,
    "!=": _unequal,
    "starts_with": _starts_with,
    "contains": _contains,
    "in": _within,
    **{op: partial(_ordered, compare) for op, compare in _ORDER.items()},
}
_MIRRORED: Final = {
    "==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "contains": "in", "in": "contains",
}  # fmt: skip


def _compiled(node: Node) -> _Part:
    match node:
        case And(nodes):
            parts = tuple(_compiled(part) for part in nodes)
            return _Part(node, _all([part.holds for part in parts]), parts)
        case Or(nodes):
            parts = tuple(_compiled(part) for part in nodes)
            return _Part(node, _any([part.holds for part in parts]), parts)
        case Not(inner):
            return _Part(node, _negated(_compiled(inner).holds))
        case Compare():
            return _Part(node, _comparison(node))
        case Literal():
            return _Part(node, _constant(node.value is True))
        case Path():
            return _Part(node, _is(node.get, True))


def _all(tests: list[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        return lambda scope: first(scope) and second(scope)

    def holds(scope: Scope) -> bool:
        for test in tests:  # noqa: SIM110 - a generator costs more than the tests
            if not test(scope):
                return False
        return True

    return holds


def _any(tests: list[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        return lambda scope: first(scope) or second(scope)

    def holds(scope: Scope) -> bool:
        for test in tests:  # noqa: SIM110 - a generator costs more than the tests
            if test(scope):
                return True
        return False

    return holds


def _negated(test: Test) -> Test:
    return lambda scope: not test(scope)


def _constant(value: bool) -> Test:
    return lambda scope: value


def _is(get: Callable[[Scope], Any], wanted: bool) -> Test:
    return lambda scope: get(scope) is wanted


def _comparison(node: Compare) -> Test:
    op, left, right = node.op, node.left, node.right
    if op == "matches":
        return _matches(_reader(left), str(right.value if isinstance(right, Literal) else ""))
    if isinstance(left, Literal) and isinstance(right, Path) and op in _MIRRORED:
        op, left, right = _MIRRORED[op], right, left
    if isinstance(left, Path) and isinstance(right, Literal):
        return _path_and_value(op, left, right.value)
    return _related(_RELATIONS[op], _reader(left), _reader(right))


def _path_and_value(op: str, path: Path, value: Any) -> Test:
    """The shape nearly every comparison has, without what it does not need."""
    get = path.get
    if op in ("==", "!=") and not isinstance(value, list):
        test = _equal_to(get, value)
        return test if op == "==" else _negated(test)
    if op in ORDERED:
        return _beside_text(get, _ORDER[op], value) if isinstance(value, str) else _beside(get, _ORDER[op], value)
    if op == "in" and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return _one_of(get, frozenset(value))
    relation, read = _RELATIONS[op], _reader(path)
    return lambda scope: relation(read(scope), value)


def _equal_to(get: Callable[[Scope], Any], value: Any) -> Test:
    if isinstance(value, bool):
        return _is(get, value)
    if value is None:
        return lambda scope: (found := get(scope)) is None or found is MISSING
    if isinstance(value, str):
        return lambda scope: bool(get(scope) == value)
    return lambda scope: (found := get(scope)) == value and found is not True and found is not False


def _beside(get: Callable[[Scope], Any], compare: Relation, bound: Any) -> Test:
    def holds(scope: Scope) -> bool:
        found = get(scope)
        kind = type(found)
        return (kind is int or kind is float) and compare(found, bound)

    return holds


def _beside_text(get: Callable[[Scope], Any], compare: Relation, bound: str) -> Test:
    return lambda scope: type(found := get(scope)) is str and compare(found, bound)


def _one_of(get: Callable[[Scope], Any], values: frozenset[str]) -> Test:
    return lambda scope: type(found := get(scope)) is str and found in values


def _related(relation: Relation, left: Callable[[Scope], Any], right: Callable[[Scope], Any]) -> Test:
    return lambda scope: relation(left(scope), right(scope))


def _matches(read: Callable[[Scope], Any], pattern: str) -> Test:
    fits = matcher(pattern)
    return lambda scope: type(found := read(scope)) is str and fits(found)


def _reader(operand: Operand) -> Callable[[Scope], Any]:
    if isinstance(operand, Literal):
        value = operand.value
        return lambda scope: value
    get = operand.get
    return lambda scope: None if (found := get(scope)) is MISSING else found


def _false_parts(part: _Part, scope: Scope) -> list[Node]:
    if part.holds(scope):
        return []
    if part.parts:
        return [node for inner in part.parts for node in _false_parts(inner, scope)]
    return [part.node]


def _operands(node: Node, scope: Scope) -> dict[str, Any]:
    return {path.text: _reader(path)(scope) for path in paths_of(node)}
