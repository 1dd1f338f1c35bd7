"""Observers, as messages on the wire."""

from __future__ import annotations

from typing import Any

import pytest
from websockets.asyncio.client import connect as dial

from tests.protocol.conftest import asynchronous, until
from tests.workers.watchers import agree, introduce_with_observers, observe, report_event
from tests.workers.wire import Wire, address, at_work, hub_for_workers, wired
from waypost.policy.rules import Rule
from waypost.workers import observer_registry, observers

OWNED = {"observe": {"delivery": "owner"}}


async def active(owner: Wire, seer: Wire, source: str = "a::b", target: str = "s::see", **more: Any) -> None:
    """Have an observer that the owner of a function agreed to."""
    assert (await observe(seer, source, target, **more))["state"] == "pending"
    await agree(owner, source)
    await seer.next("observerstatechanged", state="active")


@asynchronous
async def test_a_hub_announces_observers_unless_they_are_turned_off() -> None:
    for given, features in ((True, ["observe.v1"]), (False, None)):
        hub = hub_for_workers(workers={"port": 0, "observe": given})
        async with at_work(hub), dial(address(hub)) as socket:
            wire = Wire(socket)
            assert (await wire.next("workerregistered")).get("features") == features
            await wire.send("registerfunction", id="a::b")
            await wire.introduce("a", features=["observe.v1"])
            await wire.settled()
            assert [message["type"] for message in wire.seen] == (["functionregistered"] if given else [])


@asynchronous
async def test_a_worker_that_knows_of_no_observers_sees_nothing_of_them() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as seer:
        await owner.offer("a::b", name="owner")
        await introduce_with_observers(seer, "s::see", name="seer")
        assert (await observe(seer, "a::b", "s::see"))["state"] == "active"
        asked = await seer.ask("a::b", {"x": 1})
        call = await owner.serve("a::b", 1)
        assert call.keys() == {"type", "function_id", "data", "invocation_id", "baggage"}
        await seer.next("invocationresult", invocation_id=asked)
        assert (await seer.serve("s::see", None))["data"]["output"] == 1
        await owner.send("observe", id="mine", source={"function_id": "a::b"}, target={"function_id": "a::b"})
        await owner.settled()
        assert owner.seen == []
        assert len(hub.workers.observers) == 1


@asynchronous
async def test_a_worker_that_introduces_itself_late_gets_its_observers() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as seer:
        await owner.offer("a::b", name="owner")
        await introduce_with_observers(seer, "s::see", name="seer")
        await observe(seer, "a::b", "s::see", filters={"input.x": {"$eq": 1}})
        await owner.introduce("owner", features=["observe.v1"])
        received = await owner.next("functionregistered", id="a::b")
        assert received["local_dispatch"] is False
        assert received["observers"] == [
            {
                "id": "o",
                "args": {},
                "filters": {"input.x": {"$eq": 1}},
                "target": "s::see",
                "capture": ["input", "output", "caller"],
                "on": "success",
            }
        ]


@asynchronous
async def test_a_repeated_observer_is_one_and_a_changed_one_replaces_it() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as seer, wired(hub) as other:
        await introduce_with_observers(seer, "s::see", name="seer")
        await introduce_with_observers(other, name="other")
        assert (await observe(seer, "state::get", "s::see"))["state"] == "active"
        assert (await observe(seer, "state::get", "s::see"))["state"] == "active"
        assert len(hub.workers.observers) == 1
        assert (await observe(seer, "state::set", "s::see"))["state"] == "active"
        assert len(hub.workers.observers) == 1
        watched = [function.id for function in hub.workers.functions if function.watch is not None]
        assert watched == ["state::set"]
        assert (await observe(other, "state::get", "s::see"))["error"]["code"] == "OBSERVER_ID_IN_USE"
        await other.send("unobserve", id="o")
        await other.settled()
        assert len(hub.workers.observers) == 1


@asynchronous
async def test_an_observer_fails_if_the_owner_does_not_answer_in_time() -> None:
    hub = hub_for_workers()
    hub.workers.observers.acknowledge_timeout = 0.02
    async with at_work(hub), wired(hub) as owner, wired(hub) as seer:
        await introduce_with_observers(owner, "a::b", name="owner")
        await introduce_with_observers(seer, "s::see", name="seer")
        assert (await observe(seer, "a::b", "s::see"))["state"] == "pending"
        late = await seer.next("observerstatechanged", id="o")
        assert (late["state"], late["reason"]["code"]) == ("error", "OWNER_TIMEOUT")
        await agree(owner, "a::b")  # better late than never
        assert (await seer.next("observerstatechanged", id="o"))["state"] == "active"


@asynchronous
async def test_only_the_owners_answer_to_the_latest_revision_counts() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as seer:
        await introduce_with_observers(owner, "a::b", name="owner")
        await introduce_with_observers(seer, "s::see", name="seer")
        assert (await observe(seer, "a::b", "s::see"))["state"] == "pending"
        added = await owner.next("observeradded")
        ack = {"function_id": "a::b", "id": "o", "revision": added["revision"]}
        await seer.send("observerack", **ack)
        await owner.send("observerack", **{**ack, "revision": ack["revision"] - 1})
        await seer.settled()
        await owner.settled()
        assert seer.seen == []
        await owner.send("observerack", **ack, error={"code": "FULL", "message": "no room"})
        changed = await seer.next("observerstatechanged")
        assert (changed["state"], changed["reason"]) == ("error", {"code": "FULL", "message": "no room"})
        assert (await owner.next("observerremoved"))["id"] == "o"
        await owner.send("observerack", **ack)
        await owner.settled()
        await seer.settled()
        assert seer.seen == []


@asynchronous
async def test_only_the_owner_reports_events_to_observers_and_calls_them() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as seer, wired(hub) as liar:
        await introduce_with_observers(owner, "a::b", name="owner", **OWNED)
        await introduce_with_observers(owner, "a::plain", name="owner")
        await introduce_with_observers(seer, "s::see", "s::other", name="seer")
        await introduce_with_observers(liar, "l::b", name="liar", **OWNED)
        await active(owner, seer)
        await active(owner, seer, source="a::plain", observer="plain")
        await report_event(liar, "a::b", "o", input=1)
        await report_event(liar, "l::b", "o", input=1)
        await report_event(owner, "a::plain", "plain", input=1)
        await report_event(owner, "a::b", "plain", "nobody", input=1)
        for wire in (liar, owner, seer):
            await wire.settled()
        assert seer.seen == []
        assert hub.workers.observers.running == 0
        for wire, observer, code in (
            (liar, "o", "OBSERVER_NOT_ACTIVE"),
            (owner, "nobody", "OBSERVER_NOT_ACTIVE"),
            (owner, "plain", "NOT_OWNER_DELIVERED"),
        ):
            assert (await wire.error("s::see", 1, activation={"observer_id": observer}))["code"] == code
        await report_event(owner, "a::b", "o", "o", input=7)
        assert (await seer.serve("s::see", None))["data"]["input"] == 7
        asked = await owner.ask("s::other", 8, activation={"observer_id": "o"})
        assert (await seer.serve("s::see", 9))["data"] == 8  # the target that it names does not count
        assert (await owner.next("invocationresult", invocation_id=asked))["result"] == 9
        await seer.settled()
        assert seer.seen == []


@asynchronous
async def test_an_owner_deep_in_a_chain_of_observers_may_not_call_further_ones() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as seer:
        await introduce_with_observers(owner, "a::b", name="owner", **OWNED)
        await introduce_with_observers(seer, "s::see", name="seer")
        await active(owner, seer)
        error = await owner.error("s::see", 1, activation={"observer_id": "o"}, observe_depth=observers.MAX_DEPTH)
        assert error["code"] == "OBSERVE_DEPTH_EXCEEDED"
        await report_event(owner, "a::b", "o", input=1, observe_depth=observers.MAX_DEPTH)
        await owner.settled()
        assert hub.workers.observers.running == 0


@asynchronous
async def test_a_function_that_is_offered_again_is_observed_still() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as plain, wired(hub) as owner, wired(hub) as seer:
        await plain.offer("p::b", name="plain")
        await introduce_with_observers(owner, "a::b", name="owner")
        await introduce_with_observers(seer, "s::see", name="seer")
        await observe(seer, "p::b", "s::see", "p")
        await active(owner, seer)
        await plain.offer("p::b", name="plain")
        await owner.send("registerfunction", id="a::b")
        received = await owner.next("functionregistered", id="a::b")
        assert (await seer.next("observerstatechanged"))["state"] == "suspended"
        await owner.send("observerack", function_id="a::b", id="o", revision=received["revision"])
        assert (await seer.next("observerstatechanged"))["state"] == "active"
        await owner.settled()
        assert {function.id for function in hub.workers.functions if function.watch is not None} == {"a::b", "p::b"}
        await owner.send("unregisterfunction", id="a::b")
        assert (await seer.next("observerstatechanged"))["reason"]["code"] == "OWNER_MISSING"
        await seer.send("unregisterfunction", id="s::see")
        assert (await seer.next("observerstatechanged", id="p"))["reason"]["code"] == "TARGET_MISSING"


@asynchronous
async def test_an_owner_is_notified_of_removed_observers() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner:
        await introduce_with_observers(owner, "a::b", name="owner")
        async with wired(hub) as seer:
            await introduce_with_observers(seer, "s::see", name="seer")
            await active(owner, seer)
            await active(owner, seer, observer="other")
            await seer.send("unobserve", id="o")
            first = await owner.next("observerremoved")
            assert first["id"] == "o"
        second = await owner.next("observerremoved")
        assert second["id"] == "other"
        assert second["revision"] > first["revision"]
        assert len(hub.workers.observers) == 0
        assert all(function.watch is None for function in hub.workers.functions)


@asynchronous
async def test_a_worker_that_may_not_call_a_function_may_not_observe_it() -> None:
    rule = Rule(name="few", type="allow_list", config={"allow": ["a__c", "s__see"]}, principals=("worker:seer",))
    hub = hub_for_workers(policies=[rule])
    async with at_work(hub), wired(hub) as owner, wired(hub) as seer:
        await introduce_with_observers(owner, "a::b", "a::c", name="owner")
        await introduce_with_observers(seer, "s::see", name="seer")
        assert (await observe(seer, "a::b", "s::see"))["error"]["code"] == "FORBIDDEN"
        assert (await observe(seer, "a::c", "s::see", "c"))["state"] == "pending"
        assert "observeradded" not in [one["type"] for one in owner.seen if one.get("function_id") == "a::b"]


@asynchronous
async def test_an_observer_gets_a_call_whose_caller_is_gone_as_stopped() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as seer:
        await owner.offer("a::b", name="owner")
        await introduce_with_observers(seer, "s::see", name="seer")
        await observe(seer, "a::b", "s::see", on="error", capture=["error"])
        async with wired(hub) as caller:
            await caller.introduce("caller")
            await caller.ask("a::b")
            await owner.next("invokefunction")
        assert (await seer.serve("s::see", None))["data"]["error"]["code"] == "invocation_stopped"


@asynchronous
async def test_events_beyond_the_limit_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "MAX_WAITING", 3)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as seer:
        await introduce_with_observers(owner, "a::b", name="owner", **OWNED)
        await introduce_with_observers(seer, "s::see", name="seer")
        await active(owner, seer, max_in_flight=2)
        for number in range(10):
            await report_event(owner, "a::b", "o", input=number)
        await owner.settled()
        assert hub.workers.observers.running == 5
        received = [(await seer.serve("s::see", None))["data"]["input"] for _ in range(5)]
        assert received == [0, 1, 2, 3, 4]
        await until(lambda: hub.workers.observers.running == 0)
        await report_event(owner, "a::b", "o", input=10)
        assert (await seer.serve("s::see", None))["data"]["input"] == 10


@asynchronous
async def test_calls_without_an_answer_are_followed_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "MAX_FOLLOWED_CALLS", 2)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as seer:
        await owner.offer("a::b", name="owner")
        await introduce_with_observers(seer, "s::see", name="seer")
        await observe(seer, "a::b", "s::see")
        for number in range(3):
            await seer.send("invokefunction", function_id="a::b", data=number, action={"type": "void"})
        calls = [await owner.next("invokefunction") for _ in range(3)]
        assert ["invocation_id" in call for call in calls] == [True, True, False]
        await owner.answer(calls[0], "zero")
        assert (await seer.serve("s::see", None))["data"]["output"] == "zero"


@asynchronous
async def test_an_observer_gets_a_call_whose_worker_disconnected_as_an_error() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as seer:
        await introduce_with_observers(seer, "s::see", name="seer")
        async with wired(hub) as owner:
            await owner.offer("a::b", name="owner")
            await observe(seer, "a::b", "s::see", on="error", capture=["error"])
            await seer.ask("a::b")
            await owner.next("invokefunction")
        assert (await seer.serve("s::see", None))["data"]["error"]["code"] == "invocation_stopped"
        assert (await seer.next("observerstatechanged"))["state"] == "suspended"


@asynchronous
async def test_a_loop_through_a_worker_that_knows_of_no_observers_comes_to_an_end() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as plain, wired(hub) as seer:
        await plain.offer("p::start", "p::again", name="plain")
        await introduce_with_observers(seer, name="seer")
        assert (await observe(seer, "p::start", "p::again"))["state"] == "active"
        await seer.send("invokefunction", function_id="p::start", data={})
        await plain.serve("p::start", None)
        for _ in range(observers.MAX_DEPTH):
            activation = await plain.next("invokefunction", function_id="p::again")
            asked = await plain.ask("p::start", {})
            await plain.serve("p::start", None)
            await plain.next("invocationresult", invocation_id=asked)
            await plain.answer(activation, None)
        await plain.settled()
        await until(lambda: hub.workers.observers.running == 0)
        assert plain.seen == []


@asynchronous
async def test_functions_are_observed_within_their_namespace() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as seer:
        await owner.send("registerfunction", id="a::b")
        await owner.introduce("owner", namespace="eu")
        await introduce_with_observers(seer, "s::see", name="seer")
        assert (await observe(seer, "a::b", "s::see"))["state"] == "pending"
        target = {"function_id": "s::see"}
        await seer.send("observe", id="eu", source={"function_id": "a::b", "namespace": "eu"}, target=target)
        assert (await seer.next("observeresult", id="eu"))["state"] == "active"
        asked = await seer.ask("a::b", 1, namespace="eu")
        await owner.serve("a::b", 2)
        await seer.next("invocationresult", invocation_id=asked)
        assert (await seer.serve("s::see", None))["data"]["namespace"] == "eu"
        await seer.send("observe", id="blank", source={"function_id": "a::b", "namespace": " "}, target=target)
        assert (await seer.next("observeresult", id="blank"))["error"]["code"] == "INVALID_NAMESPACE"


@asynchronous
async def test_observers_are_limited_in_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer_registry, "MAX_OBSERVERS_OF_FUNCTION", 2)
    monkeypatch.setattr(observer_registry, "MAX_OBSERVERS", 3)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as seer:
        await introduce_with_observers(seer, "s::see", name="seer")
        answers = [await observe(seer, "state::get", "s::see", f"o-{number}") for number in range(4)]
        assert [answer["state"] for answer in answers] == ["active", "active", "error", "error"]
        assert {answer["error"]["code"] for answer in answers[2:]} == {"TOO_MANY_OBSERVERS"}
        await seer.send("unobserve", id="o-0")
        assert (await observe(seer, "state::get", "s::see", "o-4"))["state"] == "active"
        large = await observe(seer, "state::get", "s::see", "o-1", metadata={"x": "y" * 40_000})
        assert large["error"]["code"] == "INVALID_OBSERVER"


@asynchronous
async def test_a_loop_through_a_function_of_the_hub_comes_to_an_end() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as seer:
        await owner.offer("p::write", name="owner")
        await introduce_with_observers(seer, name="seer")
        await seer.result("prompts::register", {"name": "loop", "description": "d", "function_id": "p::write"})
        assert (await observe(seer, "p::write", "prompts::mcp-get", deliver="output"))["state"] == "active"
        asked = await seer.ask("prompts::mcp-get", {"name": "loop"})
        for _ in range(observers.MAX_DEPTH + 1):
            await owner.serve("p::write", {"name": "loop", "content": "again"})
        await seer.next("invocationresult", invocation_id=asked)
        await until(lambda: hub.workers.observers.running == 0)
        await owner.settled()
        assert owner.seen == []
