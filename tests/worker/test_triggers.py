"""Triggers that a worker provides, and triggers that its functions are bound to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import AT_ONCE, scripted, settled, working
from tests.workers.wire import at_work, hub_for_workers, wired
from waypost.errors import WaypostError
from waypost.worker import Bound, register_worker


@asynchronous
async def test_a_trigger_calls_every_function_that_is_bound_to_it_before_or_after_it_is_provided() -> None:
    hub = hub_for_workers()
    received: list[tuple[str, Any, Any]] = []
    async with at_work(hub), working(hub) as provider, working(hub, "two") as listener:
        listener.register_function("l::one", lambda payload, metadata: received.append(("one", payload, metadata)))
        listener.register_function("l::two", lambda payload, metadata: received.append(("two", payload, metadata)))
        listener.register_trigger("p::tick", "l::one", {"every": 1}, metadata={"m": 1})
        await settled(listener)
        kind = provider.register_trigger_type("p::tick", "Ticks.")
        second = listener.register_trigger("p::tick", "l::two")
        await until(lambda: len(kind.bound) == 2)
        configs = {one.function_id: one.config for one in kind.bound.values()}
        assert configs == {"l::one": {"every": 1}, "l::two": {}}

        kind.fire({"n": 1})
        await until(lambda: len(received) == 2)
        assert sorted(received, key=str) == [("one", {"n": 1}, {"m": 1}), ("two", {"n": 1}, None)]

        listener.unregister_trigger(second)
        await until(lambda: len(kind.bound) == 1)
        kind.fire({"n": 2})
        await until(lambda: len(received) == 3)
        await listener.shutdown()
        await until(lambda: not kind.bound)


@asynchronous
async def test_a_provider_gets_bindings_and_may_refuse_one(caplog: pytest.LogCaptureFixture) -> None:
    hub = hub_for_workers()
    received: list[tuple[str, str]] = []

    def on_bind(one: Bound) -> None:
        if one.config.get("every") == 0:
            raise WaypostError("every must be more than 0")
        received.append(("bound", one.function_id))

    async with at_work(hub), working(hub) as provider, working(hub, "two") as listener:
        kind = provider.register_trigger_type(
            "p::tick", on_bind=on_bind, on_unbind=lambda one: received.append(("unbound", one.function_id))
        )
        await settled(provider)
        listener.register_trigger("p::tick", "l::wrong", {"every": 0})
        good = listener.register_trigger("p::tick", "l::right", {"every": 1})
        await until(lambda: "every must be more than 0" in caplog.text)
        await until(lambda: received == [("bound", "l::right")])
        listener.unregister_trigger(good)
        await until(lambda: received == [("bound", "l::right"), ("unbound", "l::right")])
        assert not kind.bound


@asynchronous
async def test_binding_hooks_may_be_asynchronous_and_run_in_order(caplog: pytest.LogCaptureFixture) -> None:
    hub = hub_for_workers()
    received: list[tuple[str, str]] = []
    go_on = asyncio.Event()

    async def on_bind(one: Bound) -> None:
        if one.config.get("every") == 0:
            raise WaypostError("every must be more than 0")
        await go_on.wait()
        received.append(("bound", one.function_id))

    async def on_unbind(one: Bound) -> None:
        received.append(("unbound", one.function_id))

    async with at_work(hub), working(hub) as provider, working(hub, "two") as listener:
        kind = provider.register_trigger_type("p::tick", on_bind=on_bind, on_unbind=on_unbind)
        await settled(provider)
        short = listener.register_trigger("p::tick", "l::short")
        listener.register_trigger("p::tick", "l::wrong", {"every": 0})
        await until(lambda: "every must be more than 0" in caplog.text)
        listener.unregister_trigger(short)
        listener.register_trigger("p::tick", "l::long")
        await settled(listener)
        await settled(provider)
        assert not received
        go_on.set()
        await until(lambda: len(received) == 3)
        assert received.index(("bound", "l::short")) < received.index(("unbound", "l::short"))
        assert [one.function_id for one in kind.bound.values()] == ["l::long"]


@asynchronous
async def test_bindings_of_a_withdrawn_trigger_type_wait_for_another_provider() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as provider, wired(hub) as listener:
        await listener.introduce()
        kind = provider.register_trigger_type("p::tick")
        await listener.send("registertrigger", id="b1", trigger_type="p::tick", function_id="l::one")
        await until(lambda: kind.bound)
        provider.unregister_trigger_type("p::tick")
        await settled(provider)
        assert not any(known.worker for known in hub.workers.triggers.types)

        other = provider.register_trigger_type("p::tick")
        await until(lambda: other.bound)


@asynchronous
async def test_firing_a_trigger_whose_function_is_missing_is_ignored() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as provider:
        kind = provider.register_trigger_type("p::tick")
        provider.register_trigger("p::tick", "nobody::there")
        await until(lambda: kind.bound)

        kind.fire(1)

        await settled(provider)


@asynchronous
async def test_a_worker_whose_trigger_another_provides_logs_it_and_takes_over_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub, "second") as second:
        async with working(hub, "first") as first:
            kind = first.register_trigger_type("p::tick")
            second.register_trigger("p::tick", "l::one")
            await until(lambda: kind.bound)
            waiting = second.register_trigger_type("p::tick")
            said = "this worker does not provide p::tick: The kind of trigger p::tick was not taken"
            await until(lambda: said in caplog.text)
        await until(lambda: waiting.bound)


@asynchronous
async def test_a_binding_that_the_provider_cannot_read_is_refused() -> None:
    async with scripted() as engine:
        worker = register_worker(engine.url, reconnecting=AT_ONCE)
        kind = worker.register_trigger_type("p::tick")
        visit = await engine.visits.get()
        await visit.greeted()
        binding = '"id":"b","trigger_type":"p::tick","function_id":"a::b","config":{"every":1e999}'
        await visit.socket.send(f'{{"type":"registertrigger",{binding}}}')
        refused = await visit.next("triggerregistrationresult")
        assert refused["error"]["code"] == "trigger_registration_failed"
        assert refused["error"]["message"].startswith("The config cannot be read: ")
        assert not kind.bound
        await worker.shutdown()
