"""`waypost simulate` and `waypost replay`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.operated import Captured, complaint, printed_json
from tests.cli.released import CONFIG, Desk
from tests.cli.released import desk as desk
from waypost.cli import main

STUCK = """\
version: "1"
workflows:
  stuck:
    initialState: a
    states:
      a: {transitions: {put: {target: b, output: {ok: $.arguments.ok}}}}
      b: {transitions: {go: {target: c, guards: [{kind: expr, expr: $.context.ok == true}]}}}
      c: {terminal: true}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "waypost.yaml").write_text(CONFIG)
    (tmp_path / "stuck.yaml").write_text(STUCK)
    return tmp_path / "waypost.yaml"


def test_a_workflow_that_is_well_exits_with_0(config: Path, capsys: Captured) -> None:
    assert main(["simulate", str(config), "release"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("release: 200 walks of at most 50 steps, seed 0: ")
    assert last == "all is well"


def test_a_dead_end_exits_with_1_and_is_shown(config: Path, capsys: Captured) -> None:
    file = str(config.with_name("stuck.yaml"))
    assert main(["simulate", file, "stuck", "--walks", "50", "--steps", "9", "--seed", "3"]) == 1
    shown = capsys.readouterr().out
    assert "dead end: b, in walk " in shown
    assert "\n    go: go is not allowed now: It is not true that $.context.ok == true.\n" in shown
    assert "\n    a -put-> b\n" in shown
    assert shown.endswith("there is trouble\n")


def test_a_simulation_is_the_same_again(config: Path, capsys: Captured) -> None:
    reports = []
    for _ in range(2):
        assert main(["simulate", str(config.with_name("stuck.yaml")), "stuck", "--seed", "5", "--json"]) == 1
        reports.append(printed_json(capsys))
    assert reports[0] == reports[1]
    assert reports[0]["deadEnds"][0]["state"] == "b"
    assert (reports[0]["seed"], reports[0]["neverReached"], reports[0]["ok"]) == (5, [], False)


@pytest.mark.parametrize("command", ["simulate", "graph"])
def test_a_workflow_that_is_not_there_is_one_sentence(command: str, config: Path, capsys: Captured) -> None:
    assert main([command, str(config), "realease"]) == 1
    assert "There is no workflow 'realease'" in complaint(capsys)


def test_a_run_is_held_against_the_definition_of_today(desk: Desk, config: Path, capsys: Captured) -> None:
    told = desk.submit(desk.start(), "build", tests=12)
    run = desk.submit(told, "revise")["workflowId"]
    assert main(["replay", str(config), run]) == 0
    assert capsys.readouterr().out.splitlines() == ["1  $start: allowed", "2  build: allowed", "3  revise: allowed"]
    guard = "{target: draft, guards: [{kind: expr, expr: $.context.tests > 90}]}"
    config.write_text(CONFIG.replace("revise: {target: draft}", f"revise: {guard}"))
    assert main(["replay", str(config), run]) == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "3  revise: refused",
        "    It is not true that $.context.tests > 90. $.context.tests is 12",
    ]


def test_a_run_from_a_file_needs_no_hub(desk: Desk, config: Path, capsys: Captured) -> None:
    told = desk.submit(desk.start(), "build", tests=12)
    assert main(["runs", "show", told["workflowId"], "--json"]) == 0
    file = config.with_name("history.json")
    file.write_text(capsys.readouterr().out)
    assert main(["replay", str(config), "--file", str(file), "--data", "nowhere", "--json"]) == 0
    found = printed_json(capsys)
    assert (found["workflowId"], found["ok"]) == (told["workflowId"], True)
    assert [commit["verdict"] for commit in found["commits"]] == ["allowed", "allowed"]
    config.write_text(CONFIG.replace("build:", "make:"))
    assert main(["replay", str(config), "--file", str(file), "--json"]) == 1
    assert printed_json(capsys)["commits"][1]["reasons"] == [{"message": "draft has no transition build any more."}]


@pytest.mark.parametrize(
    ("text", "part"), [(None, "cannot be read"), ("{", "is no JSON"), ("[]", "That is no history of a run")]
)
def test_what_is_no_history_is_one_sentence(text: str | None, part: str, config: Path, capsys: Captured) -> None:
    file = config.with_name("history.json")
    if text is not None:
        file.write_text(text)
    assert main(["replay", str(config), "--file", str(file)]) == 1
    assert part in complaint(capsys)
