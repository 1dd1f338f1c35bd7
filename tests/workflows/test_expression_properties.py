"""Random expressions hold as documented, and parse to the tree they were rendered from."""

from __future__ import annotations

import operator
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from waypost.workflows.expressions import And, Compare, Literal, Node, Not, Or, compile_expression, equal, parse, render
from waypost.workflows.scope import GUARD_ROOTS, MISSING, Path, Scope, parse_path

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, -2.0, 1e300, 10**30])
    | st.sampled_from(["", "a", "ab", "b", "quo'te\"", "\\d\n", "ö"])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
JSON = st.recursive(
    SCALARS | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
CONTEXTS = st.dictionaries(NAMES, JSON)
PATHS = st.builds(
    lambda root, name, rest: parse_path(f"$.{root}.{name}{rest}"),
    st.sampled_from(["context", "arguments", "input", "workflow.input"]),
    NAMES,
    st.sampled_from(["", "", ".a", "[0]", '["b"][1]']),
)
ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
PATTERNS = st.sampled_from(["", "a", "^a", "b$", "[ab]+", "ö|x"])


def literals(*types: type) -> st.SearchStrategy[Literal]:
    return VALUES.filter(lambda value: type(value) in types).map(Literal.of)


ANY_OPERAND = PATHS | VALUES.map(Literal.of)
ORDERED_OPERAND = PATHS | literals(int, float, str)
TEXT_OPERAND = PATHS | literals(str)
HOLDER = PATHS | literals(str, list)
COMPARISONS = st.one_of(
    st.builds(Compare, st.sampled_from(["==", "!="]), ANY_OPERAND, ANY_OPERAND),
    st.builds(Compare, st.sampled_from(sorted(ORDERS)), ORDERED_OPERAND, ORDERED_OPERAND),
    st.builds(Compare, st.just("starts_with"), TEXT_OPERAND, TEXT_OPERAND),
    st.builds(Compare, st.just("contains"), HOLDER, ANY_OPERAND),
    st.builds(Compare, st.just("in"), ANY_OPERAND, HOLDER),
    st.builds(Compare, st.just("matches"), TEXT_OPERAND, PATTERNS.map(Literal.of)),
)


def parts(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[tuple[Node, ...]]:
    return st.lists(inner, min_size=2, max_size=4).map(tuple)


def joined(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.builds(And, parts(inner)) | st.builds(Or, parts(inner)) | st.builds(Not, inner)


TREES: st.SearchStrategy[Node] = st.recursive(ANY_OPERAND | COMPARISONS, joined, max_leaves=8)


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values, written as simply as possible."""
    if isinstance(one, bool) or isinstance(other, bool):
        return isinstance(one, bool) and isinstance(other, bool) and one == other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other if not is_number(one) else is_number(other) and one == other


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def judged(node: Node, scope: Scope) -> bool:
    """Whether a tree holds, according to the documentation."""
    match node:
        case And(parts):
            return all(judged(part, scope) for part in parts)
        case Or(parts):
            return any(judged(part, scope) for part in parts)
        case Not(part):
            return not judged(part, scope)
        case Compare(op, left, right):
            return compared(op, valued(left, scope), valued(right, scope))
        case _:
            return valued(node, scope) is True


def valued(operand: Literal | Path, scope: Scope) -> Any:
    if isinstance(operand, Literal):
        return operand.value
    value = operand.get(scope)
    return None if value is MISSING else value


def compared(op: str, left: Any, right: Any) -> bool:
    texts = isinstance(left, str) and isinstance(right, str)
    if op == "in":
        return compared("contains", right, left)
    if op in ("==", "!="):
        return same(left, right) is (op == "==")
    if op in ORDERS:
        return bool((texts or (is_number(left) and is_number(right))) and ORDERS[op](left, right))
    if op == "contains" and isinstance(left, list):
        return any(same(item, right) for item in left)
    if not texts:
        return False
    if op == "matches":
        return re.search(right.replace("$", r"\Z"), left) is not None
    return left.startswith(right) if op == "starts_with" else right in left


@given(TREES, CONTEXTS, CONTEXTS, CONTEXTS)
def test_every_expression_holds_when_it_should(tree: Node, context: Any, arguments: Any, given_input: Any) -> None:
    expression = compile_expression(render(tree))
    scope = Scope(context, arguments, given_input)

    assert expression.holds(scope) is judged(tree, scope)
    assert bool(expression.false_parts(scope)) is not expression.holds(scope)


@given(TREES)
def test_a_rendered_expression_parses_to_the_same_tree(tree: Node) -> None:
    assert parse(render(tree), GUARD_ROOTS) == tree


@given(JSON, JSON)
def test_equality_is_that_of_json(one: Any, other: Any) -> None:
    assert equal(one, other) is same(one, other)
    assert equal(one, other) is equal(other, one)
