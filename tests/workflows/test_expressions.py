"""Expressions: what holds, what is refused, and what is said about one that does not hold."""

from __future__ import annotations

import operator
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.errors import DefinitionError
from waypost.workflows.expression_parsing import And, Compare, Literal, Node, Not, Or, parse, render
from waypost.workflows.expressions import Failure, compile_expression, equal
from waypost.workflows.paths import MISSING, Path, parse_path
from waypost.workflows.scope import GUARD_ROOTS, OUTPUT_ROOTS, Scope

CONTEXT: dict[str, Any] = {
    "yes": True,
    "no": False,
    "null": None,
    "one": 1,
    "half": 0.5,
    "big": 10**400,
    "text": "release-1.2",
    "empty": "",
    "list": [1, "two", None, [True], {"k": 1}],
    "flags": [True],
    "object": {"k": [1, 2.0], "l": {"m": "n"}},
    "same": {"l": {"m": "n"}, "k": [1.0, 2]},
    "contains_pii": True,
    "in": 3,
    "odd key": "odd",
    "nan": float("nan"),
}
SCOPE = Scope(CONTEXT, {"env": "prod", "n": 5}, {"who": "ann"}, id="wf_1", state="build", version=4)


def holds(text: str, scope: Scope = SCOPE) -> bool:
    return compile_expression(text).holds(scope)


@pytest.mark.parametrize(
    "text",
    [
        "$.context.yes",
        "true",
        "$.context.yes == true",
        "$.context.no == false",
        "true == $.context.yes",
        "$.context.one == 1",
        "$.context.one == 1.0",
        "1 == 1.0",
        "$.context.one != true",
        "true != 1",
        "[true] != [1]",
        "$.context.flags != [1]",
        "$.context.flags == [true]",
        "0 != false",
        "[1, [2.0]] == [1.0, [2]]",
        "$.context.object == $.context.same",
        "$.context.null == null",
        "$.context.missing == null",
        "$.context.missing.deep[3] == null",
        "$.context.one != null",
        "$.context.missing == $.context.null",
        "$.context.nan != $.context.nan",
        '$.context.text == "release-1.2"',
        "$.context.text == 'release-1.2'",
        '$.context.text != "other"',
        '$.context["odd key"] == "odd"',
        "$.context.one < 2",
        "$.context.one <= 1",
        "$.context.one >= 1",
        "$.context.one > $.context.half",
        "2 > $.context.one",
        "0.5 <= $.context.half",
        "$.context.one > -1e3",
        "$.context.big > 1e300",
        "1e300 < $.context.big",
        '"a" < "b"',
        '"Z" < "a"',
        '"10" < "9"',
        '$.context.text >= "release"',
        '$.context.text starts_with "release"',
        '$.context.text starts_with ""',
        '"release-1.2.3" starts_with $.context.text',
        '$.context.text contains "1.2"',
        '$.context.list contains "two"',
        "$.context.list contains 1.0",
        "$.context.list contains null",
        "$.context.list contains $.context.missing",
        "$.context.list contains [true]",
        "[1, 2] contains $.context.one",
        '$.arguments.env in ["prod", "staging"]',
        "$.context.one in [3, 1]",
        '"two" in $.context.list',
        '"1.2" in $.context.text',
        '$.arguments.env in "production"',
        "$.context.null in [null]",
        '$.context.text matches "^release-[0-9]"',
        '$.context.text matches "[.]2$"',
        r'$.context.text matches "\d\.\d"',
        r'$.context.text matches "\\d\\.\\d"',
        "$.context.text matches 'RELEASE|rel'",
        "$.context.contains_pii == true",
        "$.context.contains_pii",
        "$.context.in == 3",
        "$.context.in in [3]",
        "!$.context.no",
        "!$.context.missing",
        "!!$.context.yes",
        "!$.context.one == 2",
        "!($.context.one == 2)",
        "$.context.yes && $.context.one == 1",
        "$.context.no || $.context.one == 1",
        "$.context.yes || $.context.no && $.context.no",
        "!($.context.yes && $.context.no)",
        "($.context.yes || $.context.no) && !$.context.no",
        "((((true))))",
        "$.context.yes&&!$.context.no&&$.context.one>=1",
        " \n\t true ",
        "$.input.who == 'ann' && $.workflow.input.who == 'ann'",
        "$.workflow.id == 'wf_1' && $.workflow.state == 'build' && $.workflow.version == 4",
        '"it\'s" == "it\'s"',
        r"'it\'s' == " + '"it\'s"',
        r'"tab\there" == "tab\u0009here"',
        "[] == []",
        "$.context.list contains 'two' && $.arguments.n > 4 && true && !false",
    ],
)
def test_it_holds(text: str) -> None:
    assert holds(text)
    assert compile_expression(text).failures(SCOPE) == []


@pytest.mark.parametrize(
    "text",
    [
        "false",
        "null",
        "1",
        '"true"',
        "[true]",
        "$.context.one",
        "$.context.text",
        "$.context.list",
        "$.context.missing",
        "$.context.null",
        "true == 1",
        "1 == true",
        "$.context.yes == 1",
        "$.context.one == true",
        "$.context.no == 0",
        "$.context.no == null",
        "[true] == [1]",
        "[1] == [1, 2]",
        "$.context.one == [1]",
        "[1] == $.context.one",
        '$.context.one == "1"',
        "$.context.object == $.context.list",
        "$.context.nan == $.context.nan",
        "$.context.yes < 2",
        "$.context.yes >= 0",
        "$.context.missing < 1",
        "$.context.missing >= $.context.null",
        "$.context.text < 5",
        '$.context.one < "a"',
        '1 < "a"',
        "$.context.list < $.context.list",
        "$.context.one starts_with '1'",
        '"release" starts_with $.context.text',
        '$.context.object contains "k"',
        '"k" in $.context.object',
        '$.context.one contains "1"',
        "$.context.flags contains 1",
        "$.context.text contains 1",
        "$.context.missing contains null",
        '$.arguments.env in ["Prod"]',
        "$.context.yes in [1]",
        "$.context.one in $.context.text",
        '$.context.one matches "1"',
        '$.context.missing matches ".*"',
        '$.context.text matches "^1"',
        "!$.context.yes",
        "$.context.yes && $.context.no",
        "$.context.no || $.context.missing",
        "$.context.no && $.context.yes || $.context.no",
    ],
)
def test_it_does_not_hold(text: str) -> None:
    assert not holds(text)
    assert compile_expression(text).failures(SCOPE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "position 1: a path or a value is missing before the end"),
        ("   ", "a path or a value is missing"),
        ("$.context.a ==", "position 15: a path or a value is missing before the end"),
        ("== 1", "a path or a value is missing before"),
        ("$.context.a = 1", 'position 13: "=" means nothing here; write =='),
        ("$.context.a & true", "write &&"),
        ("$.context.a | true", "write ||"),
        ("$.context.a and true", "write &&"),
        ("$.context.a OR true", "write ||"),
        ("not true", "write !"),
        ("$.context.a == yes", 'position 16: "yes" means nothing here'),
        ("$.context.a containsx 'b'", "means nothing here"),
        ("$.context.a == 1 == 1", "one operator"),
        ("($.context.a) == 1", "one operator"),
        ("$.context.a $.context.b", "&&, || or the end is missing"),
        ("($.context.a", "a closing parenthesis is missing"),
        ("$.context.a)", "is missing before"),
        ("()", "a path or a value is missing"),
        ("!", "a path or a value is missing"),
        ("true &&", "a path or a value is missing"),
        ("[1, 2", "a comma or a closing bracket"),
        ("[1 2]", "a comma or a closing bracket"),
        ("[1,]", "a path or a value is missing"),
        ("[$.context.a] contains 1", "a list holds values, not paths"),
        ("'open", "does not end"),
        ('"open', "does not end"),
        ("007 == 7", "means nothing here"),
        ("1.5.2 == 1", "means nothing here"),
        ("1e999 == 1", "too large"),
        ("{} == 1", "means nothing here"),
        ("true == $.secrets.x", "position 9: $.secrets is not known here"),
        ("$.output.x == 1", "$.output is not known here"),
        ("$.context. == 1", "a name is missing"),
        ("$.workflow.owner == 1", "goes on with"),
        ("$.context.a < true", "< compares numbers or texts, not true"),
        ("null >= $.context.a", ">= compares numbers or texts, not null"),
        ("$.context.a > [1]", "> compares numbers or texts, not [1]"),
        ("$.context.a starts_with 5", "starts_with compares texts, not 5"),
        ("5 starts_with $.context.a", "starts_with compares texts, not 5"),
        ("5 contains $.context.a", "contains looks into a text or a list, not 5"),
        ("$.context.a in 5", "in looks into a text or a list, not 5"),
        ("5 matches 'a'", "matches looks at a text, not 5"),
        ("$.context.a matches 5", "matches needs a regular expression in quotes"),
        ("$.context.a matches $.context.b", "matches needs a regular expression in quotes"),
        ("$.context.a matches '('", "is not a regular expression"),
        ("$.context.a matches '(?=x)'", "is not a regular expression"),
        (r"$.context.a matches '(a)\1'", "is not a regular expression"),
        (r"$.context.a matches 'a\b'", "backspace"),
        ("$.context.a matches '" + "(a{99}){99}" * 9 + "{99}'", "is not a regular expression"),
        ("true && " * 600 + "true", "longer than 4096"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_position(text: str, why: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        compile_expression(text)

    assert why in caught.value.message
    assert re.search(r"cannot be read at position \d+: ", caught.value.message)


@pytest.mark.parametrize(("before", "after"), [("(", ")"), ("!", ""), ("[", "]"), ("!(", ")")])
def test_nesting_is_bounded(before: str, after: str) -> None:
    levels = 64 // (len(before.replace("[", "(")))

    assert compile_expression(before * levels + "true" + after * levels)
    with pytest.raises(DefinitionError, match="nested deeper than 64"):
        compile_expression(before * (levels + 1) + "true" + after * (levels + 1))
    with pytest.raises(DefinitionError, match="nested deeper than 64"):
        compile_expression(before * 1300)


def test_more_roots_are_given_where_there_is_more_to_look_at() -> None:
    expression = compile_expression("$.output.n > 3", OUTPUT_ROOTS)

    assert expression.holds(SCOPE.within(output={"n": 4}))


def test_a_hostile_pattern_takes_no_longer_than_another() -> None:
    expression = compile_expression("$.context.a matches '^(a+)+$'")
    scope = Scope({"a": "a" * 50_000 + "!"}, {}, {})
    before = time.process_time()

    assert not expression.holds(scope)
    assert time.process_time() - before < 2


def test_data_nested_deeper_than_the_stack_is_compared() -> None:
    one: Any = 1
    other: Any = 1.0
    for _ in range(50_000):
        one, other = [one], [other]

    assert compile_expression("$.context.a == $.context.b").holds(Scope({"a": one, "b": other}, {}, {}))


def test_an_expression_names_each_place_it_looks_at_once() -> None:
    expression = compile_expression("$.context.a == 1 && !($.input.b || $.workflow.input.b) || $.context.a in [2]")

    assert [path.text for path in expression.paths] == ["$.context.a", "$.input.b"]
    assert expression.text.startswith("$.context.a == 1")


def test_the_tree_says_what_was_written() -> None:
    tree = compile_expression("$.context.a >= 80 && ($.context.b || !($.arguments.c in ['x', 1]))").tree

    assert tree == And(
        (
            Compare(">=", parse_path("$.context.a"), Literal.of(80)),
            Or(
                (
                    parse_path("$.context.b"),
                    Not(Compare("in", parse_path("$.arguments.c"), Literal.of(["x", 1]))),
                )
            ),
        )
    )
    assert Literal.of(True) != Literal.of(1)


@pytest.mark.parametrize(
    ("text", "failures"),
    [
        ("$.context.coverage >= 80", [Failure("$.context.coverage >= 80", {"$.context.coverage": 74})]),
        (
            "$.context.tests == true && $.context.coverage>=80",
            [Failure("$.context.coverage >= 80", {"$.context.coverage": 74})],
        ),
        (
            "$.context.missing == 1 && $.context.tests && $.context.coverage >= $.arguments.least",
            [
                Failure("$.context.missing == 1", {"$.context.missing": None}),
                Failure("$.context.coverage >= $.arguments.least", {"$.context.coverage": 74, "$.arguments.least": 75}),
            ],
        ),
        (
            "$.context.coverage >= 80 || $.context.waived",
            [
                Failure("$.context.coverage >= 80", {"$.context.coverage": 74}),
                Failure("$.context.waived", {"$.context.waived": "yes"}),
            ],
        ),
        (
            "$.context.tests && !($.context.coverage < 80 && $.context.tests)",
            [
                Failure(
                    "!($.context.coverage < 80 && $.context.tests)",
                    {"$.context.coverage": 74, "$.context.tests": True},
                )
            ],
        ),
        (
            "$.context.tests && ($.context.coverage > 80 && true || false)",
            [Failure("$.context.coverage > 80", {"$.context.coverage": 74}), Failure("false", {})],
        ),
        ("$.context.tests", []),
    ],
)
def test_a_false_expression_says_which_parts_were_false(text: str, failures: list[Failure]) -> None:
    scope = Scope({"coverage": 74, "tests": True, "waived": "yes"}, {"least": 75}, {})

    assert compile_expression(text).failures(scope) == failures


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
    """Equality of JSON values, said as plainly as possible."""
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
    """Whether a tree holds, by the words of the documentation."""
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
    assert bool(expression.failures(scope)) is not expression.holds(scope)


@given(TREES)
def test_what_is_written_down_reads_as_the_same_tree(tree: Node) -> None:
    assert parse(render(tree), GUARD_ROOTS) == tree


SYMBOLS = ["$", "$.", "==", "<", "!", "&&", "||", "(", ")", "[", "]", ",", '"', "'", "\\", "-", " ", "\x00"]
WORDS = [
    "$.context.a",
    "$.arguments",
    "1",
    "1e5",
    "true",
    "null",
    "in",
    "matches",
    "contains",
    '"a"',
    "'b'",
    "\\u12",
    "é",
]
PIECES = st.sampled_from([*SYMBOLS, *WORDS])


@given(st.text(max_size=30) | st.lists(PIECES, max_size=12).map("".join) | st.lists(PIECES, max_size=12).map(" ".join))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        expression = compile_expression(text)
    except DefinitionError:
        return

    assert expression.holds(SCOPE) in (True, False)
    assert parse(render(expression.tree), GUARD_ROOTS) == expression.tree


@given(JSON, JSON)
def test_equality_is_that_of_json(one: Any, other: Any) -> None:
    assert equal(one, other) is same(one, other)
    assert equal(one, other) is equal(other, one)
