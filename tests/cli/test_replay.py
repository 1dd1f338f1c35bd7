"""`waypost replay`: recorded instances against the current workflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.operated import Captured, complaint, printed_json
from tests.cli.released import CONFIG, Desk
from tests.cli.released import desk as desk
from waypost.cli import main


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "waypost.yaml").write_text(CONFIG)
    return tmp_path / "waypost.yaml"


def test_an_instance_is_compared_with_the_current_definition(desk: Desk, config: Path, capsys: Captured) -> None:
    view = desk.submit(desk.start(), "build", tests=12)
    run = desk.submit(view, "revise")["workflowId"]
    assert main(["replay", str(config), run]) == 0
    assert capsys.readouterr().out.splitlines() == ["1  $start: allowed", "2  build: allowed", "3  revise: allowed"]
    guard = "{target: draft, guards: [{kind: expr, expr: $.context.tests > 90}]}"
    config.write_text(CONFIG.replace("revise: {target: draft}", f"revise: {guard}"))
    assert main(["replay", str(config), run]) == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "3  revise: refused",
        "    It is not true that $.context.tests > 90. $.context.tests is 12",
    ]


def test_an_instance_from_a_file_needs_no_hub(desk: Desk, config: Path, capsys: Captured) -> None:
    view = desk.submit(desk.start(), "build", tests=12)
    assert main(["runs", "show", view["workflowId"], "--json"]) == 0
    file = config.with_name("history.json")
    file.write_text(capsys.readouterr().out)
    assert main(["replay", str(config), "--file", str(file), "--data", "nowhere", "--json"]) == 0
    found = printed_json(capsys)
    assert (found["workflowId"], found["ok"]) == (view["workflowId"], True)
    assert [commit["verdict"] for commit in found["commits"]] == ["allowed", "allowed"]
    config.write_text(CONFIG.replace("build:", "make:"))
    assert main(["replay", str(config), "--file", str(file), "--json"]) == 1
    assert printed_json(capsys)["commits"][1]["reasons"] == [{"message": "draft has no transition build any more."}]


@pytest.mark.parametrize(
    ("text", "part"),
    [(None, "cannot be read"), ("{", "is not JSON"), ("[]", "This is not the history of a workflow instance")],
)
def test_an_invalid_history_is_a_one_line_error(text: str | None, part: str, config: Path, capsys: Captured) -> None:
    file = config.with_name("history.json")
    if text is not None:
        file.write_text(text)
    assert main(["replay", str(config), "--file", str(file)]) == 1
    assert part in complaint(capsys)
