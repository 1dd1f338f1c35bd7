"""Referenced names must exist."""

from __future__ import annotations

import pytest

from tests.workflows.checks.conftest import Checker

ONE = """\
skills: {SKILLS}
capabilities:
  push: {executor: {kind: noop}}
workflows:
  w:
    initialState: a
    states:
      a: {transitions: {go: {target: b, executor: EXECUTOR}}}
      b: {terminal: true}
"""


def one(executor: str, skills: str = "core: []") -> str:
    return ONE.replace("EXECUTOR", executor).replace("SKILLS", skills)


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("push", []),
        ("files.read", []),
        ("files.raed", ["WF012"]),
        ("skill:later", ["WF012"]),
        ("workflow:gone", ["WF014"]),
        ("workflow:w", ["WF015"]),
    ],
)
def test_a_capability_is_an_entry_or_registered_in_the_hub(name: str, codes: list[str], check: Checker) -> None:
    assert check.codes(one(f"{{capability: '{name}'}}"), {"files.read"}) == codes


IMPORTS = """\
connections:
  other: {kind: mcp, command: other-server}
  shop: {kind: rest, baseUrl: "https://shop.example.com", openapi: shop.yaml}
proxy:
  import:
    - {connection: other, prefix: all, exclude: [erase]}
    - {connection: other, prefix: some, include: [list, add]}
    - {connection: shop}
"""


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("all.anything", []),
        ("all.erase", ["WF012"]),
        ("some.list", []),
        ("some.lsit", ["WF012"]),
        ("shop.getPet", []),
        ("shop.getPte", ["WF012"]),
        ("other.list", ["WF012"]),
    ],
)
def test_a_name_with_the_prefix_of_an_import_must_be_one_it_can_provide(
    name: str, codes: list[str], check: Checker
) -> None:
    assert check.codes(IMPORTS + one(f"{{capability: '{name}'}}"), {"shop.getPet"}) == codes


def test_the_finding_suggests_the_nearest_name(check: Checker) -> None:
    found = check.only(one("{capability: files.raed}"), {"files.read"})
    assert found.message == "there is no capability `files.raed`; did you mean `files.read`?"
    assert found.key == "workflows.w.states.a.transitions.go.executor.capability"


def test_unknown_capabilities_are_not_reported_when_the_registry_is_not_known(check: Checker) -> None:
    assert check(one("{capability: whatever}"), None) == []


def test_unknown_skills_are_allowed_where_skills_are_loaded_at_run_time(check: Checker) -> None:
    assert check(one("{capability: 'skill:later'}", "dynamic: ./skills"), set()) == []


@pytest.mark.parametrize("name", ["mail__send", "mail::send"])
def test_unknown_functions_are_allowed_where_workers_connect(name: str, check: Checker) -> None:
    with_workers = one(f"{{capability: '{name}'}}") + "workers: {}\n"

    assert check(with_workers, set()) == []
    assert [found.code for found in check(one(f"{{capability: '{name}'}}"), set())] == ["WF012"]


@pytest.mark.parametrize(
    "executor",
    [
        "{kind: parallel, branches: [{kind: cli, connection: gone}]}",
        "{kind: parallel, forEach: [1], do: {kind: cli, connection: gone}}",
        "{kind: pipeline, steps: [{kind: cli, connection: gone}]}",
        "{kind: noop}, reliability: {fallback: {executors: [{kind: cli, connection: gone}]}}",
    ],
)
def test_names_are_checked_in_all_executors(executor: str, check: Checker) -> None:
    found = check.only(one(executor))
    assert found.code == "WF010"
    assert found.key.endswith(".connection")


def test_a_step_must_name_a_registered_capability(check: Checker) -> None:
    found = check.only("workflows: {w: {steps: [{capability: gone}, {capability: there}]}}\n", {"there"})
    assert (found.code, found.key) == ("WF012", "workflows.w.steps[0].capability")


CIRCLE = """\
capabilities:
  one: {wraps: two}
  two: {executor: {kind: pipeline, steps: [{capability: three}]}}
  three: {executor: {capability: one}}
"""


def test_capabilities_that_refer_to_each_other_are_findings(check: Checker) -> None:
    found = check(CIRCLE)
    assert [(one.code, one.key) for one in found] == [
        ("WF013", "capabilities.one.wraps"),
        ("WF013", "capabilities.two.executor"),
        ("WF013", "capabilities.three.executor"),
    ]


STARTS = """\
capabilities:
  start: {executor: {kind: workflow, definitionId: b}}
workflows:
  a:
    initialState: s
    states:
      s: {transitions: {go: {target: t, executor: {capability: start}}}}
      t: {terminal: true}
  b: {steps: [{capability: "workflow:c"}]}
  c: {steps: [{capability: "workflow:LAST"}]}
"""


def test_workflows_that_start_each_other_indirectly_are_findings(check: Checker) -> None:
    assert [(one.code, one.key) for one in check(STARTS.replace("LAST", "a"))] == [
        ("WF015", "workflows.a.states.s.transitions.go.executor"),
        ("WF015", "workflows.b.steps[0].capability"),
        ("WF015", "workflows.c.steps[0].capability"),
    ]


def test_a_workflow_that_only_leads_to_a_cycle_is_not_a_finding(check: Checker) -> None:
    keys = [one.key for one in check(STARTS.replace("LAST", "b"))]
    assert keys == ["workflows.b.steps[0].capability", "workflows.c.steps[0].capability"]


@pytest.mark.parametrize("executor", ["{capability: push}", "{kind: pipeline, steps: [{capability: push}]}"])
def test_guards_of_capabilities_in_on_enter_executors_are_findings(executor: str, check: Checker) -> None:
    text = f"""\
    capabilities:
      push: {{executor: {{kind: noop}}, guards: [{{kind: role, role: lead}}]}}
    workflows:
      w:
        initialState: a
        states:
          a: {{onEnter: {{executor: {executor}}}, transitions: {{go: {{target: b}}}}}}
          b: {{terminal: true}}
    """
    assert check.codes(text) == ["WF017"]
