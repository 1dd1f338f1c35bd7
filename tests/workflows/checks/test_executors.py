"""Executors with missing or superfluous settings."""

from __future__ import annotations

import hashlib

import pytest

from tests.workflows.checks.conftest import Checker

ONE = """\
connections: {build: {kind: cli, command: make}}
capabilities:
  ask: {executor: {kind: human}}
  patient: {executor: {kind: noop}, reliability: {timeoutMs: 5}}
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
        ("{capability: patient}", []),
        ("{kind: parallel, branches: [{capability: patient}]}", ["WF059"]),
        ("{kind: pipeline, steps: [{kind: parallel, branches: [{capability: patient}]}]}", ["WF059"]),
        ("{kind: noop}, reliability: {fallback: {executors: [{capability: patient}]}}", ["WF059"]),
        ("{kind: noop, idempotencyKey: fixed}", []),
        ("{kind: parallel, branches: [{kind: noop, idempotencyKey: fixed}]}", ["WF059"]),
        ("{kind: noop}, reliability: {fallback: {executors: [{kind: noop, idempotencyKey: fixed}]}}", ["WF059"]),
    ],
)
def test_an_executor_is_complete_and_possible(executor: str, codes: list[str], check: Checker) -> None:
    assert check.codes(ONE.replace("EXECUTOR", executor)) == codes


def test_a_script_must_match_its_approved_digest(check: Checker) -> None:
    (check.folder / "go.sh").write_text("true\n")
    digest = hashlib.sha256(b"true\n").hexdigest()
    text = ONE.replace("EXECUTOR", f"{{kind: script, file: ./go.sh, sha256: {digest}}}")
    assert check(text) == []

    (check.folder / "go.sh").write_text("false\n")

    found = check.only(text)
    assert (found.code, found.key) == ("WF024", "workflows.w.states.a.transitions.go.executor.sha256")
    assert hashlib.sha256(b"false\n").hexdigest() in found.message


def test_a_reliability_beside_an_approval_on_entry_is_a_finding(check: Checker) -> None:
    text = ONE.replace("a: {", "a: {onEnter: {executor: {kind: human}, reliability: {timeoutMs: 5}}, ")
    found = check.only(text.replace("EXECUTOR", "{kind: noop}"))
    assert (found.code, found.key) == ("WF058", "workflows.w.states.a.onEnter.reliability")


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("executor: {kind: cli, command: make, env: {T: '${A_TOKEN}'}, args: ['${A_TOKEN}'], stdin: '${A_TOKEN}'}", ""),
        ("executor: {kind: workflow, definitionId: other, input: {a: '${A_TOKEN}'}}", "executor.input.a"),
        ("executor: {kind: workflow, definitionId: other, input: {a: '${PLACE}'}}", ""),
        ("executor: {kind: human, prompt: 'Use ${A_TOKEN}?'}", "executor.prompt"),
        ("executor: {kind: human, presents: [{a: '${A_TOKEN}'}]}", "executor.presents[0].a"),
        ("executor: {kind: noop, idempotencyKey: '${A_TOKEN}'}", "executor.idempotencyKey"),
        ("executor: {kind: pipeline, steps: [{kind: cli, command: a, args: ['${A_TOKEN}']}]}", ""),
        (
            "executor: {kind: pipeline, steps: [{kind: workflow, definitionId: other, input: {a: '${A_TOKEN}'}}]}",
            "executor.steps[0].input.a",
        ),
        ("output: {a: {set: '${A_TOKEN}'}}", "output.a.set"),
        ("prefill: {a: '${A_TOKEN}'}", "prefill.a"),
        ("description: 'it is ${A_TOKEN}'", "description"),
        ("guards: [{kind: expr, expr: \"$.arguments.a == '${A_TOKEN}'\"}]", "guards[0].expr"),
    ],
)
def test_a_secret_is_refused_where_its_value_would_be_stored(written: str, found: str, check: Checker) -> None:
    written = written.replace("${A_TOKEN}", "${A_TOKEN:-tangerine}").replace("${PLACE}", "${PLACE:-Bern}")
    text = ONE.replace("executor: EXECUTOR", written) + "  other: {initialState: a, states: {a: {terminal: true}}}\n"

    assert [(one.code, one.key) for one in check(text)] == (
        [("WF070", f"workflows.w.states.a.transitions.go.{found}")] if found else []
    )


@pytest.mark.parametrize(
    ("executor", "codes"),
    [
        ("{kind: cli, command: git, args: [log, $.arguments.rev]}", ["WF025"]),
        ("{kind: cli, command: git, args: [log, --, $.arguments.rev]}", []),
        ("{kind: cli, command: git, args: [$.arguments.rev, --, $.arguments.rev]}", ["WF025"]),
        ("{kind: cli, command: git, args: [log, $.arguments.rev], allowOptions: true}", []),
        ("{kind: cli, command: git, args: [log, $.context.rev], stdin: $.arguments.rev}", ["WF054"]),
        ("{kind: cli, connection: build, args: [$.arguments.rev]}", ["WF025"]),
        ("{kind: cli, connection: ended, args: [$.arguments.rev]}", []),
        ("{kind: parallel, branches: [{kind: cli, command: git, args: [$.arguments.rev]}]}", ["WF025"]),
    ],
)
def test_an_argument_that_may_be_an_option_is_a_warning(executor: str, codes: list[str], check: Checker) -> None:
    text = ONE.replace("EXECUTOR", executor).replace(
        "make}}", "make}, ended: {kind: cli, command: git, args: [--]}}", 1
    )
    found = check(text)

    assert [one.code for one in found] == codes
    assert {one.severity for one in found} <= {"warning"}


@pytest.mark.parametrize(
    "text",
    [
        "capabilities: {log: {executor: {kind: cli, command: git, args: [$.arguments.rev]}}}",
        "proxy: {expose: [{name: log, inputSchema: {properties: {rev: {}}}, "
        "executor: {kind: cli, command: git, args: [$.arguments.rev]}}]}",
    ],
)
def test_executors_of_capabilities_and_exposures_are_checked_too(text: str, check: Checker) -> None:
    assert check.codes(text) == ["WF025"]


REST = """\
connections: {api: {kind: rest, baseUrl: "https://api.example"}}
workflows:
  w:
    inputSchema: {type: object, properties: {owner: {type: string}}}
    initialState: a
    initialContext: {repo: waypost}
    states:
      a:
        transitions:
          go:
            target: b
            inputSchema: {type: object, properties: {id: {type: string}}}
            executor: {kind: rest, connection: api, path: PATH}
      b: {terminal: true}
"""


@pytest.mark.parametrize(
    ("path", "codes"),
    [
        ("'/{owner}/{repo}/{id}'", []),
        ("'/{ids}'", ["WF054"]),
        ("/$.arguments.id", ["WF026"]),
        ("'/{arguments.id}'", ["WF026"]),
        ("'/{{ $.arguments.id }}'", ["WF026"]),
        ("/prices/$.50", []),
    ],
)
def test_a_name_in_the_path_of_a_request_exists(path: str, codes: list[str], check: Checker) -> None:
    assert check.codes(REST.replace("PATH", path)) == codes


@pytest.mark.parametrize(
    ("executor", "codes"),
    [
        ("{kind: cli, command: awk, args: ['{print $1}', 's/$.x/']}", []),
        ("{kind: cli, command: awk, args: ['--file=$.input.file']}", ["WF026"]),
        ("{kind: cli, command: awk, stdin: {text: 'see $.context.a[0]'}}", ["WF026"]),
        ("{kind: cli, command: definitely-not-here, env: {PATH: /nowhere}}", ["WF027"]),
        ("{kind: cli, command: awk, env: {PATH: /nowhere}}", ["WF027"]),
        ("{kind: cli, command: ./notes.txt}", ["WF027"]),
        ("{kind: cli, command: ./gone}", ["WF027"]),
    ],
)
def test_the_words_and_the_program_of_a_command_are_usable(executor: str, codes: list[str], check: Checker) -> None:
    (check.folder / "notes.txt").write_text("")
    assert check.codes(ONE.replace("EXECUTOR", executor)) == codes
