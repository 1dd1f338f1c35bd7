"""States, their names, and where transitions lead."""

from __future__ import annotations

import pytest

from tests.workflows.checks.conftest import Checker

STATES = """\
workflows:
  w:
    initialState: INITIAL
    timeoutMs: 1000
    onTimeout: {target: TIMEOUT}
    states:
      first:
        transitions:
          go: {target: TARGET, branches: [{when: {kind: expr, expr: $.input.x}, target: BRANCH}]}
          stop: {target: last}
      last: {terminal: true}
"""
GOOD = {"INITIAL": "first", "TIMEOUT": "last", "TARGET": "last", "BRANCH": "first"}


@pytest.mark.parametrize(
    ("place", "key", "line"),
    [
        ("INITIAL", "initialState", 3),
        ("TIMEOUT", "onTimeout.target", 5),
        ("TARGET", "states.first.transitions.go.target", 9),
        ("BRANCH", "states.first.transitions.go.branches[0].target", 9),
    ],
)
def test_every_reference_to_an_unknown_state_is_a_finding(place: str, key: str, line: int, check: Checker) -> None:
    text = STATES
    for name, state in {**GOOD, place: "lats"}.items():
        text = text.replace(name, state)

    (found,) = [one for one in check(text) if one.code == "WF003"]

    assert (found.key, found.line) == (f"workflows.w.{key}", line)
    assert found.message == "there is no state `lats`; did you mean `last`?"


def test_states_and_steps_exclude_each_other(check: Checker) -> None:
    found = check.only(
        "workflows:\n  w:\n    initialState: a\n    states: {a: {terminal: true}}\n    steps: [{skill: x}]\n"
    )
    assert (found.code, found.line) == ("WF001", 5)


def test_a_name_that_begins_with_a_dollar_is_refused_for_states_as_well(check: Checker) -> None:
    found = check.only("workflows:\n  w:\n    initialState: $a\n    states: {$a: {terminal: true}}\n")
    assert (found.code, found.key) == ("WF005", "workflows.w.states.$a")


def test_the_name_proxy_default_is_reserved(check: Checker) -> None:
    found = check.only("workflows:\n  proxy_default: {initialState: a, states: {a: {terminal: true}}}\n")
    assert (found.code, found.key, found.severity) == ("WF005", "workflows.proxy_default", "error")


def test_a_terminal_state_cannot_have_on_enter(check: Checker) -> None:
    found = check.only(
        "workflows: {w: {initialState: a, states: {a: {terminal: true, onEnter: {executor: {kind: noop}}}}}}\n"
    )
    assert (found.code, found.key) == ("WF006", "workflows.w.states.a.onEnter")


AUTOMATIC = """\
capabilities:
  push: {executor: {kind: noop}, inputSchema: {type: object, required: [tag]}}
workflows:
  w:
    initialState: a
    states:
      a: {transitions: {go: {target: b, actor: deterministic, WHAT}}}
      b: {terminal: true}
"""


def test_a_deterministic_transition_may_require_arguments_with_defaults(check: Checker) -> None:
    schema = "inputSchema: {required: [tag], properties: {tag: {default: x}}}"
    assert check(AUTOMATIC.replace("WHAT", schema)) == []


def test_a_deterministic_transition_cannot_run_a_capability_that_requires_arguments(check: Checker) -> None:
    found = check.only(AUTOMATIC.replace("WHAT", "executor: {capability: push}"))
    assert (found.code, found.key) == ("WF008", "workflows.w.states.a.transitions.go.executor")
