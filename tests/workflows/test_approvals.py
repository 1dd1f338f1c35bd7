"""Approvals: a move waits for people, bound to exactly what they were shown."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, BOB, OPERATOR, STRANGER, Bench, Json, View, bench, flow, later
from waypost.capabilities.principals import Principal
from waypost.errors import WorkflowRefused

DONE: Json = {"terminal": True}
CAROL = Principal("carol", ("lead",))


def gate(output: Json | None = None, **executor: Any) -> Json:
    """A workflow in which `ask` waits for people."""
    ask = {"target": "done", "title": "Deploy", "executor": {"kind": "human", **executor}, "output": output or {}}
    states = {"a": {"transitions": {"ask": ask, "other": {"target": "done"}}}, "done": DONE}
    return flow(states, initialContext={"coverage": 90})


async def parked(b: Bench, **more: Any) -> View:
    """An instance that waits for people."""
    return await b.submit(await b.start(), "ask", {"why": "now"}, **more)


async def refusal(deciding: Any) -> WorkflowRefused:
    with pytest.raises(WorkflowRefused) as caught:
        await deciding
    return caught.value


@asynchronous
async def test_a_submit_that_waits_for_approval_is_no_error_and_changes_nothing(store: str) -> None:
    async with bench(gate(), store=store) as b:
        view = await parked(b)
        assert (view.refused, view["status"], view["version"], view["state"]) == (False, "waiting_for_approval", 1, "a")
        approval = view["approval"]
        assert approval["id"].startswith("ap_")
        assert approval["expiresAt"].endswith("Z")
        assert (approval["role"], approval["needed"], approval["given"]) == ("human", 1, 0)
        assert (approval["prompt"], approval["presents"]) == (
            "Deploy",
            {"arguments": {"why": "now"}, "context": {"coverage": 90}},
        )
        assert view.rels == ["self"]
        assert (await b.get(view))["approval"]["id"] == approval["id"]
        for transition in ("ask", "other"):
            refused = await b.submit(view, transition)
            assert (refused.code, refused["error"]["approval"]["id"]) == ("APPROVAL_PENDING", approval["id"])
            assert "self" in refused.rels
        assert (await b.submit(view, "other", version=2)).code == "STALE_WORKFLOW_VERSION"
        assert len(await b.history(view)) == 1


@asynchronous
async def test_an_approval_moves_the_instance_and_the_history_names_the_approver(store: str) -> None:
    output = {"who": "$.output.approvers", "why": "$.output.reason", "yes": "$.output.approved"}
    async with bench(gate(output), store=store) as b:
        view = await parked(b)
        outcome = await b.engine.approvals.approve(view["approval"]["id"], ANN, "cli", "fine")
        assert outcome.instance.state.name == "done"
        seen = await b.get(view)
        assert seen.at == ("done", 2, {"coverage": 90, "who": ["ann"], "why": "fine", "yes": True})
        assert seen["evidence"] == [{"kind": "human_approval", "by": "ann", "version": 2}]
        row = (await b.history(view))[-1]
        assert row["by"] == "anonymous"
        assert [(one["by"], one["via"], one["reason"]) for one in row["approvals"]] == [("ann", "cli", "fine")]
        assert row["approvalId"] == view["approval"]["id"]


@asynchronous
async def test_a_rejection_leaves_the_instance_and_is_recorded() -> None:
    async with bench(gate(), options={"audit": "store"}) as b:
        view = await parked(b)
        await b.engine.approvals.reject(view["approval"]["id"], ANN, "cli", "too early")
        rows = [row for row in await b.audited() if row.get("action", "").endswith(".rejected")]
        assert [(row["principal"], row["decision"], row["outcome"]) for row in rows] == [
            ("anonymous", "deny", "rejected"),
            ("ann", "deny", "rejected"),
        ]
        seen = await b.get(view)
        assert seen.at == ("a", 1, {"coverage": 90})
        assert (seen["status"], seen.names, seen.code) == ("waiting_for_action", ["ask", "other"], None)
        assert seen["lastError"] == {
            "code": "APPROVAL_REJECTED",
            "message": "ann rejected ask: too early",
            "decidedBy": "ann",
            "reason": "too early",
            "attemptedTransition": "ask",
            "approvalId": view["approval"]["id"],
        }
        (note,) = await b.notes(view)
        assert (note["outcome"], note["decidedBy"], note["reason"], note["via"]) == (
            "rejected",
            "ann",
            "too early",
            "cli",
        )
        assert (await b.submit(view, "other"))["terminal"]


@asynchronous
async def test_a_decided_approval_cannot_be_decided_again() -> None:
    async with bench(gate()) as b:
        view = await parked(b)
        number = view["approval"]["id"]
        await b.engine.approvals.reject(number, ANN, "cli")
        settled = [await refusal(b.engine.approvals.approve(number, BOB, "cli"))]
        again = await b.submit(view, "ask")
        assert again["approval"]["id"] != number
        settled.append(await refusal(b.engine.approvals.approve(number, BOB, "cli")))
        await b.engine.approvals.approve(again["approval"]["id"], BOB, "cli")
        settled.append(await refusal(b.engine.approvals.reject(again["approval"]["id"], ANN, "cli")))
        assert {error.code for error in settled} == {"APPROVAL_SETTLED"}
        seen = await b.get(view)
        assert (seen["state"], "lastError" in seen.data) == ("done", False)


@pytest.mark.parametrize("number", ["ap_nothing", "", "ap_0_1", "wf_1"])
@asynchronous
async def test_an_unknown_approval_cannot_be_decided(number: str) -> None:
    async with bench(gate()) as b:
        for decide in (b.engine.approvals.approve, b.engine.approvals.reject):
            assert (await refusal(decide(number, ANN, "cli"))).code == "UNKNOWN_APPROVAL"


@asynchronous
async def test_deciding_an_approval_requires_its_role() -> None:
    async with bench(gate(role="lead")) as b:
        view = await parked(b)
        # A stranger does not learn that the approval exists.
        for person, code in ((ANN, "POLICY_DENIED"), (STRANGER, "UNKNOWN_APPROVAL")):
            for decide in (b.engine.approvals.approve, b.engine.approvals.reject):
                assert (await refusal(decide(view["approval"]["id"], person, "cli"))).code == code
        await b.engine.approvals.approve(view["approval"]["id"], CAROL, "cli")
        assert (await b.get(view))["terminal"]


@asynchronous
async def test_a_quorum_needs_different_people(store: str) -> None:
    async with bench(gate({"who": "$.output.approvers"}, approvals=2), store=store) as b:
        view = await parked(b)
        number = view["approval"]["id"]
        await b.engine.approvals.approve(number, ANN, "cli")
        seen = await b.get(view)
        assert (seen["status"], seen["version"], seen["approval"]["given"]) == ("waiting_for_approval", 1, 1)
        again = await refusal(b.engine.approvals.approve(number, ANN, "http"))
        assert ("already" in again.message, again.code) == (True, "APPROVAL_GIVEN")
        await b.engine.approvals.approve(number, BOB, "http")
        seen = await b.get(view)
        assert seen.at == ("done", 2, {"coverage": 90, "who": ["ann", "bob"]})
        assert [(proof["kind"], proof["by"]) for proof in seen["evidence"]] == [
            ("human_approval", "ann"),
            ("human_approval", "bob"),
        ]


@asynchronous
async def test_concurrent_approvals_are_each_counted_once() -> None:
    people = [Principal(f"p{number}", ("human",)) for number in range(5)]
    async with bench(gate({"who": "$.output.approvers"}, approvals=5)) as b:
        view = await parked(b)
        number = view["approval"]["id"]
        await asyncio.gather(*(b.engine.approvals.approve(number, person, "cli") for person in people))
        seen = await b.get(view)
        assert (seen["version"], sorted(seen["context"]["who"])) == (2, [person.id for person in people])


@asynchronous
async def test_a_rejection_ends_a_quorum() -> None:
    async with bench(gate(approvals=2)) as b:
        view = await parked(b)
        await b.engine.approvals.approve(view["approval"]["id"], ANN, "cli")
        await b.engine.approvals.reject(view["approval"]["id"], BOB, "cli")
        assert (await b.get(view))["status"] == "waiting_for_action"


@asynchronous
async def test_a_rejection_at_the_moment_of_another_approval_is_not_lost() -> None:
    async with bench(gate(approvals=6)) as b:
        view = await parked(b)
        number = view["approval"]["id"]
        people = [Principal(f"p{number}", ("human",)) for number in range(5)]
        # All of them read the approval before the first of them writes.
        *_, rejected = await asyncio.gather(
            *(b.engine.approvals.approve(number, person, "cli") for person in people),
            b.engine.approvals.reject(number, BOB, "http", "too early"),
            return_exceptions=True,
        )
        assert not isinstance(rejected, BaseException)
        seen = await b.get(view)
        assert (seen["status"], seen["lastError"]["decidedBy"]) == ("waiting_for_action", "bob")


@asynchronous
async def test_an_approval_is_bound_to_the_digest_of_what_was_shown() -> None:
    async with bench(gate(presents={"percent": "$.context.coverage"}, prompt="Deploy?")) as b:
        view = await parked(b)
        approval = view["approval"]
        assert (approval["prompt"], approval["presents"]) == ("Deploy?", {"percent": 90})
        assert approval["digest"].startswith("sha256:")
        other = (await parked(b))["approval"]["digest"]
        assert other != approval["digest"]
        for decide in (b.engine.approvals.approve, b.engine.approvals.reject):
            assert (await refusal(decide(approval["id"], ANN, "cli", "", other))).code == "APPROVAL_CHANGED"
        await b.engine.approvals.approve(approval["id"], ANN, "cli", "", approval["digest"])
        assert (await b.get(view))["terminal"]


@pytest.mark.parametrize("who_looks", ["reader", "watch", "approver", "submitter"])
@asynchronous
async def test_an_approval_expires(who_looks: str) -> None:
    async with bench(gate(expiresMs=1)) as b:
        view = await parked(b)
        await later(time.time() + 0.002)
        if who_looks == "watch":
            await b.hub.workflows.watch.look()
        elif who_looks == "approver":
            expired = await refusal(b.engine.approvals.approve(view["approval"]["id"], ANN, "cli"))
            assert ("expired" in expired.message, expired.code) == (True, "APPROVAL_EXPIRED")
        elif who_looks == "submitter":
            assert (await b.submit(view, "other"))["terminal"]
            return
        seen = await b.get(view)
        assert (seen["status"], seen["version"]) == ("waiting_for_action", 1)
        assert (seen["lastError"]["code"], seen["lastError"]["attemptedTransition"]) == ("APPROVAL_EXPIRED", "ask")
        (note,) = await b.notes(view)
        assert note["outcome"] == "expired"
        assert await b.engine.approvals.waiting() == []


@asynchronous
async def test_waiting_approvals_are_listed_oldest_first() -> None:
    async with bench(gate(queue="prod")) as b:
        view = [await parked(b) for _ in range(3)]
        waiting = await b.engine.approvals.waiting()
        assert [one["id"] for one in waiting] == [one["approval"]["id"] for one in view]
        assert (waiting[0]["queue"], waiting[0]["workflowId"], waiting[0]["transition"], waiting[0]["requestedBy"]) == (
            "prod",
            view[0].id,
            "ask",
            "anonymous",
        )
        await b.engine.approvals.approve(view[1]["approval"]["id"], OPERATOR, "cli")
        assert len(await b.engine.approvals.waiting()) == 2


@asynchronous
async def test_the_audit_names_the_authenticated_approver() -> None:
    async with bench(gate(), options={"audit": "store"}) as b:
        view = await b.submit(await b.start(), "ask", {"approved": True, "approver": "ann"})
        assert view["status"] == "waiting_for_approval"
        await b.engine.approvals.approve(view["approval"]["id"], ANN, "cli", "looks good")
        rows = [row for row in await b.audited() if row.get("run") == view.id]
        asked, approved = (
            [row for row in rows if row["action"] == f"approval.{word}"] for word in ("requested", "approved")
        )
        assert [row["principal"] for row in asked] == ["anonymous"]
        assert [(row["principal"], row["callerType"]) for row in approved] == [("ann", "cli")]
        assert "a person, by cli" in approved[0]["reason"]
        assert view["approval"]["digest"] in approved[0]["reason"]


@asynchronous
async def test_a_chain_continues_after_an_approval_and_stops_after_a_rejection() -> None:
    states = {
        "a": {"transitions": {"go": {"target": "gate"}}},
        "gate": {"transitions": {"ask": {"target": "b", "actor": "deterministic", "executor": {"kind": "human"}}}},
        "b": {"transitions": {"on": {"target": "done", "actor": "deterministic"}}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        view = await b.follow(await b.start(), "go")
        assert (view["status"], view["state"], view["version"]) == ("waiting_for_approval", "gate", 2)
        await b.engine.approvals.reject(view["approval"]["id"], ANN, "cli", "no")
        seen = await b.get(view)
        assert (seen.code, seen["version"], seen.names) == ("CHAIN_FAILED", 2, ["$resume"])
        assert (seen["error"]["decidedBy"], seen["error"]["reason"]) == ("ann", "no")
        again = await b.follow(seen, "$resume")
        assert again["status"] == "waiting_for_approval"
        await b.engine.approvals.approve(again["approval"]["id"], ANN, "cli")
        assert (await b.get(view)).at == ("done", 4, {})


@asynchronous
async def test_entering_a_state_may_wait_for_approval() -> None:
    states = {
        "a": {
            "onEnter": {"executor": {"kind": "human"}, "output": {"who": "$.output.approvers"}},
            "transitions": {"go": {"target": "done"}},
        },
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        view = await b.start()
        assert (view.refused, view["status"], view["version"]) == (False, "waiting_for_approval", 1)
        await b.engine.approvals.approve(view["approval"]["id"], ANN, "cli")
        seen = await b.get(view)
        assert (seen.at, seen.names) == (("a", 2, {"who": ["ann"]}), ["go"])


@asynchronous
async def test_an_approval_after_the_timeout_of_the_workflow_is_too_late() -> None:
    definition = {**gate(), "timeoutMs": 10_000}
    async with bench(definition) as b:
        await b.hub.workflows.watch.stop()
        view = await parked(b)
        b.pass_time(10)
        late = await refusal(b.engine.approvals.approve(view["approval"]["id"], ANN, "cli"))
        seen = await b.get(view)
        assert (late.code, seen["status"], seen["state"]) == ("APPROVAL_EXPIRED", "timed_out", "a")
