"""All checks together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

from tests.workflows.checks.conftest import Checker
from tests.workflows.checks.definitions import CONFIGURATIONS
from waypost.config import CODES, Config, Loaded
from waypost.config.nodes import Node
from waypost.kinds import convert
from waypost.runtime.assembly import check
from waypost.workflows.checks import check_workflows

CLEAN = """\
connections:
  build: {kind: cli, command: make}
  registry: {kind: rest, baseUrl: "https://registry.example.com"}
capabilities:
  ship:
    tags: [dangerous]
    inputSchema: {type: object, properties: {confirm: {type: boolean}}, required: [confirm]}
    executor: {kind: rest, connection: registry, method: POST, path: "/ship/{service}", body: {id: $.context.artifact}}
    reliability: {timeoutMs: 5000, retry: {maxAttempts: 3}}
  ship.prod: {wraps: ship, guards: [{kind: role, role: lead}]}
workflows:
  deploy:
    title: Deploy
    inputSchema: {type: object, properties: {service: {type: string}}, required: [service]}
    initialState: lint
    initialContext: {tries: 0}
    timeoutMs: 3600000
    onTimeout: {target: expired}
    states:
      lint:
        onEnter: {executor: {kind: noop}, output: {seen: true}}
        transitions:
          run:
            target: test
            actor: deterministic
            executor: {kind: cli, connection: build, args: [lint, $.input.service]}
            output: {tries: {add: [$.context.tries, 1]}, ok: $.output.success}
      test:
        transitions:
          pass:
            target: ready
            executor:
              kind: parallel
              forEach: [unit, slow]
              do: {kind: cli, command: pytest, args: [$.branch.value]}
              join: {atLeast: 2}
            output: {artifact: $.output.summary}
            branches: [{when: {kind: expr, expr: "$.context.artifact == null && $.context.tries < 3"}, target: lint}]
            prefill: {service: $.workflow.input.service}
          fix: {target: lint}
      ready:
        transitions:
          approve: {target: approved, executor: {kind: human, presents: {artifact: $.context.artifact}}}
          abort: {target: aborted}
      approved:
        transitions:
          ship: {target: shipped, executor: {capability: ship.prod}, guards: [{kind: expr, expr: $.arguments.confirm}]}
          tell: {target: shipped, executor: {kind: workflow, definitionId: digest, input: {text: $.context.artifact}}}
      shipped: {terminal: true, outcome: succeeded}
      aborted: {terminal: true, outcome: cancelled}
      expired: {terminal: true, outcome: failed}
  digest:
    steps:
      - {name: collect, skill: rss, routes: [{branch: on_items, goto: 2}, {branch: on_error, goto: report}]}
      - {name: sum, skill: llm, input_from: collect, on_circuit_open: fallback, fallback_skill: cut}
      - {name: report, capability: mail.send}
"""


def test_a_valid_configuration_has_no_findings(check: Checker) -> None:
    assert check(CLEAN, {"mail.send"}) == []


def test_a_configuration_without_workflows_has_no_findings(check: Checker) -> None:
    assert check("server: {name: desk}\n") == []


def test_findings_come_in_the_order_of_the_file(check: Checker) -> None:
    found = check("workflows:\n  b: {}\n  a: {}\ncapabilities:\n  x: {}\n")
    assert [(one.line, one.code) for one in found] == [(2, "WF001"), (3, "WF001"), (5, "WF013")]


def test_a_finding_names_the_key_and_the_file_it_is_in(check: Checker) -> None:
    (check.folder / "more.yaml").write_text(
        "workflows:\n  w:\n    initialState: a\n    states:\n      a: {transitions: {go: {target: b}}}\n"
    )
    found = check("include: [more.yaml]\n")
    assert [(Path(one.file).name, one.line, one.key) for one in found if one.code == "WF003"] == [
        ("more.yaml", 5, "workflows.w.states.a.transitions.go.target")
    ]


def test_keys_in_snake_case_are_checked_too(check: Checker) -> None:
    found = check.only("workflows:\n  w:\n    initial_state: a\n    states:\n      b: {terminal: true}\n")
    assert (found.code, found.line) == ("WF003", 3)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(CONFIGURATIONS)
def test_any_definition_can_be_checked(data: dict[str, Any]) -> None:
    config = convert(data, Config)
    loaded = Loaded(config, Path("waypost.yaml"), (), (), (), Node({}, "waypost.yaml", 1))

    for found in check_workflows(loaded, {"tool"}):
        assert found.code in CODES
        assert found.message
        assert not found.message.endswith(".")


def test_an_unknown_key_does_not_hide_other_findings(tmp_path: Path) -> None:
    file = tmp_path / "waypost.yaml"
    file.write_text(
        """\
connections: {build: {kind: cli, command: make, comand: x}}
capabilities:
  push: {executor: {kind: cli, connection: bild}, gaurds: []}
workflows:
  article:
    initialState: drft
    titel: Article
    states:
      draft:
        goals: none
        transitions:
          send: {target: reveiw, titel: Send, guards: [{kind: expr, expr: '$.context.a ='}]}
          push: {target: done, executor: {kind: capability, capability: psh}}
      done: {terminal: true, onEnter: {executor: {kind: noop}, outptu: {}}}
  steps: {steps: [{skil: a, input_from: 7}]}
"""
    )

    assert [(found.line, found.code) for found in check(file)] == [
        (1, "CFG010"),
        (3, "CFG010"),
        (3, "WF010"),
        (6, "WF003"),
        (7, "CFG010"),
        (10, "CFG010"),
        (12, "CFG010"),
        (12, "WF003"),
        (12, "WF030"),
        (13, "WF012"),
        (14, "CFG010"),
        (14, "WF006"),
        (15, "CFG010"),
        (15, "WF040"),
    ]
