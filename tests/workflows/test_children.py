"""Workflows that wait for other workflows."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, WORK, Bench, Json, Told, bench, flow, later
from waypost.workflows.runner import MAX_CHILD_DEPTH

DONE: Json = {"terminal": True}


def parent(of: str = "child", **executor: Any) -> Json:
    """A workflow that waits for another one, and goes on by itself behind it."""
    call = {"target": "after", "executor": {"kind": "workflow", "definitionId": of, **executor}}
    states = {
        "a": {"transitions": {"call": {**call, "output": {"got": "$.output"}}, "other": {"target": "done"}}},
        "after": {"transitions": {"on": {"target": "done", "actor": "deterministic"}}},
        "done": DONE,
    }
    return flow(states)


QUICK = flow(
    {
        "x": {"transitions": {"on": {"target": "end", "actor": "deterministic", "output": {"n": "$.input.n"}}}},
        "end": DONE,
    }
)
SLOW = flow(
    {
        "x": {"transitions": {"finish": {"target": "end", "output": {"n": 7}}, "break": {"target": "broken"}}},
        "end": DONE,
        "broken": {"terminal": True, "outcome": "failed"},
    }
)


async def settled(b: Bench, about: Told) -> Told:
    """The instance once it goes on by itself no more."""

    def is_settled(seen: Told) -> bool:
        return seen["status"] not in ("waiting_for_workflow", "executing", "going_on")

    return await b.once(about, is_settled)


@asynchronous
async def test_a_child_that_ends_at_once_is_the_end_of_the_move(store: str) -> None:
    async with bench(parent(), child=QUICK, store=store) as b:
        ended = await b.submit(await b.start(), "call", {"n": 5})
        assert not ended.refused
        got = ended["context"]["got"]
        assert (got["state"], got["outcome"], got["context"]) == ("end", "succeeded", {"n": 5})
        assert (ended["state"], ended["version"]) == ("done", 3)
        assert [hop["transition"] for hop in ended["chain"]] == ["on"]
        assert (await b.get(got["workflowId"]))["terminal"]
        assert ended["evidence"] == [{"kind": "workflow_result", "by": "anonymous", "version": 2}]


@asynchronous
async def test_the_input_of_a_child_is_mapped_and_looked_at() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with bench(parent(input={"n": "$.arguments.number"}), child={**QUICK, "inputSchema": schema}) as b:
        told = await b.start()
        refused = await b.submit(told, "call", {"number": "x"})
        assert (refused.code, (await b.get(told)).at) == ("EXECUTOR_FAILED", told.at)
        assert (await b.submit(told, "call", {"number": 3}))["context"]["got"]["context"] == {"n": 3}


@asynchronous
async def test_a_parent_waits_for_a_child_and_goes_on_when_it_ends(store: str) -> None:
    async with bench(parent(), child=SLOW, store=store) as b:
        told = await b.follow(await b.start(), "call")
        assert (told.refused, told["status"], told["version"]) == (False, "waiting_for_workflow", 1)
        assert told.rels == ["self", "child"]
        child = await b.get(told["child"]["workflowId"])
        assert child["state"] == "x"
        refused = await b.submit(told, "other")
        assert refused.code == "STALE_WORKFLOW_VERSION"
        assert "self" in refused.rels
        await b.follow(child, "finish")
        ended = await settled(b, told)
        assert (ended["state"], ended["version"]) == ("done", 3)
        assert ended["context"]["got"]["context"] == {"n": 7}
        assert [row["transition"] for row in await b.history(told)] == ["$start", "call", "on"]


@asynchronous
async def test_a_child_that_fails_leaves_the_parent_where_it_was() -> None:
    async with bench(parent(), child=SLOW) as b:
        told = await b.follow(await b.start(), "call")
        await b.follow(await b.get(told["child"]["workflowId"]), "break")
        seen = await settled(b, told)
        assert (seen["status"], seen["state"], seen["version"]) == ("waiting_for_action", "a", 1)
        assert seen["lastError"]["code"] == "EXECUTOR_FAILED"
        assert "failed" in seen["lastError"]["message"]
        again = await b.follow(seen, "call")
        assert again["child"]["workflowId"] != told["child"]["workflowId"]


@pytest.mark.parametrize("nested", [parent("nowhere"), parent("child")])
@asynchronous
async def test_a_child_that_cannot_be_started_is_a_failure(nested: Json) -> None:
    async with bench(nested, child={**SLOW, "enabled": False}) as b:
        told = await b.start()
        failed = await b.follow(told, "call")
        assert (failed.code, failed.at) == ("EXECUTOR_FAILED", told.at)
        assert len(await b.hub.store.instances.page()) == 1


@asynchronous
async def test_a_child_that_takes_too_long_is_ended() -> None:
    async with bench(parent(timeoutMs=30), child=SLOW) as b:
        told = await b.follow(await b.start(), "call")
        await later(time.time() + 0.03)
        await b.hub.workflows.watch.look()
        seen = await settled(b, told)
        assert (seen["status"], seen["version"]) == ("waiting_for_action", 1)
        assert seen["lastError"]["errorClass"] == "timeout"
        child = await b.get(told["child"]["workflowId"])
        assert (child["terminal"], child["outcome"]) == (True, "cancelled")


@asynchronous
async def test_a_look_before_its_time_does_not_make_a_timeout_late() -> None:
    async with bench(parent(timeoutMs=60), child=SLOW) as b:
        told = await b.follow(await b.start(), "call")
        began = time.time()
        await b.hub.workflows.watch.recover()
        await later(began + 0.06)
        await b.hub.workflows.watch.look()
        assert (await settled(b, told))["lastError"]["errorClass"] == "timeout"


@asynchronous
async def test_the_parent_of_a_parent_goes_on_too() -> None:
    async with bench(parent("middle"), middle=parent("child"), child=SLOW) as b:
        told = await b.follow(await b.start(), "call")
        middle = await b.get(told["child"]["workflowId"])
        middle = await b.follow(middle, "call")
        assert middle["status"] == "waiting_for_workflow"
        await b.follow(await b.get(middle["child"]["workflowId"]), "finish")
        ended = await settled(b, told)
        assert ended["state"] == "done"
        assert ended["context"]["got"]["context"]["got"]["context"] == {"n": 7}


@asynchronous
async def test_workflows_do_not_wait_for_themselves_for_ever() -> None:
    states = {
        "a": {
            "transitions": {
                "on": {
                    "target": "done",
                    "actor": "deterministic",
                    "executor": {"kind": "workflow", "definitionId": "flow"},
                }
            }
        },
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        told = await b.start()
        assert told["status"] == "waiting_for_workflow"
        instances = await b.hub.store.instances.page()
        assert len(instances) == MAX_CHILD_DEPTH + 1
        assert [one.status for one in instances].count("chain_failed") == 1


@asynchronous
async def test_a_child_in_a_chain_halts_it_when_it_fails_and_can_be_resumed() -> None:
    states = {
        "a": {
            "transitions": {
                "on": {
                    "target": "done",
                    "actor": "deterministic",
                    "executor": {"kind": "workflow", "definitionId": "child"},
                }
            }
        },
        "done": DONE,
    }
    async with bench(flow(states), child=SLOW) as b:
        told = await b.start()
        assert told["status"] == "waiting_for_workflow"
        await b.follow(await b.get(told["child"]["workflowId"]), "break")
        seen = await settled(b, told)
        assert (seen["status"], seen.code, seen.names) == ("chain_failed", "CHAIN_FAILED", ["$resume"])
        again = await b.follow(seen, "$resume")
        await b.follow(await b.get(again["child"]["workflowId"]), "finish")
        assert (await settled(b, told))["state"] == "done"


@asynchronous
async def test_a_parent_whose_child_ended_unheard_goes_on_after_a_restart(tmp_path: Any) -> None:
    place = f"sqlite:///{tmp_path}/shared.db"
    async with bench(parent(), child=SLOW, store=place) as b:
        told = await b.follow(await b.start(), "call")
        b.engine.runner.wake = _deaf  # type: ignore[method-assign]  # as if the process ended right behind the child
        await b.follow(await b.get(told["child"]["workflowId"]), "finish")
        assert (await b.get(told))["status"] == "waiting_for_workflow"
    async with bench(parent(), child=SLOW, store=place) as b:
        seen = await b.once(told, lambda seen: seen["state"] == "done")
        assert seen["version"] == 3


async def _deaf(parent_id: str) -> None:
    """Hear nothing."""


@asynchronous
async def test_a_child_inside_a_parallel_executor_is_waited_for() -> None:
    each = {"kind": "workflow", "definitionId": "child", "input": {"n": "$.branch.value"}}
    call = {"kind": "parallel", "forEach": [1, 2], "do": each}
    states = {
        "a": {"transitions": {"call": {"target": "done", "executor": call, "output": {"got": "$.output.branches"}}}},
        "done": DONE,
    }
    async with bench(flow(states), child=QUICK) as b:
        ended = await b.follow(await b.start(), "call")
        assert [one["output"]["context"]["n"] for one in ended["context"]["got"]] == [1, 2]


@asynchronous
async def test_a_child_belongs_to_who_acts_in_the_parent() -> None:
    async with bench(parent(), child=SLOW) as b:
        told = await b.follow(await b.start(by=ANN), "call", ANN)
        child = await b.get(told["child"]["workflowId"], ANN)
        assert child["state"] == "x"
        assert (await b.get(told["child"]["workflowId"])).code == "UNKNOWN_WORKFLOW"


@asynchronous
async def test_a_timeout_of_the_parent_ends_the_child() -> None:
    definition = {**parent(), "timeoutMs": 80, "onTimeout": {"target": "done"}}
    async with bench(definition, child=SLOW) as b:
        began = time.time()
        told = await b.follow(await b.start(), "call")
        assert told["status"] == "waiting_for_workflow"
        await later(began + 0.1)
        assert (await b.get(told)).at == ("done", 2, {})
        child = await b.get(told["child"]["workflowId"])
        assert (child.data.get("terminal"), child.data.get("outcome")) == (True, "cancelled")


@asynchronous
async def test_a_child_runs_what_it_runs_once() -> None:
    child = flow(
        {"x": {"onEnter": {"executor": WORK}, "transitions": {"finish": {"target": "end"}}}, "end": DONE},
    )
    async with bench(parent(), child=child) as b:
        told = await b.follow(await b.start(), "call")
        for _ in range(3):
            await b.hub.workflows.watch.recover()
        assert len(b.work.calls) == 1
        assert (await b.get(told))["status"] == "waiting_for_workflow"


@asynchronous
async def test_a_hub_that_stops_lets_a_move_start_its_child() -> None:
    async with bench(parent(), child=QUICK) as b:
        told = await b.start()
        b.engine.draining = True
        assert (await b.submit(told, "call", {"n": 1}))["state"] == "done"


@asynchronous
async def test_a_child_inside_another_executor_is_ended_when_it_takes_too_long() -> None:
    nested = {"kind": "pipeline", "steps": [{"kind": "workflow", "definitionId": "child", "timeoutMs": 20}]}
    states = {"a": {"transitions": {"call": {"target": "done", "executor": nested}}}, "done": DONE}
    async with bench(flow(states), child=SLOW) as b:
        told = await b.start()
        failed = await b.follow(told, "call")
        assert (failed.code, failed["error"]["errorClass"]) == ("EXECUTOR_FAILED", "timeout")
        others = [one for one in await b.hub.store.instances.page() if one.id != told.id]
        assert [one.status for one in others] == ["cancelled"]
