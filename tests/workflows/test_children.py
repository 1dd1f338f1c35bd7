"""Workflows that wait for other workflows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, PATIENCE, WORK, Bench, Json, View, bench, flow
from waypost.errors import Busy
from waypost.stores.instances import InstanceRecord
from waypost.workflows.runner import LEASE_S, MAX_CHILD_DEPTH

DONE: Json = {"terminal": True}


def parent(of: str = "child", **executor: Any) -> Json:
    """A workflow that waits for another one and then continues by itself."""
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


async def wait_until_idle(b: Bench, about: View) -> View:
    """Wait until the instance no longer moves by itself."""

    def is_idle(seen: View) -> bool:
        return seen["status"] not in ("waiting_for_workflow", "executing", "going_on")

    return await b.once(about, is_idle)


@asynchronous
async def test_a_child_that_ends_at_once_completes_the_move(store: str) -> None:
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
async def test_the_input_of_a_child_is_mapped_and_validated() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with bench(parent(input={"n": "$.arguments.number"}), child={**QUICK, "inputSchema": schema}) as b:
        view = await b.start()
        refused = await b.submit(view, "call", {"number": "x"})
        assert (refused.code, (await b.get(view)).at) == ("EXECUTOR_FAILED", view.at)
        assert (await b.submit(view, "call", {"number": 3}))["context"]["got"]["context"] == {"n": 3}


@asynchronous
async def test_a_parent_waits_for_a_child_and_continues_when_it_ends(store: str) -> None:
    async with bench(parent(), child=SLOW, store=store) as b:
        view = await b.follow(await b.start(), "call")
        assert (view.refused, view["status"], view["version"]) == (False, "waiting_for_workflow", 1)
        assert view.rels == ["self", "child"]
        child = await b.get(view["child"]["workflowId"])
        assert child["state"] == "x"
        refused = await b.submit(view, "other")
        assert refused.code == "STALE_WORKFLOW_VERSION"
        assert "self" in refused.rels
        await b.follow(child, "finish")
        ended = await wait_until_idle(b, view)
        assert (ended["state"], ended["version"]) == ("done", 3)
        assert ended["context"]["got"]["context"] == {"n": 7}
        assert [row["transition"] for row in await b.history(view)] == ["$start", "call", "on"]


@asynchronous
async def test_a_child_that_fails_leaves_the_parent_where_it_was() -> None:
    async with bench(parent(), child=SLOW) as b:
        view = await b.follow(await b.start(), "call")
        await b.follow(await b.get(view["child"]["workflowId"]), "break")
        seen = await wait_until_idle(b, view)
        assert (seen["status"], seen["state"], seen["version"]) == ("waiting_for_action", "a", 1)
        assert seen["lastError"]["code"] == "EXECUTOR_FAILED"
        assert "failed" in seen["lastError"]["message"]
        again = await b.follow(seen, "call")
        assert again["child"]["workflowId"] != view["child"]["workflowId"]


@pytest.mark.parametrize("nested", [parent("nowhere"), parent("child")])
@asynchronous
async def test_a_child_that_cannot_be_started_is_a_failure(nested: Json) -> None:
    async with bench(nested, child={**SLOW, "enabled": False}) as b:
        view = await b.start()
        failed = await b.follow(view, "call")
        assert (failed.code, failed.at) == ("EXECUTOR_FAILED", view.at)
        assert len(await b.hub.store.instances.page()) == 1


@asynchronous
async def test_a_child_that_times_out_is_cancelled() -> None:
    async with bench(parent(timeoutMs=10_000), child=SLOW) as b:
        view = await b.follow(await b.start(), "call")
        b.pass_time(10)
        await b.hub.workflows.watch.look()
        seen = await wait_until_idle(b, view)
        assert (seen["status"], seen["version"]) == ("waiting_for_action", 1)
        assert seen["lastError"]["errorClass"] == "timeout"
        child = await b.get(view["child"]["workflowId"])
        assert (child["terminal"], child["outcome"]) == (True, "cancelled")


@asynchronous
async def test_an_early_recovery_does_not_delay_the_timeout_of_a_child() -> None:
    async with bench(parent(timeoutMs=10_000), child=SLOW) as b:
        view = await b.follow(await b.start(), "call")
        await b.hub.workflows.watch.recover()
        b.pass_time(10)
        await b.hub.workflows.watch.look()
        assert (await wait_until_idle(b, view))["lastError"]["errorClass"] == "timeout"


@asynchronous
async def test_the_grandparent_of_an_ended_child_continues_too() -> None:
    async with bench(parent("middle"), middle=parent("child"), child=SLOW) as b:
        view = await b.follow(await b.start(), "call")
        middle = await b.get(view["child"]["workflowId"])
        middle = await b.follow(middle, "call")
        assert middle["status"] == "waiting_for_workflow"
        await b.follow(await b.get(middle["child"]["workflowId"]), "finish")
        ended = await wait_until_idle(b, view)
        assert ended["state"] == "done"
        assert ended["context"]["got"]["context"]["got"]["context"] == {"n": 7}


@asynchronous
async def test_the_depth_of_workflows_that_wait_for_themselves_is_bounded() -> None:
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
        view = await b.start()
        assert view["status"] == "waiting_for_workflow"
        instances = await b.hub.store.instances.page()
        assert len(instances) == MAX_CHILD_DEPTH + 1
        assert [one.status for one in instances].count("chain_failed") == 1


@asynchronous
async def test_a_failed_child_stops_a_chain_that_can_be_resumed() -> None:
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
        view = await b.start()
        assert view["status"] == "waiting_for_workflow"
        await b.follow(await b.get(view["child"]["workflowId"]), "break")
        seen = await wait_until_idle(b, view)
        assert (seen["status"], seen.code, seen.names) == ("chain_failed", "CHAIN_FAILED", ["$resume"])
        again = await b.follow(seen, "$resume")
        await b.follow(await b.get(again["child"]["workflowId"]), "finish")
        assert (await wait_until_idle(b, view))["state"] == "done"


@asynchronous
async def test_a_parent_that_missed_the_end_of_its_child_continues_after_a_restart(tmp_path: Any) -> None:
    place = f"sqlite:///{tmp_path}/shared.db"
    async with bench(parent(), child=SLOW, store=place) as b:
        view = await b.follow(await b.start(), "call")
        b.engine.runner.wake = _ignore_wake  # type: ignore[method-assign]  # as if the process had ended here
        await b.follow(await b.get(view["child"]["workflowId"]), "finish")
        assert (await b.get(view))["status"] == "waiting_for_workflow"
    async with bench(parent(), child=SLOW, store=place) as b:
        seen = await b.once(view, lambda seen: seen["state"] == "done")
        assert seen["version"] == 3


async def _ignore_wake(parent_id: str) -> None:
    """Ignore the end of a child."""


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
async def test_a_child_belongs_to_the_principal_who_acts_in_the_parent() -> None:
    async with bench(parent(), child=SLOW) as b:
        view = await b.follow(await b.start(by=ANN), "call", ANN)
        child = await b.get(view["child"]["workflowId"], ANN)
        assert child["state"] == "x"
        assert (await b.get(view["child"]["workflowId"])).code == "UNKNOWN_WORKFLOW"


@asynchronous
async def test_a_timeout_of_the_parent_ends_the_child() -> None:
    definition = {**parent(), "timeoutMs": 10_000, "onTimeout": {"target": "done"}}
    async with bench(definition, child=SLOW) as b:
        view = await b.follow(await b.start(), "call")
        assert view["status"] == "waiting_for_workflow"
        b.pass_time(10)
        assert (await b.get(view)).at == ("done", 2, {})
        child = await b.get(view["child"]["workflowId"])
        assert (child.data.get("terminal"), child.data.get("outcome")) == (True, "cancelled")


@asynchronous
async def test_recovery_does_not_repeat_the_work_of_a_child() -> None:
    child = flow(
        {"x": {"onEnter": {"executor": WORK}, "transitions": {"finish": {"target": "end"}}}, "end": DONE},
    )
    async with bench(parent(), child=child) as b:
        view = await b.follow(await b.start(), "call")
        for _ in range(3):
            await b.hub.workflows.watch.recover()
        assert len(b.work.calls) == 1
        assert (await b.get(view))["status"] == "waiting_for_workflow"


@asynchronous
async def test_a_hub_that_stops_lets_a_move_start_its_child() -> None:
    async with bench(parent(), child=QUICK) as b:
        view = await b.start()
        b.engine.draining = True
        assert (await b.submit(view, "call", {"n": 1}))["state"] == "done"


@asynchronous
async def test_a_child_inside_another_executor_is_cancelled_when_it_times_out() -> None:
    # The child has to be stored within it.
    nested = {"kind": "pipeline", "steps": [{"kind": "workflow", "definitionId": "child", "timeoutMs": 1500}]}
    states = {"a": {"transitions": {"call": {"target": "done", "executor": nested}}}, "done": DONE}
    async with bench(flow(states), child=SLOW) as b:
        view = await b.start()
        failed = await b.follow(view, "call")
        assert (failed.code, failed["error"]["errorClass"]) == ("EXECUTOR_FAILED", "timeout")
        others = [one for one in await b.hub.store.instances.page() if one.id != view.id]
        assert [one.status for one in others] == ["cancelled"]


def beside(reliability: Json | None = None) -> Json:
    """A workflow that runs a child and the tool of the test side by side."""
    both = {"kind": "parallel", "branches": [{"kind": "workflow", "definitionId": "child"}, WORK]}
    call = {"target": "done", "executor": both, "reliability": reliability}
    return flow({"a": {"transitions": {"call": call}}, "done": DONE})


async def children_of(b: Bench, about: View) -> list[InstanceRecord]:
    """The instances beside one, the newest first."""
    return [one for one in await b.hub.store.instances.page() if one.id != about.id]


async def once_there(b: Bench, about: View, number: int) -> str:
    """The id of the newest child, once there are so many."""
    found: list[InstanceRecord] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < number:
            await asyncio.sleep(0.002)  # nothing announces that an instance was stored
            found = await children_of(b, about)
    return next(one.id for one in found if one.status == "waiting_for_action")


@asynchronous
async def test_a_child_ends_with_the_executor_that_it_is_a_part_of() -> None:
    async with bench(beside(), child=SLOW) as b:
        await b.engine.runner.stop(0)  # as of a hub that is started again
        view = await b.start()
        release = b.work.hold()
        b.work.fails = 1
        running = asyncio.create_task(b.follow(view, "call"))
        await once_there(b, view, 1)
        release.set()
        assert (await running).code == "EXECUTOR_FAILED"
        assert [one.status for one in await children_of(b, view)] == ["cancelled"]


@asynchronous
async def test_another_attempt_starts_another_child_in_place_of_a_cancelled_one() -> None:
    async with bench(beside({"retry": {"maxAttempts": 2}}), child=SLOW) as b:
        view = await b.start()
        release = b.work.hold()
        b.work.fails, b.work.failure = 1, Busy()
        running = asyncio.create_task(b.follow(view, "call"))
        await once_there(b, view, 1)
        release.set()
        await b.submit(await b.get(await once_there(b, view, 2)), "finish")
        assert (await running)["state"] == "done"
        assert sorted(one.status for one in await children_of(b, view)) == ["cancelled", "succeeded"]


@asynchronous
async def test_a_child_inside_another_executor_outlives_the_stop_of_the_hub(tmp_path: Any) -> None:
    place = f"sqlite:///{tmp_path}/waypost.db"
    part = {"kind": "pipeline", "steps": [{"kind": "workflow", "definitionId": "child"}]}
    definition = flow({"a": {"transitions": {"call": {"target": "done", "executor": part}}}, "done": DONE})
    async with bench(definition, child=SLOW, store=place) as b:
        view = await b.start()
        running = asyncio.create_task(b.follow(view, "call"))
        child = await once_there(b, view, 1)
        await b.engine.runner.stop(0)
        await asyncio.gather(running, return_exceptions=True)
    async with bench(definition, child=SLOW, store=place) as b:
        b.pass_time(LEASE_S)
        await b.submit(await b.get(child), "finish")
        assert (await b.once(view, lambda seen: seen["state"] == "done"))["version"] == 2
        assert len(await children_of(b, view)) == 1


def reliable(reliability: Json, **executor: Any) -> Json:
    """A workflow that waits for another one, with retries or fallbacks."""
    definition = parent(**executor)
    definition["states"]["a"]["transitions"]["call"]["reliability"] = reliability
    return definition


async def once_child(b: Bench, child: str) -> View:
    """The child, once it was started."""
    async with asyncio.timeout(PATIENCE):
        # Nothing announces that an instance was stored.
        while (seen := await b.get(child)).code == "UNKNOWN_WORKFLOW":  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    return seen


@asynchronous
async def test_a_fallback_runs_after_a_child_that_failed(store: str) -> None:
    async with bench(reliable({"fallback": {"executors": [WORK]}}), child=SLOW, store=store) as b:
        view = await b.follow(await b.start(), "call", requestId="r")
        await b.follow(await b.get(view["child"]["workflowId"]), "break")
        done = await b.once(view, lambda seen: seen["state"] == "done")
        assert (done["version"], done["context"]["got"]["count"]) == (3, 1)
        # What ran is the evidence, not what failed before it.
        assert [proof["kind"] for proof in done["evidence"]] == ["capability_result"]
        assert (await b.submit(view, "call", requestId="r"))["state"] == "done"
        assert b.work.keys == [(await b.history(view))[1]["key"]]


@asynchronous
async def test_the_failure_of_a_fallback_is_that_of_the_move() -> None:
    async with bench(reliable({"fallback": {"executors": [WORK]}}), child=SLOW) as b:
        b.work.fails = 1
        view = await b.follow(await b.start(), "call")
        await b.follow(await b.get(view["child"]["workflowId"]), "break")
        seen = await b.once(view, lambda seen: seen["status"] == "waiting_for_action")
        assert (seen["version"], seen["lastError"]["message"]) == (1, "It is broken.")


@asynchronous
async def test_another_child_is_started_after_one_that_was_late() -> None:
    retry = {"retry": {"maxAttempts": 2, "backoff": "fixed", "initialDelayMs": 20_000}}
    async with bench(reliable(retry, timeoutMs=10_000), child=SLOW) as b:
        view = await b.follow(await b.start(), "call")
        first = view["child"]["workflowId"]
        b.pass_time(10)
        pause = await b.once(view, lambda seen: seen["child"]["workflowId"] != first)
        second = pause["child"]["workflowId"]
        assert (await b.get(first))["outcome"] == "cancelled"
        # A check of all reserved instances, as at a start, does not end the pause.
        await b.hub.workflows.watch.recover()
        assert (await b.get(second)).code == "UNKNOWN_WORKFLOW"
        b.pass_time(20)
        await b.follow(await once_child(b, second), "finish")
        assert (await b.once(view, lambda seen: seen["state"] == "done"))["context"]["got"]["workflowId"] == second


@asynchronous
async def test_a_child_that_failed_for_good_is_not_started_again() -> None:
    async with bench(reliable({"retry": {"maxAttempts": 3}}), child=SLOW) as b:
        view = await b.follow(await b.start(), "call")
        await b.follow(await b.get(view["child"]["workflowId"]), "break")
        await b.once(view, lambda seen: seen["status"] == "waiting_for_action")
        assert len(await children_of(b, view)) == 1
