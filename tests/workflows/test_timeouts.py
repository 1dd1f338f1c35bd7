"""When the time of a workflow is over: at the next look, or by the hub's own clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, WORK, Bench, Json, Told, bench, flow, later
from waypost.errors import WorkflowRefused

DONE: Json = {"terminal": True}
STATES: Json = {
    "a": {"transitions": {"go": {"target": "done"}, "ask": {"target": "done", "executor": {"kind": "human"}}}},
    "late": {"transitions": {"end": {"target": "done"}}},
    "expired": {"terminal": True, "outcome": "failed"},
    "done": DONE,
}


async def over(b: Bench) -> Told:
    """An instance whose time is over."""
    told = await b.start()
    await later(time.time() + 0.002)
    return told


@asynchronous
async def test_a_look_applies_a_timeout_once(store: str) -> None:
    async with bench(flow(STATES, timeoutMs=1, onTimeout={"target": "expired"}), store=store) as b:
        told = await over(b)
        seen = await b.get(told)
        assert seen.at == ("expired", 2, {})
        assert (seen["terminal"], seen["outcome"], seen["links"]) == (True, "failed", [])
        assert (await b.get(told)).at == seen.at
        assert [row["transition"] for row in await b.history(told)] == ["$start", "$timeout"]


@asynchronous
async def test_a_timeout_may_lead_to_a_state_from_which_it_goes_on() -> None:
    async with bench(flow(STATES, timeoutMs=1, onTimeout={"target": "late"})) as b:
        told = await over(b)
        seen = await b.get(told)
        assert seen.at == ("late", 2, {})
        assert (await b.get(told)).at == seen.at
        await b.hub.workflows.watch.look()
        assert (await b.get(told)).at == seen.at
        ended = await b.follow(seen, "end")
        assert ended.at == ("done", 3, {})


@asynchronous
async def test_without_a_state_to_go_to_it_ends_where_it_stands() -> None:
    async with bench(flow(STATES, timeoutMs=1)) as b:
        seen = await b.get(await over(b))
        assert seen.at == ("a", 2, {})
        assert (seen["terminal"], seen["status"], seen["outcome"], seen["links"]) == (True, "timed_out", "failed", [])
        assert (await b.submit(seen, "go")).code == "INVALID_TRANSITION"


@asynchronous
async def test_a_submit_that_comes_too_late_is_stale() -> None:
    async with bench(flow(STATES, timeoutMs=1, onTimeout={"target": "expired"})) as b:
        refused = await b.follow(await over(b), "go")
        assert refused.code == "STALE_WORKFLOW_VERSION"
        assert (refused["state"], refused["version"]) == ("expired", 2)


@asynchronous
async def test_the_hub_sees_to_timeouts_that_nobody_asks_about(store: str) -> None:
    async with bench(flow(STATES, timeoutMs=1, onTimeout={"target": "expired"}), store=store) as b:
        told = await over(b)
        await b.hub.workflows.watch.look()
        kept = await b.hub.store.instances.get(told.id)
        assert kept is not None
        assert (kept.state, kept.version) == ("expired", 2)


@asynchronous
async def test_a_hub_that_runs_looks_by_itself() -> None:
    definition = flow(STATES, timeoutMs=1, onTimeout={"target": "expired"})
    async with bench(definition, options={"audit": "store"}) as b:
        told = await b.start()
        for _ in range(1000):
            rows = [row for row in await b.audited() if row.get("action") == "workflow.timed_out"]
            if rows:
                break
            await asyncio.sleep(0.005)
        assert [row["run"] for row in rows] == [told.id]


@asynchronous
async def test_a_timeout_ends_what_waits_for_people() -> None:
    async with bench(flow(STATES, timeoutMs=150, onTimeout={"target": "expired"})) as b:
        told = await b.start()
        began = time.time()
        parked = await b.follow(told, "ask")
        assert parked["status"] == "waiting_for_approval"
        await later(began + 0.15)
        await b.hub.workflows.watch.look()
        assert (await b.get(told)).at == ("expired", 2, {})
        with pytest.raises(WorkflowRefused):
            await b.engine.approvals.approve(parked["approval"]["id"], ANN, "cli")


@asynchronous
async def test_a_timeout_waits_for_a_move_that_runs() -> None:
    states = {
        "a": {"transitions": {"go": {"target": "b", "executor": WORK}}},
        "b": {"transitions": {"end": {"target": "done"}}},
        "expired": DONE,
        "done": DONE,
    }
    async with bench(flow(states, timeoutMs=100, onTimeout={"target": "expired"})) as b:
        told = await b.start()
        began = time.time()
        release = b.work.hold()
        moving = asyncio.create_task(b.follow(told, "go"))
        await b.work.began.wait()
        await later(began + 0.1)
        seen = await b.get(told)
        assert (seen["status"], seen["version"]) == ("executing", 1)
        release.set()
        assert (await moving)["state"] == "b"
        assert (await b.get(told)).at == ("expired", 3, {})


@asynchronous
async def test_entering_where_a_timeout_leads_runs_what_belongs_to_it() -> None:
    states = {
        "a": {"transitions": {"go": {"target": "done"}}},
        "clean": {
            "onEnter": {"executor": WORK, "output": {"cleaned": True}},
            "transitions": {"on": {"target": "done", "actor": "deterministic"}},
        },
        "done": {"terminal": True, "outcome": "failed"},
    }
    async with bench(flow(states, timeoutMs=1, onTimeout={"target": "clean"})) as b:
        # Maintenance may apply the timeout first, and then still follows the chain when the answer comes.
        seen = await b.once(await over(b), lambda seen: seen["state"] == "done")
        assert seen.at == ("done", 4, {"cleaned": True})


@asynchronous
async def test_a_timeout_is_on_record_as_one() -> None:
    definition = flow(STATES, timeoutMs=1, onTimeout={"target": "expired"})
    async with bench(definition, options={"audit": "store"}) as b:
        told = await over(b)
        await b.get(told)
        found = [row for row in await b.audited() if row.get("action") == "workflow.timed_out"]
        assert [row["run"] for row in found] == [told.id]
