"""Only guards that can never hold are reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.workflows.checks.conftest import Checker
from tests.workflows.checks.definitions import GUARDS
from waypost.capabilities.principals import Principal
from waypost.errors import DefinitionError
from waypost.kinds import GuardModel, convert
from waypost.workflows.data_flow import can_hold
from waypost.workflows.guards import compile_guards
from waypost.workflows.guards.expr import ExprGuard
from waypost.workflows.scope import Proof, Scope

NEVER = [
    "$.context.a == 1 && $.context.a == 2",
    "$.context.a > 5 && $.context.a < 3",
    "$.context.a > 5 && 5 >= $.context.a",
    "$.context.a >= 5 && $.context.a <= 5 && $.context.a != 5",
    "$.context.a > 10 && !($.context.a > 5)",
    "$.context.a > 5 && $.context.a == 'x'",
    "$.context.a > 5 && $.context.a > 'x'",
    "$.context.a > 'm' && $.context.a < 'c'",
    "$.context.a && !$.context.a",
    "$.context.a && $.context.a == false",
    "$.context.a == 1 && $.context.a != 1",
    "$.context.a == null && $.context.a > 0",
    "$.context.a in ['x', 'y'] && $.context.a == 'z'",
    "$.context.a in ['x', 'y'] && $.context.a starts_with 'z'",
    "$.context.a in []",
    "$.context.a starts_with 'x' && $.context.a starts_with 'y'",
    "$.context.a matches '^x' && $.context.a == 'y'",
    "$.context.a matches 'x' && $.context.a > 1",
    "$.context.a contains 1 && $.context.a starts_with 'x'",
    "$.context.a == $.input.b && $.context.a != $.input.b",
    "$.context.a < $.context.a",
    "$.workflow.input.a == 1 && $.input.a == 2",
    "false",
    "1",
    "1 > 2",
    "!true",
    "($.context.a == 1 || $.context.a == 2) && $.context.a == 3",
]
SOMETIMES = [
    "$.context.a == 1 && $.context.b == 2",
    "$.context.a == 1 && $.context.a == 1.0",
    "$.context.a > 1 && $.context.a < 2",
    "$.context.a >= 5 && $.context.a <= 5",
    "!($.context.a < 5) && !($.context.a >= 5)",
    "$.context.a != 1 && $.context.a != 2",
    "$.context.a contains 'x' && $.context.a contains 'y'",
    "$.context.a starts_with 'x' && $.context.a starts_with 'xy'",
    "$.context.a == 1 || false",
    "!$.context.a && $.context.a != false",
    "$.context.a <= $.context.a",
    "$.context.a == 1 && $.context.a.b == 2",
    "$.context.a in [1, 2] && $.context.a > 1",
    "true",
]


@pytest.mark.parametrize("expression", NEVER)
def test_a_contradiction_is_detected(expression: str) -> None:
    assert not can_hold([ExprGuard(expr=expression)])


@pytest.mark.parametrize("expression", SOMETIMES)
def test_a_satisfiable_expression_is_not_a_finding(expression: str) -> None:
    assert can_hold([ExprGuard(expr=expression)])


@pytest.mark.parametrize(
    ("guards", "holds"),
    [
        ([], True),
        ([{"kind": "any_of", "guards": []}], False),
        ([{"kind": "all_of", "guards": []}], True),
        ([{"kind": "not", "guard": {"kind": "all_of", "guards": []}}], False),
        ([{"kind": "role", "role": "a"}, {"kind": "not", "guard": {"kind": "role", "role": "a"}}], False),
        ([{"kind": "role", "role": "a"}, {"kind": "not", "guard": {"kind": "role", "role": "b"}}], True),
        ([{"kind": "role", "role": "a"}, {"kind": "not", "guard": {"kind": "permission", "permission": "a"}}], True),
        (
            [
                {"kind": "evidence", "requires": [{"kind": "k", "count": 2}]},
                {"kind": "not", "guard": {"kind": "evidence", "requires": ["k"]}},
            ],
            False,
        ),
        (
            [
                {"kind": "evidence", "requires": ["k"]},
                {"kind": "not", "guard": {"kind": "evidence", "requires": [{"kind": "k", "count": 2}]}},
            ],
            True,
        ),
        ([{"kind": "expr", "expr": "$.context.a == 1"}, {"kind": "expr", "expr": "$.context.a == 2"}], False),
        ([{"kind": "expr", "expr": "this is no expression"}], True),
    ],
)
def test_all_kinds_of_guards_are_understood(guards: list[dict[str, Any]], holds: bool) -> None:
    assert can_hold(convert(guards, list[GuardModel])) is holds


def test_guards_with_too_many_alternatives_are_not_checked() -> None:
    some = " || ".join(f"$.context.a{n} == {n}" for n in range(20))
    assert can_hold([*(ExprGuard(expr=f"({some})") for _ in range(3)), ExprGuard(expr="false")])


VALUES = st.sampled_from([None, True, False, 0, 1, 2.5, -3, "a", "ab", "b", [1, 2], ["a", "b"], {"x": 1}])
SLOTS = st.dictionaries(st.sampled_from(["x", "y", "z"]), VALUES)


@settings(max_examples=300, deadline=None)
@given(st.lists(GUARDS, max_size=3), SLOTS, SLOTS, SLOTS, st.sets(st.sampled_from(["lead", "human", "p", "q"])))
def test_guards_that_hold_for_some_values_are_never_reported_as_unsatisfiable(
    data: list[dict[str, Any]], context: Any, arguments: Any, given_input: Any, has: set[str]
) -> None:
    guards = convert(data, list[GuardModel])
    principal = Principal(id="somebody", roles=tuple(has), permissions=tuple(has))
    proofs = [Proof("k", "one", 1), Proof("k", "two", 1), Proof("cli", "one", 1)]
    scope = Scope(context, arguments, given_input, principal=principal, evidence=proofs)

    try:
        compiled = compile_guards(guards)
    except DefinitionError:
        reject()
    if compiled.holds(scope):
        assert can_hold(guards)


FLOW = """\
capabilities:
  push: {executor: {kind: noop}, guards: [{kind: role, role: lead}]}
workflows:
  w:
    initialState: a
    initialContext: {n: 1}
    states:
      a:
        transitions:
          go:
            target: b
            executor: {capability: push}
            guards: GUARDS
          other: {target: b, branches: [{when: {kind: expr, expr: "false"}, target: b}]}
      b: {terminal: true}
"""


@pytest.mark.parametrize(
    ("guards", "key"),
    [
        ("[{kind: expr, expr: 'false'}]", "guards[0].expr"),
        ("[{kind: all_of, guards: [{kind: expr, expr: 'false'}]}]", "guards[0]"),
        ("[{kind: expr, expr: $.context.n == 1}, {kind: expr, expr: $.context.n == 2}]", "guards"),
        ("[{kind: not, guard: {kind: role, role: lead}}]", "executor"),
    ],
)
def test_the_finding_names_the_contradicting_guard(guards: str, key: str, check: Checker) -> None:
    found = check(FLOW.replace("GUARDS", guards))

    keys = [one.key.partition("transitions.")[2] for one in found if one.code == "WF055"]
    assert keys == [f"go.{key}", "other.branches[0].when.expr"]


def test_guards_of_a_capability_are_checked_separately(check: Checker) -> None:
    found = check.only("capabilities:\n  push: {executor: {kind: noop}, guards: [{kind: any_of, guards: []}]}\n")
    assert (found.code, found.key) == ("WF055", "capabilities.push.guards[0]")
