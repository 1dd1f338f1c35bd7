"""`waypost runs`: the workflow instances of a running hub."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.operated import Captured, complaint, printed_json
from tests.cli.released import LEAD, Desk
from tests.cli.released import desk as desk
from waypost.cli import main
from waypost.cli.runs import STATUSES


def test_runs_are_listed_with_the_newest_first(desk: Desk, capsys: Captured) -> None:
    ids = sorted(desk.start()["workflowId"] for _ in range(3))
    assert main(["runs", "list", "--json", "--limit", "2"]) == 0
    listed = printed_json(capsys)
    assert [run["workflowId"] for run in listed] == ids[:0:-1]
    assert main(["runs", "list", "--definition", "release", "--principal", "anonymous", "--json"]) == 0
    assert {run["workflowId"] for run in printed_json(capsys)} >= set(ids)
    assert main(["runs", "list", "--definition", "nothing", "--json"]) == 0
    assert printed_json(capsys) == []


def test_runs_are_listed_as_a_table(desk: Desk, capsys: Captured) -> None:
    run = desk.asked()["workflowId"]
    assert main(["runs", "list", "--status", "waiting_for_approval"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["ID", "WORKFLOW", "STATE", "VERSION", "STATUS", "PRINCIPAL", "STARTED"]
    (row,) = [row.split() for row in rows if run in row]
    assert row[1:6] == ["release", "review", "2", "waiting_for_approval", "anonymous"]


def test_an_instance_is_shown_with_one_row_per_commit(desk: Desk, capsys: Captured) -> None:
    view = desk.submit(desk.start(), "build", tests=12)
    assert main(["runs", "show", view["workflowId"], "--json"]) == 0
    shown = printed_json(capsys)
    assert (shown["state"], shown["context"]) == ("review", {"tests": 12})
    assert [(row["version"], row["transition"]) for row in shown["history"]] == [(1, "$start"), (2, "build")]


def test_an_instance_is_shown_as_text(desk: Desk, capsys: Captured) -> None:
    view = desk.submit(desk.start(), "build", tests=12)
    assert main(["runs", "show", view["workflowId"]]) == 0
    first, context, head, start, build = capsys.readouterr().out.splitlines()
    assert first == f"{view['workflowId']} (release) is in review, version 2: waiting_for_action"
    assert context == 'context: {"tests": 12}'
    assert head.split() == ["VERSION", "TIME", "TRANSITION", "FROM", "TO", "BY", "OUTCOME"]
    assert start.split()[2:] == ["$start", "draft", "anonymous"]
    assert build.split()[2:] == ["build", "draft", "review", "anonymous"]


def test_a_run_is_cancelled(desk: Desk, capsys: Captured) -> None:
    run = desk.start()["workflowId"]
    assert main(["runs", "cancel", run, "--reason", "not needed"]) == 0
    assert capsys.readouterr().out == f"{run} is cancelled in draft.\n"
    assert main(["runs", "cancel", run]) == 1
    assert complaint(capsys) == f"waypost: {run} has ended already."
    assert main(["runs", "show", run, "--json"]) == 0
    assert printed_json(capsys)["history"][-1]["reason"] == "not needed"


def test_only_an_unknown_outcome_can_be_resolved(desk: Desk, capsys: Captured) -> None:
    run = desk.start()["workflowId"]
    for how in ("retry", "succeeded", "failed"):
        assert main(["runs", "resolve", run, "--as", how]) == 1
        assert complaint(capsys) == "waypost: There is no unknown outcome to resolve."


def test_an_unknown_instance_is_an_error(desk: Desk, capsys: Captured) -> None:
    for arguments in (["show"], ["cancel"], ["resolve", "--as", "retry"]):
        assert main(["runs", arguments[0], "wf_never", *arguments[1:]]) == 1
        assert complaint(capsys) == "waypost: Unknown workflow instance 'wf_never'."


def test_runs_are_for_operators(desk: Desk, capsys: Captured) -> None:
    assert main(["runs", "list", "--url", desk.url, "--key", LEAD]) == 1
    assert "lena does not have the role viewer" in complaint(capsys)


def test_an_unknown_status_is_wrong_usage(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["runs", "list", "--status", "nonsense"])

    assert ended.value.code == 2
    assert "'waiting_for_action'" in complaint(capsys)


def test_every_status_that_is_documented_can_be_asked_for() -> None:
    page = (Path(__file__).parents[2] / "docs" / "workflow-answers.md").read_text()
    table = page.partition("### Status")[2].partition("\n### ")[0]

    assert {*re.findall(r"^\| `(\w+)` ", table, re.MULTILINE), "going_on"} == set(STATUSES)


def test_an_id_with_a_slash_is_an_unknown_instance(desk: Desk, capsys: Captured) -> None:
    assert main(["runs", "show", "a/b?c#d"]) == 1
    assert complaint(capsys) == "waypost: Unknown workflow instance 'a/b?c#d'."
