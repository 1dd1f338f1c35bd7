"""Expressions: which hold, and the false parts of those that do not."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.errors import DefinitionError
from waypost.workflows.expressions import compile_expression, parse, paths_of, render
from waypost.workflows.scope import GUARD_ROOTS, MISSING, Scope

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
def test_an_expression_holds(text: str) -> None:
    assert holds(text)
    assert compile_expression(text).false_parts(SCOPE) == []


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
def test_an_expression_does_not_hold(text: str) -> None:
    assert not holds(text)
    assert compile_expression(text).false_parts(SCOPE)


def test_a_hostile_pattern_is_matched_in_linear_time() -> None:
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


@pytest.mark.parametrize(
    ("text", "failures"),
    [
        ("$.context.coverage >= 80", [("$.context.coverage >= 80", {"$.context.coverage": 74})]),
        (
            "$.context.tests == true && $.context.coverage>=80",
            [("$.context.coverage >= 80", {"$.context.coverage": 74})],
        ),
        (
            "$.context.missing == 1 && $.context.tests && $.context.coverage >= $.arguments.least",
            [
                ("$.context.missing == 1", {"$.context.missing": MISSING}),
                ("$.context.coverage >= $.arguments.least", {"$.context.coverage": 74, "$.arguments.least": 75}),
            ],
        ),
        (
            "$.context.coverage >= 80 || $.context.waived",
            [
                ("$.context.coverage >= 80", {"$.context.coverage": 74}),
                ("$.context.waived", {"$.context.waived": "yes"}),
            ],
        ),
        (
            "$.context.tests && !($.context.coverage < 80 && $.context.tests)",
            [
                (
                    "!($.context.coverage < 80 && $.context.tests)",
                    {"$.context.coverage": 74, "$.context.tests": True},
                )
            ],
        ),
        (
            "$.context.tests && ($.context.coverage > 80 && true || false)",
            [("$.context.coverage > 80", {"$.context.coverage": 74}), ("false", {})],
        ),
        ("$.context.tests", []),
    ],
)
def test_a_false_expression_lists_its_false_parts(text: str, failures: list[tuple[str, dict[str, Any]]]) -> None:
    scope = Scope({"coverage": 74, "tests": True, "waived": "yes"}, {"least": 75}, {})

    found = compile_expression(text).false_parts(scope)
    read = [{path.text: path.get(scope) for path in paths_of(part)} for part in found]

    assert [*zip(map(render, found), read, strict=True)] == failures


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
