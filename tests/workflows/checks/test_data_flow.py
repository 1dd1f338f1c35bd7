"""Paths that are read must have been written before."""

from __future__ import annotations

import pytest

from tests.workflows.checks.conftest import Checker
from waypost.workflows.data_flow import list_properties

FLOW = """\
capabilities:
  push: {executor: {kind: cli, command: push, args: [$.context.PUSHED]}}
workflows:
  w:
    initialState: a
    initialContext: {first: 1}
    inputSchema: {type: object, properties: {repo: {type: string}}}
    timeoutMs: 1000
    onTimeout: {target: late}
    states:
      a:
        onEnter: {executor: {kind: cli, command: x, args: [$.context.ENTERING]}, output: {entered: $.context.ENTERED}}
        transitions:
          go:
            target: b
            inputSchema: {type: object, properties: {tag: {type: string}}, additionalProperties: false}
            guards: [{kind: any_of, guards: [{kind: expr, expr: $.context.GUARD}]}]
            executor: {kind: rest, connection: api, body: {deep: [$.context.BODY]}}
            output: {second: {concat: [$.context.OUTPUT, $.arguments.ARGUMENT]}}
            branches: [{when: {kind: not, guard: {kind: expr, expr: $.context.BRANCH}}, target: c}]
            prefill: {tag: $.input.PREFILL}
          skip: {target: c}
      b: {transitions: {on: {target: c, executor: {capability: push}}}}
      c: {transitions: {on: {target: end, actor: deterministic, output: {third: $.workflow.input.INPUT}}}}
      end: {terminal: true}
      late: {terminal: true}
connections: {api: {kind: rest, baseUrl: "https://x"}}
"""
GOOD = {
    "PUSHED": "second",
    "ENTERING": "first",
    "ENTERED": "first",
    "GUARD": "entered",
    "BODY": "entered",
    "OUTPUT": "first",
    "ARGUMENT": "tag",
    "BRANCH": "second",
    "PREFILL": "repo",
    "INPUT": "repo",
}
GO = "a.transitions.go"


def flow(**names: str) -> str:
    text = FLOW
    for place, name in {**GOOD, **names}.items():
        text = text.replace(place, name)
    return text


def test_a_slot_written_earlier_on_the_path_can_be_read(check: Checker) -> None:
    assert check(flow()) == []


@pytest.mark.parametrize(
    ("place", "name", "key"),
    [
        ("PUSHED", "third", "b.transitions.on.executor"),
        ("ENTERING", "entered", "a.onEnter.executor.args[0]"),
        ("ENTERED", "second", "a.onEnter.output.entered"),
        ("GUARD", "second", f"{GO}.guards[0].guards[0].expr"),
        ("BODY", "second", f"{GO}.executor.body.deep[0]"),
        ("OUTPUT", "second", f"{GO}.output.second"),
        ("ARGUMENT", "tga", f"{GO}.output.second"),
        ("BRANCH", "third", f"{GO}.branches[0].when.guard.expr"),
        ("PREFILL", "branch", f"{GO}.prefill.tag"),
        ("INPUT", "branch", "c.transitions.on.output.third"),
    ],
)
def test_reading_a_slot_that_was_not_written_is_a_finding(place: str, name: str, key: str, check: Checker) -> None:
    found = check.only(flow(**{place: name}))
    assert (found.code, found.key) == ("WF054", f"workflows.w.states.{key}")
    assert f".{name}`" in found.message


def test_a_slot_written_in_a_loop_can_be_read(check: Checker) -> None:
    text = """\
    workflows:
      w:
        initialState: a
        states:
          a: {transitions: {use: {target: b, guards: [{kind: expr, expr: $.context.x == 1}]}, wait: {target: c}}}
          b: {terminal: true}
          c: {transitions: {back: {target: a, output: {x: 1}}}}
    """
    assert check(text) == []


def test_a_deterministic_transition_has_no_arguments_to_read(check: Checker) -> None:
    text = """\
    workflows:
      w:
        initialState: a
        states:
          a: {transitions: {go: {target: b, actor: deterministic, output: {x: $.arguments.x}}}}
          b: {terminal: true}
    """
    found = check.only(text)
    assert found.message == "`$.arguments.x` does not exist; write it first, or read something else"
    assert check(text.replace("deterministic", "agent")) == []


@pytest.mark.parametrize(
    ("schema", "known"),
    [
        (None, None),
        ({"type": "object"}, None),
        ({"properties": {"a": {}}}, {"a"}),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"a"}),
        ({"additionalProperties": False}, set()),
        ({"properties": {"a": {}}, "additionalProperties": True}, None),
        ({"properties": {"a": {}}, "patternProperties": {"^x": {}}}, None),
        ({"properties": {"a": {}}, "allOf": [{}]}, None),
        ({"properties": "wrong"}, None),
    ],
)
def test_a_schema_lists_its_properties_if_it_allows_no_others(
    schema: dict[str, object] | None, known: set[str] | None
) -> None:
    assert list_properties(schema) == known
