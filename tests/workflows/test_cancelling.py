"""Cancelling: an instance ends where it stands, whatever it is doing."""

from __future__ import annotations

import asyncio

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, BOB, OPERATOR, STRANGER, WORK, Bench, Json, Told, bench, flow
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


async def cancel(b: Bench, about: Told, by: Principal = ANONYMOUS, reason: str = "enough") -> Told:
    answer = await b.engine.cancel(about.id, DetachedCaller(by, FROM_OUTSIDE), reason)
    return Told(answer.data, answer.refused)


@asynchronous
async def test_what_waits_ends_where_it_stands(store: str) -> None:
    async with bench(flow(STATES), store=store) as b:
        told = await b.start()
        ended = await cancel(b, told)
        assert ended.at == ("a", 2, {})
        assert (ended["terminal"], ended["status"], ended["outcome"]) == (True, "cancelled", "cancelled")
        assert ended["links"] == []
        assert (await b.get(told)).data == ended.data
        row = (await b.history(told))[-1]
        assert (row["transition"], row["reason"], row["by"]) == ("$cancel", "enough", "anonymous")
        assert (await b.submit(ended, "end")).code == "INVALID_TRANSITION"
        again = await cancel(b, told)
        assert (again.refused, again.code) == (True, "INVALID_TRANSITION")
        assert len(await b.history(told)) == 2


@asynchronous
async def test_what_runs_is_stopped_and_does_not_move_it_on() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        b.work.hold()
        moving = asyncio.create_task(b.follow(told, "run", requestId="r"))
        await b.work.began.wait()
        ended = await cancel(b, told)
        assert (ended["status"], ended["version"]) == ("cancelled", 2)
        answer = await moving
        assert (answer.refused, answer.code) == (True, "EXECUTOR_FAILED")
        assert answer["error"]["message"] == f"{told.id} was cancelled before run ended: enough"
        assert answer["status"] == "cancelled"
        assert (await b.follow(told, "run", requestId="r")).data == answer.data
        assert (await b.get(told)).at == ("a", 2, {})
        assert b.engine.runner.running == {}


@asynchronous
async def test_what_another_hub_runs_does_not_move_it_on_either(tmp_path: object) -> None:
    place = f"sqlite:///{tmp_path}/shared.db"
    async with bench(flow(STATES), store=place) as one, bench(flow(STATES), store=place) as other:
        told = await one.start()
        release = one.work.hold()
        moving = asyncio.create_task(one.follow(told, "run", requestId="r"))
        await one.work.began.wait()
        assert (await cancel(other, told))["status"] == "cancelled"
        release.set()
        answer = await moving
        assert answer["error"]["message"] == f"{told.id} was cancelled before run ended: enough"
        assert (await other.follow(told, "run", requestId="r")).data == answer.data
        assert (await one.get(told)).at == ("a", 2, {})


@asynchronous
async def test_what_waits_for_people_waits_no_more() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.follow(await b.start(), "ask")
        assert (await cancel(b, told))["status"] == "cancelled"
        assert await b.engine.approvals.waiting() == []


@asynchronous
async def test_its_children_end_with_it() -> None:
    async with bench(flow(STATES), child=CHILD) as b:
        told = await b.follow(await b.start(), "call")
        assert (await cancel(b, told))["status"] == "cancelled"
        child = await b.get(told["child"]["workflowId"])
        assert (child["terminal"], child["outcome"]) == (True, "cancelled")


@asynchronous
async def test_a_cancelled_child_is_a_failure_of_its_parent() -> None:
    async with bench(flow(STATES), child=CHILD) as b:
        told = await b.follow(await b.start(), "call")
        await cancel(b, await b.get(told["child"]["workflowId"]))
        seen = await b.once(told, lambda seen: seen["status"] != "waiting_for_workflow")
        assert (seen["status"], seen["version"]) == ("waiting_for_action", 1)
        assert "cancelled" in seen["lastError"]["message"]


@asynchronous
async def test_it_takes_who_started_it_or_an_operator() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start(by=ANN)
        unknown = await b.get("wf_none", STRANGER)
        for somebody in (STRANGER, BOB):
            refused = await cancel(b, told, somebody)
            assert refused.code == "UNKNOWN_WORKFLOW"
            assert refused["error"]["message"].replace(told.id, "wf_none") == unknown["error"]["message"]
        assert (await cancel(b, told, OPERATOR))["status"] == "cancelled"


@asynchronous
async def test_a_cancellation_is_on_record() -> None:
    async with bench(flow(STATES), options={"audit": "store"}) as b:
        told = await b.start()
        await cancel(b, told)
        actions = [row.get("action") for row in await b.audited() if row.get("run") == told.id]
        assert "workflow.cancelled" in actions


@asynchronous
async def test_a_run_that_nobody_waits_for_any_more_ends() -> None:
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
        await b.once(Told({"workflowId": instance.id}, False), lambda seen: seen["status"] == "cancelled")
