"""Executors that lack something, or have too much."""

from __future__ import annotations

import hashlib

import pytest

from tests.workflows.checks.conftest import Checker

ONE = """\
connections: {build: {kind: cli, command: make}}
capabilities:
  ask: {executor: {kind: human}}
  one: {executor: {kind: parallel, branches: [{kind: noop}]}}
  three: {executor: {kind: parallel, branches: [{kind: parallel, branches: [{capability: one}]}]}}
workflows:
  w:
    initialState: a
    states:
      a: {transitions: {go: {target: b, executor: EXECUTOR}}}
      b: {terminal: true}
"""


@pytest.mark.parametrize(
    ("executor", "codes"),
    [
        ("{kind: cli, command: make}", []),
        ("{kind: cli, connection: build}", []),
        ("{kind: cli, connection: build, command: make}", ["WF020"]),
        ("{kind: parallel, branches: [{kind: noop}]}", []),
        ("{kind: parallel, forEach: $.input.x, do: {kind: noop}}", []),
        ("{kind: parallel}", ["WF021"]),
        ("{kind: parallel, do: {kind: noop}}", ["WF021"]),
        ("{kind: parallel, branches: [{kind: noop}], forEach: [1], do: {kind: noop}}", ["WF021"]),
        ("{kind: parallel, forEach: hosts, do: {kind: noop}}", ["WF021"]),
        ("{capability: three}", []),
        ("{kind: parallel, branches: [{capability: three}]}", ["WF021"]),
        ("{kind: parallel, forEach: [1, 2], do: {kind: noop}, join: {atLeast: 2}}", []),
        ("{kind: parallel, forEach: [1, 2], do: {kind: noop}, join: {atLeast: 3}}", ["WF022"]),
        ("{kind: parallel, forEach: $.input.x, do: {kind: noop}, join: {atLeast: 99}}", []),
        ("{kind: parallel, branches: [{kind: noop}], join: {percent: 100}}", []),
        ("{kind: parallel, branches: [{kind: noop}], join: {}}", ["WF022"]),
        ("{kind: parallel, branches: [{kind: noop}], join: {atLeast: 1, percent: 1}}", ["WF022"]),
        ("{kind: human}", []),
        ("{capability: ask}", []),
        ("{kind: parallel, branches: [{capability: ask}]}", ["WF023"]),
        ("{kind: noop}, reliability: {fallback: {executors: [{kind: human}]}}", ["WF023"]),
        ("{capability: ask}, reliability: {timeoutMs: 5}", ["WF058"]),
    ],
)
def test_an_executor_is_complete_and_possible(executor: str, codes: list[str], check: Checker) -> None:
    assert check.codes(ONE.replace("EXECUTOR", executor)) == codes


def test_a_script_is_the_one_that_was_approved(check: Checker) -> None:
    (check.folder / "go.sh").write_text("true\n")
    digest = hashlib.sha256(b"true\n").hexdigest()
    text = ONE.replace("EXECUTOR", f"{{kind: script, file: ./go.sh, sha256: {digest}}}")
    assert check(text) == []

    (check.folder / "go.sh").write_text("false\n")

    found = check.only(text)
    assert (found.code, found.key) == ("WF024", "workflows.w.states.a.transitions.go.executor.sha256")
    assert hashlib.sha256(b"false\n").hexdigest() in found.message


def test_a_reliability_on_entry_beside_a_person_is_found(check: Checker) -> None:
    text = ONE.replace("a: {", "a: {onEnter: {executor: {kind: human}, reliability: {timeoutMs: 5}}, ")
    found = check.only(text.replace("EXECUTOR", "{kind: noop}"))
    assert (found.code, found.key) == ("WF058", "workflows.w.states.a.onEnter.reliability")
