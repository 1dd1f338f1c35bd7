"""Functions that take the place of kinds of triggers."""

from __future__ import annotations

from typing import Any

from tests.protocol.conftest import asynchronous, until
from tests.workers.watchers import agree, introduce_with_observers, report_event
from tests.workers.wire import Json, Wire, at_work, hub_for_workers, rows, wired

CLOCK = {"delivery": "owner", "legacy_trigger_type": "clock"}


async def bind(wire: Wire, binding: str = "b", function: str = "s::see", **more: Any) -> None:
    """Bind a function to the trigger that the tests are about."""
    await wire.send("registertrigger", id=binding, trigger_type="clock", function_id=function, **more)
    await wire.settled()


async def state_of(wire: Wire, binding: str = "b") -> str:
    """The state of a binding."""
    state: str = (await wire.result("engine::registered-triggers::info", {"id": binding}))["state"]
    return state


@asynchronous
async def test_the_owner_sees_the_binding_of_an_observer_and_the_target_only_the_event() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as old:
        await introduce_with_observers(owner, "clock::tick", name="owner", observe=CLOCK)
        await old.offer("s::see", name="old")
        await bind(old, config={"every": 5}, metadata={"m": 1})
        added = await agree(owner, "clock::tick")
        observer: Json = added["observer"]
        assert (observer["id"], observer["target"], observer["args"]) == ("b", "s::see", {"every": 5})
        assert observer["legacy"] == {"trigger_type": "clock", "config": {"every": 5}}
        await owner.settled()
        await report_event(owner, "clock::tick", "b", input={"time": "noon"})
        received = await old.next("invokefunction", function_id="s::see")
        assert (received["data"], received["metadata"]) == ({"time": "noon"}, {"m": 1})
        assert not any(message["type"].startswith("observe") for message in old.seen)


@asynchronous
async def test_calls_of_a_function_with_automatic_delivery_are_its_events() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as old:
        await owner.offer("orders::placed", name="owner", observe={"legacy_trigger_type": "clock"})
        await old.offer("s::see", name="old")
        await bind(old, config={"region": "eu"})
        asked = await old.ask("orders::placed", {"id": "a1"})
        await owner.serve("orders::placed", None)
        await old.next("invocationresult", invocation_id=asked)
        assert (await old.next("invokefunction", function_id="s::see"))["data"] == {"id": "a1"}


@asynchronous
async def test_a_provider_comes_before_the_substitute_function() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as old, wired(hub) as provider:
        await introduce_with_observers(owner, "clock::tick", name="owner", observe=CLOCK)
        await old.offer("s::see", name="old")
        await bind(old)
        await agree(owner, "clock::tick")
        await provider.send("registertriggertype", id="clock", description="")
        await provider.introduce("provider")
        assert (await provider.next("registertrigger"))["id"] == "b"
        assert (await owner.next("observerremoved"))["id"] == "b"
        assert len(hub.workers.observers) == 0
        await provider.send("unregistertriggertype", id="clock")
        await agree(owner, "clock::tick")
        await owner.settled()
        assert [one.state for one in hub.workers.observers] == ["active"]


@asynchronous
async def test_of_several_functions_for_a_kind_the_first_has_it_and_then_the_next() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as old:
        await introduce_with_observers(owner, "clock::one", "clock::two", name="owner", observe=CLOCK)
        await old.offer("s::see", name="old")
        await bind(old)
        await agree(owner, "clock::one")
        await owner.send("unregisterfunction", id="clock::one")
        await agree(owner, "clock::two")
        await owner.send("unregisterfunction", id="clock::two")
        await owner.settled()
        assert await state_of(old) == "pending"
        assert rows(hub)["kinds"] == len(hub.workers.observers) == 0


@asynchronous
async def test_a_function_that_is_registered_again_keeps_its_bindings() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as old:
        await introduce_with_observers(owner, "clock::tick", name="owner", observe=CLOCK)
        await old.offer("s::see", name="old")
        await bind(old)
        await agree(owner, "clock::tick")
        await owner.send("registerfunction", id="clock::tick", description="newer", observe=CLOCK)
        received = await owner.next("functionregistered", id="clock::tick")
        assert [one["legacy"]["trigger_type"] for one in received["observers"]] == ["clock"]
        assert not any(message["type"] == "observeradded" for message in owner.seen)


@asynchronous
async def test_the_next_owner_of_a_function_keeps_its_bindings() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as first, wired(hub) as second, wired(hub) as old:
        await introduce_with_observers(first, "clock::tick", name="first", observe=CLOCK)
        await second.send("registerfunction", id="clock::tick", observe=CLOCK)
        await second.introduce("second", features=["observe.v1"])
        await old.offer("s::see", name="old")
        await bind(old)
        await agree(first, "clock::tick")
        await first.socket.close()
        await agree(second, "clock::tick")
        await second.settled()
        await report_event(second, "clock::tick", "b", input=1)
        assert (await old.next("invokefunction", function_id="s::see"))["data"] == 1


@asynchronous
async def test_bindings_are_removed_with_their_worker_and_a_refusal_looks_like_that_of_a_provider() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner:
        await introduce_with_observers(owner, "clock::tick", name="owner", observe=CLOCK)
        async with wired(hub) as old:
            await old.offer("s::see", name="old")
            await bind(old)
            await agree(owner, "clock::tick", error={"code": "NEVER", "message": "not today"})
            received = await old.next("triggerregistrationresult", id="b")
            assert (received["function_id"], received["error"]["message"]) == ("s::see", "not today")
            assert await state_of(old) == "pending"
            await bind(old, "c")
            await agree(owner, "clock::tick")
            assert await state_of(old, "c") == "active"
        assert (await owner.next("observerremoved", id="c"))["function_id"] == "clock::tick"
        await until(lambda: len(hub.workers.observers) == rows(hub)["bindings"] == 0)
