"""Dangerous transitions need the approval of a person."""

from __future__ import annotations

import pytest

from tests.workflows.checks.conftest import Checker

FLOW = """\
capabilities:
  ask: {executor: {kind: human}}
  drop: {tags: [dangerous], executor: {kind: noop}}
  drop.all: {wraps: drop}
  drop.each: {executor: {kind: parallel, forEach: [1], do: {capability: drop.all}}}
workflows:
  w:
    initialState: a
    MORE
    states:
      a: {ENTER transitions: {first: {target: b, FIRST}}}
      b: {transitions: {second: {target: c, SECOND}}}
      c: {transitions: {third: {target: end, tags: [dangerous], THIRD}}}
      end: {terminal: true}
"""
NOTHING = {"MORE": "title: W", "ENTER": "", "FIRST": "tags: []", "SECOND": "tags: []", "THIRD": "title: T"}


def flow(**parts: str) -> str:
    text = FLOW
    for place, part in {**NOTHING, **parts}.items():
        text = text.replace(place, part)
    return text


def test_a_path_without_an_approval_is_a_finding(check: Checker) -> None:
    found = check.only(flow())
    assert (found.code, found.key) == ("WF057", "workflows.w.states.c.transitions.third")
    assert "(`first`, `second`, `third`)" in found.message


@pytest.mark.parametrize("place", ["FIRST", "SECOND", "THIRD"])
@pytest.mark.parametrize("person", ["actor: human", "executor: {kind: human}", "executor: {capability: ask}"])
def test_one_approval_anywhere_on_the_path_is_enough(place: str, person: str, check: Checker) -> None:
    assert check(flow(**{place: person})) == []


@pytest.mark.parametrize("person", ["{kind: human}", "{capability: ask}"])
def test_an_approval_on_entry_covers_every_transition_out(person: str, check: Checker) -> None:
    assert check(flow(ENTER=f"onEnter: {{executor: {person}}},")) == []


def test_a_timeout_that_bypasses_an_approval_on_entry_is_a_finding(check: Checker) -> None:
    given = flow(ENTER="onEnter: {executor: {kind: human}},", MORE="timeoutMs: 5\n    onTimeout: {target: c}")
    assert check.codes(given) == ["WF057"]


def test_a_timeout_that_bypasses_the_approval_is_a_finding(check: Checker) -> None:
    found = check(flow(FIRST="actor: human", MORE="timeoutMs: 5\n    onTimeout: {target: c}"))
    assert [one.code for one in found] == ["WF057"]
    assert "(`onTimeout`, `third`)" in found[0].message


def test_a_branch_that_bypasses_the_approval_is_a_finding(check: Checker) -> None:
    branch = "branches: [{when: {kind: expr, expr: $.input.x}, target: c}]"
    assert check.codes(flow(FIRST=branch, SECOND="actor: human")) == ["WF057"]


@pytest.mark.parametrize(
    "executor",
    [
        "{capability: drop}",
        "{capability: drop.all}",
        "{capability: drop.each}",
        "{kind: pipeline, steps: [{kind: noop}, {capability: drop}]}",
        "{kind: noop}, reliability: {fallback: {executors: [{capability: drop}]}}",
    ],
)
def test_an_executor_with_a_dangerous_capability_is_dangerous(executor: str, check: Checker) -> None:
    found = check(flow(FIRST=f"executor: {executor}", THIRD="actor: human"))
    assert [one.key for one in found] == ["workflows.w.states.a.transitions.first"]

    found = check(flow(ENTER=f"onEnter: {{executor: {executor}}},", THIRD="actor: human"))
    assert [one.key for one in found] == ["workflows.w.states.a.onEnter.executor"]
    assert "(it is where the workflow begins)" in found[0].message
