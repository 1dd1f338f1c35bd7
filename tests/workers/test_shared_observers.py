"""Observers of a worker that is connected to one replica see the calls of functions at all of them."""

from __future__ import annotations

import asyncio

import pytest

from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.workers.replicas import replicas, run, until
from tests.workers.replicas import settings as settings
from tests.workers.watchers import agree, introduce_with_observers, observe, report_event
from tests.workers.wire import Wire, wired
from waypost.policy.rules import Rule
from waypost.settings import Settings, Workers
from waypost.workers import observer_registry


async def becomes_active(seer: Wire, source: str, observer: str = "o", target: str = "s::see", **more: object) -> None:
    """Register an observer, and wait until it is active."""
    if (await observe(seer, source, target, observer, **more))["state"] != "active":
        await seer.next("observerstatechanged", id=observer, state="active")


def test_calls_at_every_replica_are_seen_once(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with (
            replicas(postgres_url, settings) as (a, b),
            wired(a.hub) as owner,
            wired(b.hub) as seer,
        ):
            await owner.offer("a::b", name="owner")
            await introduce_with_observers(seer, "s::see", name="seer")
            await becomes_active(seer, "a::b", metadata={"tenant": "t"}, filters={"input.n": {"$gt": 0}})
            for number, side in enumerate((a, b, a, b)):
                calling = asyncio.create_task(side.client.call_tool("a__b", {"n": number}))
                await owner.serve("a::b", {"m": -number})
                assert not (await calling).get("isError")
                if number:
                    call = await seer.serve("s::see", None)
                    seen = call["data"]
                    assert (seen["observer_id"], seen["input"], seen["output"]) == ("o", {"n": number}, {"m": -number})
                    assert call["metadata"] == {"tenant": "t"}
                    assert call["activation"] == {"observer_id": "o", "activation_id": seen["activation_id"]}
                    assert call["caller"]["worker_name"] == "owner"
            await seer.send("unobserve", id="o")
            await until(lambda: len(a.hub.workers.observers) == 0)
            assert not [message for message in seer.seen if message["type"] == "invokefunction"]
            assert all(function.watch is None for function in a.hub.workers.functions)

    run(scenario())


def test_a_function_that_both_replicas_have_is_seen_at_both_and_fires_as_often_as_wanted(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with (
            replicas(postgres_url, settings) as (a, b),
            wired(a.hub) as first,
            wired(b.hub) as second,
            wired(b.hub) as seer,
        ):
            for worker in (first, second):
                await worker.offer("a::b", name="owner")
            await introduce_with_observers(seer, "s::see", name="seer")
            await becomes_active(seer, "a::b", max_fires=3)
            await until(lambda: [one.state for one in a.hub.workers.observers] == ["active"])
            for number, (side, worker) in enumerate(((a, first), (b, second), (a, first))):
                calling = asyncio.create_task(side.client.call_tool("a__b", {"n": number}))
                await worker.serve("a::b", {})
                await calling
                assert (await seer.serve("s::see", None))["data"]["input"] == {"n": number}
            disposed = await seer.next("observerstatechanged", state="disposed")
            assert (disposed["fires"], disposed["reason"]["code"]) == (3, "MAX_FIRES")
            await until(lambda: len(a.hub.workers.observers) == 0)

    run(scenario())


def test_a_function_of_the_hub_is_seen_at_every_replica(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as caller, wired(b.hub) as seer:
            await caller.introduce("caller")
            await introduce_with_observers(seer, "s::see", name="seer")
            assert (await observe(seer, "state::set", "s::see"))["state"] == "active"
            await until(lambda: [one.state for one in a.hub.workers.observers] == ["active"])
            for side in (caller, seer):
                asked = await side.ask("state::set", {"scope": "s", "key": "k", "value": side.id})
                assert (await seer.serve("s::see", None))["data"]["input"]["value"] == side.id
                await side.next("invocationresult", invocation_id=asked)

    run(scenario())


def test_the_owner_at_another_replica_agrees_or_refuses_and_reports_by_itself(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as owner, wired(b.hub) as seer:
            await introduce_with_observers(owner, "a::b", name="owner", observe={"delivery": "owner"})
            await b.offers("a::b")
            await introduce_with_observers(seer, "s::see", name="seer")
            pending = await observe(seer, "a::b", "s::see")
            assert pending["state"] == "pending"
            added = await agree(owner, "a::b")
            key = added["observer"]["id"]
            await seer.next("observerstatechanged", state="active")

            await report_event(owner, "a::b", key, input={"n": 1})
            assert (await seer.serve("s::see", None))["data"]["input"] == {"n": 1}
            asked = await owner.ask("", {"n": 2}, activation={"observer_id": key})
            assert (await seer.serve("s::see", "heard"))["data"] == {"n": 2}
            assert (await owner.next("invocationresult", invocation_id=asked))["result"] == "heard"

            refused = {"code": "ENOUGH", "message": "no longer"}
            ack = {"function_id": "a::b", "id": key, "revision": added["revision"], "error": refused}
            await owner.send("observerack", **ack)
            changed = await seer.next("observerstatechanged", state="error")
            assert changed["reason"] == refused
            assert (await owner.call("", {}, activation={"observer_id": key}))["error"]["code"] == "OBSERVER_NOT_ACTIVE"

            await observe(seer, "a::b", "s::see", on="error")  # another wish in place of the first
            assert (await agree(owner, "a::b"))["observer"]["id"] != key
            await seer.next("observerstatechanged", state="active")
            await owner.socket.close()
            suspended = await seer.next("observerstatechanged", state="suspended")
            assert suspended["reason"]["code"] == "OWNER_MISSING"

    run(scenario())


def test_a_policy_denies_an_observer_of_another_replica_as_one_of_its_own(postgres_url: str) -> None:
    rule = Rule(name="few", type="allow_list", config={"allow": ["s__*", "engine::*"]}, principals=("worker:seer",))

    async def scenario() -> None:
        async with (
            replicas(postgres_url, Settings(workers=Workers(port=0)), policies=[rule]) as (a, b),
            wired(a.hub) as owner,
            wired(b.hub) as seer,
            wired(a.hub) as near,
        ):
            await owner.offer("a::b", name="owner")
            await b.offers("a::b")
            for wire in (near, seer):
                await introduce_with_observers(wire, f"s::see{wire.id}", name="seer")
                answer = await observe(wire, "a::b", f"s::see{wire.id}", f"o-{wire.id}")
                if answer["state"] == "error":
                    assert answer["error"]["code"] == "FORBIDDEN"
                else:
                    changed = await wire.next("observerstatechanged", state="error")
                    assert changed["reason"]["code"] == "FORBIDDEN"

    run(scenario())


def test_observers_beyond_the_limit_see_their_own_replica_and_say_so(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer_registry, "MAX_SHARED_BYTES", 200)

    async def scenario() -> None:
        async with replicas(postgres_url, Settings(workers=Workers(port=0))) as (a, b), wired(b.hub) as seer:
            await introduce_with_observers(seer, "s::see", name="seer")
            assert "warnings" not in await observe(seer, "state::set", "s::see", "first")
            second = await observe(seer, "state::set", "s::see", "second")
            assert second["state"] == "active"
            assert "Only calls at this replica" in second["warnings"][0]
            await until(lambda: len(a.hub.workers.observers) == 1)
            await seer.send("unobserve", id="first")
            await until(lambda: len(a.hub.workers.observers) == 0)
            assert "warnings" not in await observe(seer, "state::get", "s::see", "third")

    run(scenario())


def test_events_that_cannot_be_sent_are_counted_and_the_call_is_answered(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with (
            replicas(postgres_url, Settings(workers=Workers(port=0))) as (a, b),
            wired(a.hub) as owner,
            wired(b.hub) as seer,
        ):
            await owner.offer("a::b", name="owner")
            await introduce_with_observers(seer, "s::see", name="seer")
            await becomes_active(seer, "a::b")
            shared = b.hub.workers.shared
            assert shared is not None
            assert shared._calls is not None
            await shared._calls.stop()  # replica b no longer responds
            calling = asyncio.create_task(a.client.call_tool("a__b", {}))
            await owner.serve("a::b", {"done": True})
            assert (await calling)["structuredContent"] == {"done": True}
            (observer,) = a.hub.workers.observers
            await until(lambda: observer.backlog.missed == 1)
            assert "missed 1 events" in caplog.text

    run(scenario())
