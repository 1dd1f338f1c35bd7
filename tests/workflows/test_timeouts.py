"""Timeouts of workflows, applied at the next read or by maintenance."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, WORK, Bench, Json, View, bench, flow, later
from waypost.errors import WorkflowRefused

DONE: Json = {"terminal": True}
STATES: Json = {
    "a": {"transitions": {"go": {"target": "done"}, "ask": {"target": "done", "executor": {"kind": "human"}}}},
    "late": {"transitions": {"end": {"target": "done"}}},
    "expired": {"terminal": True, "outcome": "failed"},
    "done": DONE,
}


async def timed_out_instance(b: Bench) -> View:
    """An instance whose timeout is due."""
    view = await b.start()
    await later(time.time() + 0.002)
    return view


@asynchronous
async def test_a_read_applies_a_timeout_once(store: str) -> None:
    async with bench(flow(STATES, timeoutMs=1, onTimeout={"target": "expired"}), store=store) as b:
        view = await timed_out_instance(b)
        seen = await b.get(view)
        assert seen.at == ("expired", 2, {})
        assert (seen["terminal"], seen["outcome"], seen["links"]) == (True, "failed", [])
        assert (await b.get(view)).at == seen.at
        assert [row["transition"] for row in await b.history(view)] == ["$start", "$timeout"]


@asynchronous
async def test_a_timeout_may_lead_to_a_state_that_is_not_terminal() -> None:
    async with bench(flow(STATES, timeoutMs=1, onTimeout={"target": "late"})) as b:
        view = await timed_out_instance(b)
        seen = await b.get(view)
        assert seen.at == ("late", 2, {})
        assert (await b.get(view)).at == seen.at
        await b.hub.workflows.watch.look()
        assert (await b.get(view)).at == seen.at
        ended = await b.follow(seen, "end")
        assert ended.at == ("done", 3, {})


@asynchronous
async def test_a_timeout_without_a_target_ends_the_instance_in_its_state() -> None:
    async with bench(flow(STATES, timeoutMs=1)) as b:
        seen = await b.get(await timed_out_instance(b))
        assert seen.at == ("a", 2, {})
        assert (seen["terminal"], seen["status"], seen["outcome"], seen["links"]) == (True, "timed_out", "failed", [])
        assert (await b.submit(seen, "go")).code == "INVALID_TRANSITION"


@asynchronous
async def test_a_submit_that_comes_too_late_is_stale() -> None:
    async with bench(flow(STATES, timeoutMs=1, onTimeout={"target": "expired"})) as b:
        refused = await b.follow(await timed_out_instance(b), "go")
        assert refused.code == "STALE_WORKFLOW_VERSION"
        assert (refused["state"], refused["version"]) == ("expired", 2)


@asynchronous
async def test_maintenance_applies_timeouts_of_instances_that_are_not_read(store: str) -> None:
    async with bench(flow(STATES, timeoutMs=1, onTimeout={"target": "expired"}), store=store) as b:
        view = await timed_out_instance(b)
        await b.hub.workflows.watch.look()
        kept = await b.hub.store.instances.get(view.id)
        assert kept is not None
        assert (kept.state, kept.version) == ("expired", 2)


@asynchronous
async def test_a_running_hub_applies_timeouts_by_itself() -> None:
    definition = flow(STATES, timeoutMs=1, onTimeout={"target": "expired"})
    async with bench(definition, options={"audit": "store"}) as b:
        view = await b.start()
        rows: list[Json] = []
        while not rows:
            await asyncio.sleep(0.005)
            rows = [row for row in await b.audited() if row.get("action") == "workflow.timed_out"]
        assert [row["run"] for row in rows] == [view.id]


@asynchronous
async def test_a_timeout_ends_a_pending_approval() -> None:
    async with bench(flow(STATES, timeoutMs=10_000, onTimeout={"target": "expired"})) as b:
        view = await b.start()
        parked = await b.follow(view, "ask")
        assert parked["status"] == "waiting_for_approval"
        b.pass_time(10)
        await b.hub.workflows.watch.look()
        assert (await b.get(view)).at == ("expired", 2, {})
        with pytest.raises(WorkflowRefused):
            await b.engine.approvals.approve(parked["approval"]["id"], ANN, "cli")


@asynchronous
async def test_a_timeout_waits_for_a_running_move() -> None:
    states = {
        "a": {"transitions": {"go": {"target": "b", "executor": WORK}}},
        "b": {"transitions": {"end": {"target": "done"}}},
        "expired": DONE,
        "done": DONE,
    }
    async with bench(flow(states, timeoutMs=10_000, onTimeout={"target": "expired"})) as b:
        view = await b.start()
        release = b.work.hold()
        moving = asyncio.create_task(b.follow(view, "go"))
        await b.work.began.wait()
        b.pass_time(10)
        seen = await b.get(view)
        assert (seen["status"], seen["version"]) == ("executing", 1)
        release.set()
        assert (await moving)["state"] == "b"
        assert (await b.get(view)).at == ("expired", 3, {})


@asynchronous
async def test_the_target_of_a_timeout_is_entered() -> None:
    states = {
        "a": {"transitions": {"go": {"target": "done"}}},
        "clean": {
            "onEnter": {"executor": WORK, "output": {"cleaned": True}},
            "transitions": {"on": {"target": "done", "actor": "deterministic"}},
        },
        "done": {"terminal": True, "outcome": "failed"},
    }
    async with bench(flow(states, timeoutMs=1, onTimeout={"target": "clean"})) as b:
        # Maintenance may apply the timeout first, and may still follow the chain when this read returns.
        seen = await b.once(await timed_out_instance(b), lambda seen: seen["state"] == "done")
        assert seen.at == ("done", 4, {"cleaned": True})


@asynchronous
async def test_a_timeout_is_audited() -> None:
    definition = flow(STATES, timeoutMs=1, onTimeout={"target": "expired"})
    async with bench(definition, options={"audit": "store"}) as b:
        view = await timed_out_instance(b)
        await b.get(view)
        found = [row for row in await b.audited() if row.get("action") == "workflow.timed_out"]
        assert [row["run"] for row in found] == [view.id]


@asynchronous
async def test_a_timeout_into_a_terminal_state_without_an_outcome_is_not_a_success(store: str) -> None:
    states = {**STATES, "over": {"terminal": True}}
    async with bench(flow(states, timeoutMs=1, onTimeout={"target": "over"}), store=store) as b:
        seen = await b.get(await timed_out_instance(b))
        assert (seen["state"], seen["status"], seen["outcome"]) == ("over", "timed_out", "failed")
        again = await b.get(seen)
        assert (again["status"], again["outcome"]) == ("timed_out", "failed")
