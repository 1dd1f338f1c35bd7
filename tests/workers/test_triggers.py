"""Bindings wait for a provider, are handed to it, and go with the worker that made them."""

from __future__ import annotations

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import Json, Wire, at_work, hub_for_workers, rows, wired


async def provide(wire: Wire, kind: str = "tick", name: str = "provider") -> None:
    """Offer a kind of trigger."""
    await wire.send("registertriggertype", id=kind, description="Ticks")
    await wire.introduce(name)


async def bind(wire: Wire, binding: str = "b", **more: object) -> None:
    """Bind a function to a kind of trigger."""
    fields = {"trigger_type": "tick", "function_id": "a::b", "config": {"every": 1}, **more}
    await wire.send("registertrigger", id=binding, **fields)
    await wire.introduce("binder")


@pytest.mark.parametrize("provider_first", [True, False])
def test_a_binding_reaches_its_provider_in_either_order(provider_first: bool) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), wired(hub) as provider, wired(hub) as binder:
            if provider_first:
                await provide(provider)
            await bind(binder, metadata={"m": 1})
            if not provider_first:
                await provide(provider)
            assert await provider.next("registertrigger") == {
                "type": "registertrigger",
                "id": "b",
                "trigger_type": "tick",
                "function_id": "a::b",
                "config": {"every": 1},
                "metadata": {"m": 1},
            }

    scenario()


@asynchronous
async def test_a_binding_without_a_configuration_has_none() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as provider, wired(hub) as binder:
        await provide(provider)
        await binder.send("registertrigger", id="b", trigger_type="tick", function_id="a::b")
        assert (await provider.next("registertrigger"))["config"] is None


@asynchronous
async def test_a_provider_is_notified_when_a_binding_ends_and_when_its_maker_disconnects() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as provider:
        await provide(provider)
        async with wired(hub) as binder:
            await bind(binder, "one")
            await bind(binder, "two")
            await binder.send("unregistertrigger", id="one", trigger_type="tick", message_type="unregistertrigger")
            gone = await provider.next("unregistertrigger")
            assert gone == {"type": "unregistertrigger", "id": "one", "trigger_type": "tick"}
            binder.socket.transport.abort()
        assert (await provider.next("unregistertrigger"))["id"] == "two"
        assert rows(hub)["bindings"] == 0


@asynchronous
async def test_bindings_wait_for_a_provider_that_went_and_are_given_to_the_next() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as binder:
        await bind(binder)
        for name in ("first", "second"):
            async with wired(hub) as provider:
                await provide(provider, name=name)
                assert (await provider.next("registertrigger"))["id"] == "b"
            await until(lambda: rows(hub)["kinds"] == 0)
        async with wired(hub) as provider:
            await provide(provider)
            await provider.next("registertrigger")
            await provider.send("unregistertriggertype", id="tick", description="as some say")
            await provider.settled()
            assert rows(hub)["kinds"] == 0
            assert rows(hub)["bindings"] == 1


@asynchronous
async def test_a_providers_refusal_of_a_binding_reaches_only_its_maker() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as provider, wired(hub) as binder, wired(hub) as other:
        await provide(provider)
        await other.introduce("other")
        await bind(binder)
        await provider.next("registertrigger")
        error = {"code": "trigger_registration_failed", "message": "every what?"}
        said: Json = {"id": "b", "trigger_type": "tick", "function_id": "a::b"}
        await other.send("triggerregistrationresult", **said, error={"code": "x", "message": "spoofed"})
        await binder.send("triggerregistrationresult", **said, error={"code": "x", "message": "spoofed"})
        await other.settled()
        await provider.send("triggerregistrationresult", **said)
        await provider.send("triggerregistrationresult", **said, error=error)
        received = await binder.next("triggerregistrationresult")
        assert received == {"type": "triggerregistrationresult", **said, "error": error}
        await binder.settled()
        assert not any(message["type"] == "triggerregistrationresult" for message in binder.seen + other.seen)
        async with wired(hub) as second:
            await provide(second, name="second")
            await provider.socket.close()
            assert (await second.next("registertrigger"))["id"] == "b"


@asynchronous
async def test_a_worker_cannot_unbind_or_replace_the_binding_of_another() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as provider, wired(hub) as binder, wired(hub) as thief:
        await provide(provider)
        await bind(binder)
        await provider.next("registertrigger")
        await thief.send("unregistertrigger", id="b", trigger_type="tick")
        await bind(thief, function_id="thief::function")
        refused = await thief.next("triggerregistrationresult")
        assert refused["error"]["code"] == "trigger_registration_failed"
        assert rows(hub)["bindings"] == 1
        await thief.send("unregistertriggertype", id="tick")
        await thief.settled()
        assert rows(hub)["kinds"] == 1
        assert not any(message["type"] == "unregistertrigger" for message in provider.seen)


@asynchronous
async def test_the_kinds_of_the_hub_stay_the_hubs() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as thief, wired(hub) as binder:
        await provide(thief, "state", name="thief")
        assert rows(hub)["kinds"] == 0
        await binder.send("registertrigger", id="b", trigger_type="state", function_id="a::b", config={})
        await binder.offer("a::b", name="binder")
        await binder.result("state::set", {"scope": "s", "key": "k", "value": 1})
        assert (await binder.next("invokefunction"))["data"]["new_value"] == 1
        assert not any(message["type"] == "registertrigger" for message in thief.seen)


@asynchronous
async def test_a_repeated_binding_replaces_the_old_one() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as provider, wired(hub) as binder:
        await provide(provider)
        await bind(binder)
        assert (await provider.next("registertrigger"))["config"] == {"every": 1}
        await bind(binder, config={"every": 2})
        await provider.next("unregistertrigger")
        assert (await provider.next("registertrigger"))["config"] == {"every": 2}
        assert rows(hub)["bindings"] == 1


@asynchronous
async def test_a_binding_of_another_namespace_says_where_its_function_is() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as provider, wired(hub) as binder:
        await provide(provider)
        await binder.send("registertrigger", id="b", trigger_type="tick", function_id="a::b")
        await binder.introduce("binder", namespace="blue")
        assert (await provider.next("registertrigger"))["namespace"] == "blue"


@asynchronous
async def test_too_many_kinds_and_bindings_of_one_worker_are_refused() -> None:
    hub = hub_for_workers(workers={"port": 0, "limits": {"triggers": 3, "trigger_types": 3}})
    async with at_work(hub), wired(hub) as worker:
        await worker.introduce("greedy")
        for number in range(5):
            await worker.send("registertriggertype", id=f"kind-{number}", description="")
            await worker.send("registertrigger", id=f"b{number}", trigger_type="none", function_id="a::b")
        refused = [(await worker.next("triggerregistrationresult"))["id"] for _ in range(4)]
        assert refused == ["kind-3", "b3", "kind-4", "b4"]
        await worker.settled()
        assert rows(hub)["kinds"] == rows(hub)["bindings"] == 3
        await worker.send("unregistertrigger", id="b0")
        await worker.send("registertrigger", id="b9", trigger_type="none", function_id="a::b")
        await worker.settled()
        assert rows(hub)["bindings"] == 3


@asynchronous
async def test_a_binding_stays_when_its_replacement_is_refused() -> None:
    hub = hub_for_workers(workers={"port": 0, "limits": {"registration_bytes": 1024}})
    async with at_work(hub), wired(hub) as provider, wired(hub) as binder:
        await provide(provider)
        await bind(binder)
        assert (await provider.next("registertrigger"))["config"] == {"every": 1}
        await bind(binder, config={"every": "x" * 2000})
        refused = await binder.next("triggerregistrationresult", id="b")
        assert "workers.limits.registrationBytes is 1024" in refused["error"]["message"]
        await provider.settled()
        assert provider.seen == []
        assert rows(hub)["bindings"] == 1
        await bind(binder, config={"every": 3})
        await provider.settled()
        later = [(one["type"], one.get("config")) for one in provider.seen]
        assert later == [("unregistertrigger", None), ("registertrigger", {"every": 3})]


@asynchronous
async def test_a_replaced_binding_is_counted_once() -> None:
    hub = hub_for_workers(workers={"port": 0, "limits": {"triggers": 1, "total_bytes": 1024}})
    async with at_work(hub), wired(hub) as binder:
        for number in range(5):
            await bind(binder, config={"every": "x" * 600, "number": number})
        await bind(binder, "second")
        assert (await binder.next("triggerregistrationresult"))["id"] == "second"
        await binder.send("unregistertrigger", id="b")
        await bind(binder, "third", config={"every": "x" * 600})
        await binder.settled()
        assert [one.id for one in hub.workers.triggers.bindings] == ["third"]
        assert binder.seen == []


@pytest.mark.parametrize("part", ["config", "metadata"])
@pytest.mark.parametrize("value", ["1e999", "1" * 5000, '{"every": [-1e999]}'])
def test_a_binding_that_cannot_be_read_is_refused(part: str, value: str) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), wired(hub) as provider, wired(hub) as binder:
            await provide(provider)
            await binder.introduce("binder")
            binding = f'"id":"b","trigger_type":"tick","function_id":"a::b","{part}":{value}'
            await binder.raw(f'{{"type":"registertrigger",{binding}}}')
            refused = await binder.next("triggerregistrationresult", id="b")
            assert refused["error"]["message"].startswith(f"The binding b cannot be made: its {part} cannot be read: ")
            await provider.settled()
            assert provider.seen == []
            assert (await binder.result("engine::registered-triggers::list"))["registered_triggers"] == []

    scenario()
