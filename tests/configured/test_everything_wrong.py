"""`check` on files with errors of several kinds reports all of them, but no consequences."""

from __future__ import annotations

import pytest

from tests.configured.conftest import CONFIG, Folder

BAD_POLICY = "  - {name: odd, type: rate_limit, config: {max_cals: 1}}\n"
BY_REST = "{kind: rest, connection: api}"
BY_NAME = "{kind: capability, capability: add}"


def workflow(name: str = "one", start: str = "a", more: str = "") -> str:
    """A workflow of two states, and what runs between them."""
    move = f"{{target: b, executor: {more}}}" if more else "{target: b}"
    states = f"{{a: {{transitions: {{go: {move}}}}}, b: {{terminal: true}}}}"
    return f"  {name}: {{initialState: {start}, states: {states}}}\n"


def list_findings(folder: Folder, text: str) -> list[tuple[str, str]]:
    """The key and code of each finding, which creating the hub reports as well."""
    folder.write("waypost.yaml", CONFIG + text)
    return [(found.key, found.code) for found in folder.findings()]


def test_a_type_error_hides_no_findings_in_other_sections(folder: Folder) -> None:
    text = (
        "search: {ranking: best}\n"
        "workflows:\n" + workflow(start="nowhere") + "policies:\n" + BAD_POLICY + "prompts: {p: {template: '{{ x'}}\n"
    )
    found = list_findings(folder, text)
    assert found == [
        ("search.ranking", "CFG013"),
        ("workflows.one.initialState", "WF003"),
        ("policies[0].config", "CFG063"),
        ("prompts.p.template", "CFG050"),
    ]


def test_an_error_in_one_entry_hides_no_findings_in_the_others(folder: Folder) -> None:
    text = (
        "workflows:\n"
        + workflow("broken").replace("terminal: true", "terminal: maybe")
        + workflow("wrong", start="nowhere")
        + "policies:\n  - {name: 5, type: rate_limit}\n"
        + BAD_POLICY
    )
    assert list_findings(folder, text) == [
        ("workflows.broken.states.b.terminal", "CFG012"),
        ("workflows.wrong.initialState", "WF003"),
        ("policies[0].name", "CFG012"),
        ("policies[1].config", "CFG063"),
    ]


@pytest.mark.parametrize(
    ("broken", "key", "executor"),
    [
        ("connections: {api: {kind: rest, baseUrl: 5}}\n", "connections.api.baseUrl", BY_REST),
        ("connections: 5\n", "connections", BY_REST),
        ("capabilities: {add: {executor: {kind: nop}}}\n", "capabilities.add.executor.kind", BY_NAME),
        ("proxy: {expose: [{name: add, executor: {kind: nop}}]}\n", "proxy.expose[0].executor.kind", BY_NAME),
        ("skills: {core: 5}\n", "skills.core", "{kind: capability, capability: 'skill:mine'}"),
        ("workers: {port: x}\n", "workers.port", "{kind: capability, capability: 'a::b'}"),
        ("connection: {api: {kind: rest, baseUrl: 'http://x'}}\n", "connection", BY_REST),
        ("anschluss: {api: {kind: rest}}\n", "anschluss", BY_REST),
    ],
)
def test_a_reference_to_an_invalid_entry_is_not_a_finding(folder: Folder, broken: str, key: str, executor: str) -> None:
    found = list_findings(folder, broken + "workflows:\n" + workflow(more=executor))

    assert [one for one, _ in found] == [key]


def test_an_unknown_reference_is_a_finding_next_to_one_to_an_invalid_entry(folder: Folder) -> None:
    text = (
        "connections: {api: {kind: rest, baseUrl: 5}}\nworkflows:\n"
        + workflow("one", more=BY_REST)
        + workflow("two", more="{kind: rest, connection: nowhere}")
        + workflow("three", more="{kind: workflow, definitionId: four}")
        + workflow("four").replace("terminal: true", "terminal: maybe")
        + workflow("five", more="{kind: workflow, definitionId: nowhere}")
    )
    assert list_findings(folder, text) == [
        ("connections.api.baseUrl", "CFG012"),
        ("workflows.two.states.a.transitions.go.executor.connection", "WF010"),
        ("workflows.four.states.b.terminal", "CFG012"),
        ("workflows.five.states.a.transitions.go.executor.definitionId", "WF014"),
    ]


def test_an_error_in_a_workflow_hides_no_findings_in_it(folder: Folder) -> None:
    text = """\
workflows:
  one:
    initialState: drft
    timeoutMs: soon
    states:
      draft:
        transitions:
          go: {target: reveiw, titel: Go, executor: {kind: rest, connection: nowhere}}
          back: {title: Back, guards: [{kind: rol, role: lead}], executor: {kind: workflow, definitionId: tow}}
      review: {terminal: true, outcome: won}
  two: {initialState: a, states: {a: {terminal: true}}}
"""
    assert list_findings(folder, text) == [
        ("workflows.one.initialState", "WF003"),
        ("workflows.one.timeoutMs", "CFG012"),
        ("workflows.one.states.draft.transitions.go.titel", "CFG010"),
        ("workflows.one.states.draft.transitions.go.target", "WF003"),
        ("workflows.one.states.draft.transitions.go.executor.connection", "WF010"),
        ("workflows.one.states.draft.transitions.back.target", "CFG014"),
        ("workflows.one.states.draft.transitions.back.guards[0].kind", "CFG013"),
        ("workflows.one.states.draft.transitions.back.executor.definitionId", "WF014"),
        ("workflows.one.states.review.outcome", "CFG013"),
    ]


def test_the_values_of_misspelt_keys_are_checked_and_count_as_present(folder: Folder) -> None:
    text = """\
connections: {time: {kind: mcp, comand: uvx, arg: [mcp-server-time]}}
proxy:
  import: [{connection: tme}]
workflow:
  one: {initialState: a, state: {a: {terminal: yes}}}
"""
    folder.write("waypost.yaml", CONFIG + text)
    assert [(found.key, found.code, found.message.partition("; ")[2]) for found in folder.findings()] == [
        ("connections.time.comand", "CFG010", "did you mean `command`?"),
        ("connections.time.arg", "CFG010", "did you mean `args`?"),
        ("proxy.import[0].connection", "CFG070", "did you mean `time`?"),
        ("workflow", "CFG010", "did you mean `workflows`?"),
        ("workflow.one.state", "CFG010", "did you mean `states`?"),
        ("workflow.one.state.a.terminal", "CFG012", "write `true`"),
    ]


def test_a_reference_to_a_tool_of_a_broken_toolkit_is_not_a_finding(folder: Folder) -> None:
    folder.write("tools.py", "def (:\n")

    found = list_findings(folder, "workflows:\n" + workflow(more="{kind: capability, capability: speak}"))

    assert found == [("toolkits[0]", "CFG042")]


def test_toolkits_next_to_a_missing_one_are_checked(folder: Folder) -> None:
    folder.write("bad.py", "1 / 0\n")

    found = list_findings(folder, "  - ./gone.py\n  - ./bad.py\n")

    assert found == [("toolkits[1]", "CFG041"), ("toolkits[2]", "CFG042")]


def test_rules_of_whole_entries_are_all_reported_together(folder: Folder) -> None:
    entry = "{kind: mcp, command: x, credentials: user}"
    found = list_findings(folder, f"connections: {{one: {entry}, two: {entry}}}\nsearch: {{ranking: best}}\n")

    assert [key.split(".")[:2] for key, _ in found] == [
        ["connections", "one"],
        ["connections", "two"],
        ["search", "ranking"],
    ]


def test_references_are_not_findings_if_an_included_file_is_missing(folder: Folder) -> None:
    text = "include: [team.yaml]\npolicies:\n" + BAD_POLICY + "workflows:\n" + workflow(more=BY_REST)

    assert list_findings(folder, text) == [("include[0]", "CFG030"), ("policies[0].config", "CFG063")]


def test_a_file_that_is_not_a_mapping_is_one_finding(folder: Folder) -> None:
    folder.write("waypost.yaml", "- a\n")

    assert [found.code for found in folder.findings()] == ["CFG012"]
