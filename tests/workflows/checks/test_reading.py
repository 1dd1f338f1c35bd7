"""Invalid expressions, paths and schemas are reported with their key."""

from __future__ import annotations

import pytest

from tests.workflows.checks.conftest import Checker

FLOW = """\
capabilities:
  each: {executor: {kind: cli, command: x, args: [$.branch.value]}}
  wrong: {executor: {kind: cli, command: x, args: [$.nowhere]}}
workflows:
  w:
    initialState: a
    states:
      a: {WHAT}
      b: {terminal: true}
"""
GO = "transitions: {{go: {{target: b, {}}}}}"


def flow(what: str) -> str:
    text = FLOW.replace("WHAT", what)
    return text if "capability: wrong" in what else text.replace("$.nowhere", "$.input.x")


@pytest.mark.parametrize(
    ("what", "key"),
    [
        ("guards: [{kind: expr, expr: '$.context.a ='}]", "guards[0].expr"),
        ("guards: [{kind: jsonpath, expr: ''}]", "guards[0].expr"),
        ("guards: [{kind: not, guard: {kind: expr, expr: '('}}]", "guards[0].guard.expr"),
        ("guards: [{kind: anyOf, guards: [{kind: expr, expr: '$.output.x'}]}]", "guards[0].guards[0].expr"),
        ("branches: [{when: {kind: expr, expr: $.output.x}, target: b}]", "branches[0].when.expr"),
        ("output: {x: $.elsewhere.x}", "output.x"),
        ("output: {x: {add: [1]}}", "output.x"),
        ("prefill: {x: $.output.x}", "prefill.x"),
        ("executor: {kind: cli, command: x, args: [a, $.branch.value]}", "executor.args[1]"),
        ("executor: {kind: cli, command: x, stdin: {a: $.steps}}", "executor.stdin.a"),
        ("executor: {kind: parallel, forEach: $.branch.value, do: {kind: noop}}", "executor.forEach"),
        ("executor: {kind: human, presents: [$.output]}", "executor.presents[0]"),
        ("executor: {capability: each}", "executor"),
    ],
)
def test_an_invalid_expression_or_path_is_a_finding(what: str, key: str, check: Checker) -> None:
    found = check.only(flow(GO.format(what)))
    assert (found.code, found.key) == ("WF030", f"workflows.w.states.a.transitions.go.{key}")


def test_an_error_in_a_capability_is_reported_once_at_the_capability(check: Checker) -> None:
    found = check.only(flow(GO.format("executor: {capability: wrong}")))
    assert (found.code, found.key) == ("WF030", "capabilities.wrong.executor.args[0]")


@pytest.mark.parametrize(
    "executor",
    [
        "{kind: parallel, forEach: [1], do: {kind: cli, command: x, args: [$.branch.value, $.branch.index]}}",
        "{kind: parallel, forEach: [1], do: {capability: each}}",
        "{kind: pipeline, steps: [{kind: noop}, {kind: cli, command: x, args: ['$.steps[0].output', $.previous]}]}",
    ],
)
def test_nested_executors_may_read_additional_roots(executor: str, check: Checker) -> None:
    assert check(flow(GO.format(f"executor: {executor}"))) == []


def test_schemas_of_capabilities_and_transitions_are_checked(check: Checker) -> None:
    text = flow(GO.format("inputSchema: {type: 5}")).replace("each: {", "each: {inputSchema: {type: 5}, ")
    assert [(one.code, one.key) for one in check(text)] == [
        ("WF031", "capabilities.each.inputSchema"),
        ("WF031", "workflows.w.states.a.transitions.go.inputSchema"),
    ]
