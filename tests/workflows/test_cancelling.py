"""Cancelling: an instance ends in its current state."""

from __future__ import annotations

import asyncio

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, BOB, OPERATOR, STRANGER, WORK, Bench, Json, View, bench, flow
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE, Principal

DONE: Json = {"terminal": True}
STATES: Json = {
    "a": {
        "transitions": {
            "run": {"target": "done", "executor": WORK},
            "ask": {"target": "done", "executor": {"kind": "human"}},
            "call": {"target": "done", "executor": {"kind": "workflow", "definitionId": "child"}},
            "end": {"target": "done"},
        }
    },
    "done": DONE,
}
CHILD = flow({"x": {"transitions": {"finish": {"target": "end"}}}, "end": DONE})


async def cancel(b: Bench, about: View, by: Principal = ANONYMOUS, reason: str = "enough") -> View:
    answer = await b.engine.cancel(about.id, DetachedCaller(by, FROM_OUTSIDE), reason)
    return View(answer.data, answer.refused)


@asynchronous
async def test_a_waiting_instance_is_cancelled_in_its_state(store: str) -> None:
    async with bench(flow(STATES), store=store) as b:
        view = await b.start()
        ended = await cancel(b, view)
        assert ended.at == ("a", 2, {})
        assert (ended["terminal"], ended["status"], ended["outcome"]) == (True, "cancelled", "cancelled")
        assert ended["links"] == []
        assert (await b.get(view)).data == ended.data
        row = (await b.history(view))[-1]
        assert (row["transition"], row["reason"], row["by"]) == ("$cancel", "enough", "anonymous")
        assert (await b.submit(ended, "end")).code == "INVALID_TRANSITION"
        again = await cancel(b, view)
        assert (again.refused, again.code) == (True, "INVALID_TRANSITION")
        assert len(await b.history(view)) == 2


@asynchronous
async def test_a_running_move_is_stopped_and_does_not_change_the_instance() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        b.work.hold()
        moving = asyncio.create_task(b.follow(view, "run", requestId="r"))
        await b.work.began.wait()
        ended = await cancel(b, view)
        assert (ended["status"], ended["version"]) == ("cancelled", 2)
        answer = await moving
        assert (answer.refused, answer.code) == (True, "EXECUTOR_FAILED")
        assert answer["error"]["message"] == f"{view.id} was cancelled before run ended: enough"
        assert answer["status"] == "cancelled"
        assert (await b.follow(view, "run", requestId="r")).data == answer.data
        assert (await b.get(view)).at == ("a", 2, {})
        assert b.engine.runner.running == {}


@asynchronous
async def test_a_move_that_another_hub_runs_does_not_change_a_cancelled_instance(tmp_path: object) -> None:
    place = f"sqlite:///{tmp_path}/shared.db"
    async with bench(flow(STATES), store=place) as one, bench(flow(STATES), store=place) as other:
        view = await one.start()
        release = one.work.hold()
        moving = asyncio.create_task(one.follow(view, "run", requestId="r"))
        await one.work.began.wait()
        assert (await cancel(other, view))["status"] == "cancelled"
        release.set()
        answer = await moving
        assert answer["error"]["message"] == f"{view.id} was cancelled before run ended: enough"
        assert (await other.follow(view, "run", requestId="r")).data == answer.data
        assert (await one.get(view)).at == ("a", 2, {})


@asynchronous
async def test_cancelling_an_instance_removes_its_pending_approval() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.follow(await b.start(), "ask")
        assert (await cancel(b, view))["status"] == "cancelled"
        assert await b.engine.approvals.waiting() == []


@asynchronous
async def test_cancelling_an_instance_cancels_its_children() -> None:
    async with bench(flow(STATES), child=CHILD) as b:
        view = await b.follow(await b.start(), "call")
        assert (await cancel(b, view))["status"] == "cancelled"
        child = await b.get(view["child"]["workflowId"])
        assert (child["terminal"], child["outcome"]) == (True, "cancelled")


@asynchronous
async def test_a_cancelled_child_is_a_failure_of_its_parent() -> None:
    async with bench(flow(STATES), child=CHILD) as b:
        view = await b.follow(await b.start(), "call")
        await cancel(b, await b.get(view["child"]["workflowId"]))
        seen = await b.once(view, lambda seen: seen["status"] != "waiting_for_workflow")
        assert (seen["status"], seen["version"]) == ("waiting_for_action", 1)
        assert "cancelled" in seen["lastError"]["message"]


@asynchronous
async def test_only_the_owner_or_an_operator_can_cancel() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start(by=ANN)
        unknown = await b.get("wf_none", STRANGER)
        for person in (STRANGER, BOB):
            refused = await cancel(b, view, person)
            assert refused.code == "UNKNOWN_WORKFLOW"
            assert refused["error"]["message"].replace(view.id, "wf_none") == unknown["error"]["message"]
        assert (await cancel(b, view, OPERATOR))["status"] == "cancelled"


@asynchronous
async def test_a_cancellation_is_audited() -> None:
    async with bench(flow(STATES), options={"audit": "store"}) as b:
        view = await b.start()
        await cancel(b, view)
        actions = [row.get("action") for row in await b.audited() if row.get("run") == view.id]
        assert "workflow.cancelled" in actions


@asynchronous
async def test_an_instance_is_cancelled_when_its_tool_call_is_cancelled() -> None:
    states = {
        "a": {"transitions": {"on": {"target": "done", "actor": "deterministic", "executor": WORK}}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        b.work.hold()
        running = asyncio.create_task(b.client.call_tool("workflow:flow", {"input": {}}))
        await b.work.began.wait()
        running.cancel()
        await asyncio.wait({running})
        (instance,) = await b.hub.store.instances.page()
        await b.once(View({"workflowId": instance.id}, False), lambda seen: seen["status"] == "cancelled")
