"""`waypost simulate`: random walks through a workflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.operated import Captured, complaint, printed_json
from tests.cli.released import CONFIG
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


def test_a_workflow_without_problems_exits_with_0(config: Path, capsys: Captured) -> None:
    assert main(["simulate", str(config), "release"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("release: 200 walks of at most 50 steps, seed 0: ")
    assert last == "no problems found"


def test_a_dead_end_exits_with_1_and_is_shown(config: Path, capsys: Captured) -> None:
    file = str(config.with_name("stuck.yaml"))
    assert main(["simulate", file, "stuck", "--walks", "50", "--steps", "9", "--seed", "3"]) == 1
    shown = capsys.readouterr().out
    assert "dead end: b, in walk " in shown
    assert "\n    go: go is not allowed now: It is not true that $.context.ok == true.\n" in shown
    assert "\n    a -put-> b\n" in shown
    assert shown.endswith("problems found\n")


def test_a_simulation_with_the_same_seed_gives_the_same_report(config: Path, capsys: Captured) -> None:
    reports = []
    for _ in range(2):
        assert main(["simulate", str(config.with_name("stuck.yaml")), "stuck", "--seed", "5", "--json"]) == 1
        reports.append(printed_json(capsys))
    assert reports[0] == reports[1]
    assert reports[0]["deadEnds"][0]["state"] == "b"
    assert (reports[0]["seed"], reports[0]["neverReached"], reports[0]["ok"]) == (5, [], False)


@pytest.mark.parametrize("command", ["simulate", "graph"])
def test_an_unknown_workflow_is_a_one_line_error(command: str, config: Path, capsys: Captured) -> None:
    assert main([command, str(config), "realease"]) == 1
    assert "There is no workflow 'realease'" in complaint(capsys)
