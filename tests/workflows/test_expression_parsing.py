"""Parsing expressions: the resulting tree, and errors with their position."""

from __future__ import annotations

import re

import pytest

from waypost.errors import DefinitionError
from waypost.workflows.expressions import And, Compare, Literal, Not, Or, compile_expression
from waypost.workflows.scope import parse_path


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
def test_an_invalid_expression_is_refused_with_the_position(text: str, why: str) -> None:
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


def test_an_expression_lists_each_path_once() -> None:
    expression = compile_expression("$.context.a == 1 && !($.input.b || $.workflow.input.b) || $.context.a in [2]")

    assert [path.text for path in expression.paths] == ["$.context.a", "$.input.b"]
    assert expression.text.startswith("$.context.a == 1")


def test_an_expression_is_parsed_into_a_tree() -> None:
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
