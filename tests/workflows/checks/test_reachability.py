"""Every state can be reached and left."""

from __future__ import annotations

import json
from typing import Any

from tests.workflows.checks.conftest import Checker

END: dict[str, Any] = {"terminal": True}


def state(**targets: str) -> dict[str, Any]:
    return {"transitions": {name: {"target": target} for name, target in targets.items()}}


def auto(*targets: str) -> dict[str, Any]:
    transitions = {f"to_{target}": {"target": target, "actor": "deterministic"} for target in targets}
    for transition in list(transitions.values())[1:]:
        transition["guards"] = [{"kind": "role", "role": "x"}]  # type: ignore[assignment]
    return {"transitions": transitions}


def flow(more: dict[str, Any] | None = None, **states: dict[str, Any]) -> str:
    return json.dumps({"workflows": {"w": {"initialState": "a", "states": states, **(more or {})}}})


def where(found: list[Any]) -> list[tuple[str, str]]:
    return [(one.code, one.key.removeprefix("workflows.w.states.")) for one in found]


def test_a_state_is_reached_by_targets_branches_and_timeouts(check: Checker) -> None:
    branching = state(go="b")
    branching["transitions"]["go"]["branches"] = [{"when": {"kind": "expr", "expr": "$.input.x"}, "target": "c"}]
    timeout = {"timeoutMs": 5, "onTimeout": {"target": "d"}}
    assert check(flow(timeout, a=branching, b=END, c=END, d=END)) == []


def test_states_that_only_lead_to_each_other_are_not_reached(check: Checker) -> None:
    found = check(flow(a=state(go="b"), b=END, c=state(go="d"), d=state(go="c")))
    assert where(found) == [("WF050", "c"), ("WF050", "d")]


def test_transitions_out_of_a_terminal_state_are_not_followed(check: Checker) -> None:
    found = check(flow(a=state(go="b"), b={**END, **state(go="c")}, c=END))
    assert where(found) == [("WF006", "b.transitions"), ("WF050", "c")]


def test_a_timeout_is_a_way_out_of_a_dead_end(check: Checker) -> None:
    states = {"a": state(go="b", stop="c"), "b": state(), "c": END}
    assert where(check(flow(**states))) == [("WF051", "b")]
    assert check(flow({"timeoutMs": 5, "onTimeout": {"target": "c"}}, **states)) == []


def test_a_state_that_leads_only_to_a_dead_end_cannot_end(check: Checker) -> None:
    found = check(flow(a=state(go="b", stop="c"), b=state(on="d"), c=END, d=state()))
    assert where(found) == [("WF051", "d"), ("WF052", "b")]


def test_a_workflow_without_an_end_is_one_finding(check: Checker) -> None:
    found = check.only(flow(a=state(go="b"), b=state(go="a")))
    assert (found.code, found.key) == ("WF052", "workflows.w.states")


def test_a_cycle_without_a_decision_is_one_finding_with_its_path(check: Checker) -> None:
    found = check.only(flow(a=auto("b"), b=auto("c", "end"), c=auto("b"), end=END))
    assert (found.code, found.key) == ("WF053", "workflows.w.states.b")
    assert "`b` → `c` → `b`" in found.message


def test_a_state_that_leads_to_itself_is_a_cycle(check: Checker) -> None:
    found = check.only(flow(a=auto("b", "a"), b=END))
    assert "`a` → `a`" in found.message


def test_two_cycles_are_two_findings(check: Checker) -> None:
    found = check(flow(a=auto("a", "b"), b=auto("b", "c"), c=END))
    assert where(found) == [("WF053", "a"), ("WF053", "b")]


def test_a_cycle_with_a_decision_is_not_a_finding(check: Checker) -> None:
    deciding = auto("a")
    deciding["transitions"]["stop"] = {"target": "end"}
    assert check(flow(a=auto("b"), b=deciding, end=END)) == []


def test_guards_of_a_capability_distinguish_candidates(check: Checker) -> None:
    text = """\
    capabilities:
      push: {executor: {kind: noop}, guards: [{kind: role, role: lead}]}
    workflows:
      w:
        initialState: a
        states:
          a:
            transitions:
              one: {target: b, actor: deterministic, executor: {capability: push}}
              two: {target: b, actor: deterministic}
          b: {terminal: true}
    """
    assert check(text) == []


def test_evidence_that_a_transition_needs_is_a_guard_as_well(check: Checker) -> None:
    states = {"a": auto("b", "c"), "b": END, "c": END}
    del states["a"]["transitions"]["to_c"]["guards"]
    assert check.codes(flow(**states)) == ["WF056"]
    states["a"]["transitions"]["to_c"]["evidence"] = {"requires": ["review"]}
    assert check(flow(**states)) == []
