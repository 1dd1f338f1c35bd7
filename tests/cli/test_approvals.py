"""`waypost approvals`: pending approvals of a running hub, and their decisions."""

from __future__ import annotations

import pytest

from tests.cli.operated import Captured, complaint, printed_json
from tests.cli.released import LEAD, Desk
from tests.cli.released import desk as desk
from waypost.cli import main
from waypost.cli.client import HubClient


def test_pending_approvals_are_listed(desk: Desk, capsys: Captured) -> None:
    answer = desk.asked()
    assert main(["approvals", "list", "--json"]) == 0
    (waiting,) = [one for one in printed_json(capsys) if one["workflowId"] == answer["workflowId"]]
    assert waiting.keys() >= {"id", "workflowId", "transition", "requestedAt", "expiresAt", "presents", "digest"}
    assert (waiting["id"], waiting["transition"]) == (answer["approval"]["id"], "ship")
    assert (waiting["presents"], waiting["digest"]) == ({"tests": 12}, answer["approval"]["digest"])
    assert main(["approvals", "list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["ID", "RUN", "WORKFLOW", "TRANSITION", "ROLE", "EXPIRES", "QUESTION", "SHOWN"]
    assert any(waiting["id"] in row and '{"tests": 12}' in row for row in rows)


def test_an_approval_continues_the_instance_and_is_in_its_history(desk: Desk, capsys: Captured) -> None:
    answer = desk.asked()
    approval, run = answer["approval"]["id"], answer["workflowId"]
    assert (
        main(["approvals", "approve", approval, "--reason", "looks good", "--digest", answer["approval"]["digest"]])
        == 0
    )
    assert capsys.readouterr().out == f"{approval} is approved; {run} is in shipped, version 3: succeeded\n"
    assert main(["runs", "show", run, "--json"]) == 0
    (given,) = printed_json(capsys)["history"][-1]["approvals"]
    assert (given["by"], given["via"], given["reason"]) == ("hub", "cli", "looks good")
    assert main(["runs", "show", run]) == 0
    assert "anonymous, approved by hub (cli)" in capsys.readouterr().out.splitlines()[-1]


def test_a_rejection_is_in_the_history_and_the_instance_keeps_its_state(desk: Desk, capsys: Captured) -> None:
    answer = desk.asked()
    approval, run = answer["approval"]["id"], answer["workflowId"]
    assert main(["approvals", "reject", approval, "--reason", "no", "--json"]) == 0
    decided = printed_json(capsys)
    assert (decided["decision"], decided["state"], decided["version"]) == ("rejected", "review", 2)
    assert main(["runs", "show", run, "--json"]) == 0
    last = printed_json(capsys)["history"][-1]
    assert (last["version"], last["outcome"], last["via"], last["reason"]) == (2, "rejected", "cli", "no")


@pytest.mark.parametrize("word", ["approve", "reject"])
def test_a_decided_or_unknown_approval_is_an_error(word: str, desk: Desk, capsys: Captured) -> None:
    approval = desk.asked()["approval"]["id"]
    assert main(["approvals", "approve", approval]) == 0
    capsys.readouterr()
    for name in (approval, "ap_never_was"):
        assert main(["approvals", word, name]) == 1
        assert (
            complaint(capsys)
            == f"waypost: There is no pending approval {name}; it has been decided, or does not exist."
        )


def test_an_approval_with_another_digest_is_refused(desk: Desk, capsys: Captured) -> None:
    approval = desk.asked()["approval"]["id"]
    assert main(["approvals", "approve", approval, "--digest", "sha256:00"]) == 1
    assert "read it again" in complaint(capsys)


def test_a_key_with_the_role_of_the_gate_may_approve(desk: Desk, capsys: Captured) -> None:
    approval = desk.asked()["approval"]["id"]
    assert main(["approvals", "list", "--url", desk.url, "--key", LEAD, "--json"]) == 0
    assert approval in [one["id"] for one in printed_json(capsys)]
    assert main(["approvals", "approve", approval, "--url", desk.url, "--key", LEAD, "--json"]) == 0
    assert printed_json(capsys)["status"] == "succeeded"


@pytest.mark.parametrize(
    ("missing", "said"), [(0, "is approved"), (1, "needs 1 more approval"), (2, "needs 2 more approvals")]
)
def test_an_incomplete_approval_names_the_number_of_missing_ones(
    missing: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decided = {"missing": missing, "decision": "approved", "error": None}
    instance = {"workflowId": "wf_1", "state": "a", "version": 1, "status": "waiting_for_approval"}
    monkeypatch.setattr(HubClient, "post", lambda *_: decided | instance)

    assert main(["approvals", "approve", "ap_1", "--url", "http://127.0.0.1:1"]) == 0
    assert capsys.readouterr().out == f"ap_1 {said}; wf_1 is in a, version 1: waiting_for_approval\n"
