"""Workers on the Python SDK observe calls through the hub."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import iii
import pytest

from tests.interop.iii_observing import Party, double, party, until_state
from tests.interop.iii_peers import peer
from tests.protocol.conftest import asynchronous
from tests.worker.sdk import sdk
from tests.workers.wire import address, hub_for_workers


@asynchronous
async def test_an_observer_gets_a_call_and_its_caller() -> None:
    async with party() as p:
        await p.owner.offer("shop::double", double)
        await p.observe("shop::double", id="o-1", metadata={"tenant": "t"})
        assert await p.owner.trigger("shop::double", {"amount": 2}) == {"total": 4}
        [seen] = await p.until_seen(1)
        [(metadata, invocation)] = p.beside
        assert metadata == {"tenant": "t"}
        assert invocation.activation == {"observer_id": "o-1", "activation_id": seen["activation_id"]}
        assert invocation.observe_depth == 1
        assert invocation.caller["worker_name"] == "owner"
        assert invocation.caller["function_id"] == "shop::double"
        caller = seen.pop("caller")
        assert caller["worker_name"] == "owner"
        assert caller["worker_id"]
        assert seen.pop("invocation_id") == invocation.caller["invocation_id"]
        assert seen.pop("started_at_ms") > 1_700_000_000_000
        assert seen.pop("duration_ms") >= 0
        assert seen.pop("activation_id")
        assert seen == {
            "observer_id": "o-1",
            "function_id": "shop::double",
            "namespace": "default",
            "status": "success",
            "input": {"amount": 2},
            "output": {"total": 4},
        }


@asynchronous
async def test_a_handler_gets_the_worker_that_called_it() -> None:
    async with party() as p:
        found: list[Any] = []

        async def whose(_data: Any) -> None:
            found.append(p.owner.worker.current_invocation())

        await p.owner.offer("shop::whose", whose)
        await p.observer.trigger("shop::whose")
        assert found[0].caller["worker_name"] == "seer"
        assert found[0].activation is None


@asynchronous
async def test_an_observer_gets_calls_of_agents_and_calls_without_an_answer() -> None:
    async with party() as p:
        await p.owner.offer("shop::double", double)
        await p.observe("shop::double")
        await p.client.call_tool("shop__double", {"amount": 3})
        await p.until_seen(1)
        await p.owner.trigger("shop::double", {"amount": 4}, action=iii.TriggerAction.Void())
        seen = await p.until_seen(2)
        assert [one["output"] for one in seen] == [{"total": 6}, {"total": 8}]
        assert "caller" not in seen[0]


@pytest.mark.parametrize(
    ("source", "heard"),
    [
        ({}, [{"amount": 1}, {"amount": 600}]),
        ({"on": "error"}, [{"amount": -1}]),
        ({"on": "complete"}, [{"amount": 1}, {"amount": -1}, {"amount": 600}]),
        ({"filters": {"input.amount": {"$gte": 500}}}, [{"amount": 600}]),
        ({"filters": {"output.total": {"$lt": 500}}}, [{"amount": 1}]),
        ({"on": "error", "filters": {"error.message": {"$prefix": "less"}}}, [{"amount": -1}]),
        ({"filters": {"caller.worker_name": {"$eq": "owner"}}}, [{"amount": 1}, {"amount": 600}]),
        ({"filters": {"caller.worker_name": {"$ne": "owner"}}}, []),
        ({"filters": {"metadata.tenant": {"$in": ["t"]}}}, [{"amount": 600}]),
    ],
)
@asynchronous
async def test_an_observer_gets_only_the_events_of_its_source(source: dict[str, Any], heard: list[Any]) -> None:
    async with party() as p:
        await p.owner.offer("shop::double", double)
        await p.observe({"function_id": "shop::double", "deliver": "input", **source})
        await p.owner.trigger("shop::double", {"amount": 1})
        await p.owner.refused("shop::double", {"amount": -1})
        await p.owner.trigger("shop::double", {"amount": 600}, metadata={"tenant": "t"})
        await p.wait_until_idle()
        assert p.seen == heard


@asynchronous
async def test_an_observer_gets_the_parts_that_it_captures() -> None:
    async with party() as p:
        await p.owner.offer("shop::double", double)
        await p.observe({"function_id": "shop::double", "deliver": "output"})
        await p.observe({"function_id": "shop::double", "on": "complete", "capture": ["error", "metadata"]})
        await p.owner.refused("shop::double", {"amount": -1})
        await p.owner.trigger("shop::double", {"amount": 1}, metadata={"tenant": "t"})
        await p.wait_until_idle()
        parts = {"input", "output", "error", "caller", "metadata"}
        assert {"total": 2} in p.seen
        captured = [{key: one[key] for key in one.keys() & parts} for one in p.seen if "status" in one]
        assert captured == [
            {"error": {"code": "invocation_failed", "message": "less than nothing"}},
            {"metadata": {"tenant": "t"}},
        ]


@asynchronous
async def test_an_observer_waits_for_the_functions_it_needs_and_is_suspended_without_them() -> None:
    async with party() as p:
        handle = p.start("later::double", "later::see")
        await p.owner.trigger("engine::functions::list")
        assert handle.state == "pending"
        await p.listen("later::see")
        async with sdk(address(p.hub), "late") as late:
            await late.offer("later::double", double)
            await asyncio.wait_for(handle.ready_async(), 60)
            await late.trigger("later::double", {"amount": 1})
            await p.until_seen(1)
        assert (await until_state(handle, "suspended"))["code"] == "OWNER_MISSING"
        async with sdk(address(p.hub), "late") as late:
            await late.offer("later::double", double)
            assert await until_state(handle, "active") is None
            await late.trigger("later::double", {"amount": 1})
            await p.until_seen(2)


@asynchronous
async def test_an_observer_ends_after_its_maximum_number_of_events() -> None:
    async with party() as p:
        await p.owner.offer("shop::double", double)
        handle = await p.observe("shop::double", max_fires=2)
        for amount in (1, 2, 3):
            await p.owner.trigger("shop::double", {"amount": amount})
        assert (await until_state(handle, "disposed"))["code"] == "MAX_FIRES"
        await p.wait_until_idle()
        assert [one["input"]["amount"] for one in p.seen] == [1, 2]
        assert len(p.hub.workers.observers) == 0


@asynchronous
async def test_an_observer_ends_when_it_expires_or_is_disposed() -> None:
    async with party() as p:
        await p.owner.offer("shop::double", double)
        expiring = await p.observe("shop::double", expires_in_ms=50)
        assert (await until_state(expiring, "disposed"))["code"] == "EXPIRED"
        handle = await p.observe("shop::double")
        handle.dispose()
        await p.observer.trigger("engine::functions::list")
        await p.owner.trigger("shop::double", {"amount": 1})
        await p.wait_until_idle()
        assert p.seen == []
        assert all(function.watch is None for function in p.hub.workers.functions)


@asynchronous
async def test_the_number_of_concurrent_activations_is_limited() -> None:
    async with party() as p:
        running: list[int] = []
        most: list[int] = []
        two_at_once = asyncio.Event()

        async def slow(data: Any) -> None:
            running.append(data["amount"])
            most.append(len(running))
            if len(running) == 2:
                two_at_once.set()
            await two_at_once.wait()  # the second may come late
            await asyncio.sleep(0.01)
            running.remove(data["amount"])
            p.seen.append(data["amount"])

        await p.observer.offer("seer::slow", slow)
        await p.owner.offer("shop::double", double)
        await p.observe({"function_id": "shop::double", "deliver": "input"}, "seer::slow", max_in_flight=2)
        await asyncio.gather(*(p.owner.trigger("shop::double", {"amount": amount}) for amount in range(10)))
        assert sorted(await p.until_seen(10)) == list(range(10))
        assert max(most) == 2


@asynchronous
async def test_observers_that_trigger_each_other_stop_at_the_maximum_depth() -> None:
    async with party() as p:
        count: list[int] = []

        async def again(_data: Any) -> None:
            count.append(p.owner.worker.current_invocation().observe_depth)
            await p.owner.worker.trigger_async({"function_id": "loop::start", "payload": {}})

        async def start(_data: Any) -> None:
            return None

        await p.owner.offer("loop::start", start)
        await p.owner.offer("loop::again", again)
        await p.observe("loop::start", "loop::again")
        await p.owner.trigger("loop::start")
        await p.wait_until_idle()
        assert count == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("source", "options", "code"),
    [
        ({"function_id": "shop::double", "filters": {"input.amount": 5}}, {}, "INVALID_FILTER"),
        ({"function_id": "shop::double", "args": {"a": 1}}, {}, "INVALID_ARGS"),
        ({"function_id": "shop::secret"}, {}, "NOT_OBSERVABLE"),
        ({"function_id": "engine::channels::create"}, {}, "NOT_OBSERVABLE"),
        ({"function_id": "shop::double", "on": "never"}, {}, "INVALID_OBSERVER"),
        ({"function_id": "shop::double", "capture": ["all"]}, {}, "INVALID_OBSERVER"),
        ({"function_id": "shop::double", "deliver": "pigeon"}, {}, "INVALID_OBSERVER"),
        ({"function_id": "shop::double"}, {"max_fires": 0}, "INVALID_OBSERVER"),
    ],
)
@asynchronous
async def test_an_invalid_observer_is_refused(source: Any, options: Any, code: str) -> None:
    async with party() as p:
        await p.owner.offer("shop::double", double)
        await p.owner.offer("shop::secret", double, observe=iii.ObserveHooks(allow=False))
        assert await p.refusal(source, **options) == code


@asynchronous
async def test_functions_of_the_hub_are_observed_too() -> None:
    async with party() as p:
        await p.observe({"function_id": "skills::register", "deliver": "input"})
        await p.owner.trigger("skills::register", {"id": "notes", "skill": "# Notes"})
        assert await p.until_seen(1) == [{"id": "notes", "skill": "# Notes"}]


@asynchronous
async def test_without_the_setting_observers_are_refused_and_calls_work() -> None:
    async with party(lambda: hub_for_workers(workers={"port": 0, "observe": False})) as p:
        await p.owner.offer("shop::double", double)
        assert await p.refusal("shop::double") == "UNSUPPORTED"
        assert await p.observer.trigger("shop::double", {"amount": 2}) == {"total": 4}


async def _call(p: Party, times: int) -> None:
    for amount in range(times):
        await p.owner.trigger("shop::double", {"amount": amount})


@asynchronous
async def test_observers_of_a_worker_end_with_its_connection() -> None:
    async with party() as p:
        await p.owner.offer("shop::double", double)
        async with sdk(address(p.hub), "guest") as guest:
            handle = guest.worker.observe({"function_id": "shop::double"}, "seer::see")
            await asyncio.wait_for(handle.ready_async(), 60)
            await _call(p, 1)
            await p.until_seen(1)
        await p.owner.trigger("engine::functions::list")
        assert len(p.hub.workers.observers) == 0
        await _call(p, 1)
        await p.wait_until_idle()
        assert len(p.seen) == 1


@pytest.mark.timeout(300)
def test_a_function_of_the_node_sdk_is_observed_and_is_a_target(tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        async with party() as p, peer("node", address(p.hub), tmp_path) as node:
            await node.offer("node::echo")
            await node.offer("node::hear")
            await node.call_until_found("node::hear")
            await p.observe("node::echo")
            await p.observe({"function_id": "node::echo", "deliver": "input"}, target="node::hear")
            await p.owner.trigger("node::echo", {"amount": 1})
            [seen] = await p.until_seen(1)
            assert seen["output"]["echo"] == {"amount": 1}
            assert (await node.wait_for_event("called", function="node::hear", data={"amount": 1}))["data"] == {
                "amount": 1
            }
            assert await node.logged_errors() == []

    scenario()
