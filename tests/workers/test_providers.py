"""A kind of trigger is its first provider's; others that offer it stand by."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.workers.test_triggers import bind, provide
from tests.workers.wire import Wire, at_work, hub_for_workers, rows, wired
from waypost import Hub


class Bench:
    """A hub where the first of three workers provides a kind that a fourth binds a function to."""

    def __init__(self, hub: Hub, *workers: Wire) -> None:
        self.hub = hub
        self.first, self.second, self.third, self.binder = workers

    @property
    def provider(self) -> str:
        """The name of the worker that provides the kind."""
        return "".join(kind.worker.name for kind in self.hub.workers.triggers.types if kind.worker is not None)


@asynccontextmanager
async def bench(**limits: int) -> AsyncIterator[Bench]:
    """The first provides and has the binding, the others stand by."""
    hub = hub_for_workers(workers={"port": 0, "limits": limits})
    async with at_work(hub), wired(hub) as first, wired(hub) as second, wired(hub) as third, wired(hub) as binder:
        await provide(first, name="first")
        await bind(binder)
        await first.next("registertrigger")
        await provide(second, name="second")
        await provide(third, name="third")
        for wire in (second, third, first):
            await wire.settled()
        yield Bench(hub, first, second, third, binder)


@asynchronous
async def test_a_trigger_type_that_another_provides_is_refused_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with bench() as b:
            assert b.provider == "first"
            assert b.first.seen == []
            for wire in (b.second, b.third):
                refusal = await wire.next("triggerregistrationresult")
                assert (refusal["id"], refusal["trigger_type"], refusal["function_id"]) == ("tick", "tick", "")
                assert refusal["error"]["code"] == "trigger_registration_failed"
                assert "tick was not taken: it is provided by first, and will be by" in refusal["error"]["message"]
                assert wire.seen == []
            received = [record.getMessage() for record in caplog.records]
            assert [line.split(" was ")[0] for line in received] == [
                "the kind of trigger tick of the worker second",
                "the kind of trigger tick of the worker third",
            ]
            await bind(b.binder, "c")
            assert (await b.first.next("registertrigger"))["id"] == "c"


@pytest.mark.parametrize("is_withdrawn", [True, False], ids=["takes it back", "leaves"])
def test_the_longest_waiting_provider_gets_the_bindings_when_the_provider(is_withdrawn: bool) -> None:
    @asynchronous
    async def scenario() -> None:
        async with bench() as b:
            for one, heir, name in ((b.first, b.second, "second"), (b.second, b.third, "third")):
                if is_withdrawn:
                    await one.send("unregistertriggertype", id="tick")
                else:
                    await one.socket.close()
                assert (await heir.next("registertrigger"))["id"] == "b"
                assert b.provider == name
            listed = await b.binder.result("engine::registered-triggers::list", {})
            assert [one["state"] for one in listed["registered_triggers"]] == ["active"]
            await b.third.socket.close()
            await until(lambda: rows(b.hub)["kinds"] == 0)
            assert rows(b.hub)["bindings"] == 1

    scenario()


@asynchronous
async def test_a_withdrawn_claim_takes_no_trigger_type_over() -> None:
    async with bench() as b:
        await b.second.send("unregistertriggertype", id="tick")
        await b.second.settled()
        await b.third.socket.close()
        await until(lambda: rows(b.hub)["workers"] == 3)
        await b.first.socket.close()
        await until(lambda: rows(b.hub)["kinds"] == 0)
        await b.second.settled()
        assert [one["type"] for one in b.second.seen] == ["triggerregistrationresult"]


@asynchronous
async def test_a_provider_that_registers_its_trigger_type_again_keeps_it() -> None:
    async with bench() as b:
        await b.first.send("registertriggertype", id="tick", description="newer")
        assert (await b.first.next("registertrigger"))["id"] == "b"
        assert b.provider == "first"
        assert [kind.description for kind in b.hub.workers.triggers.types if kind.worker is not None] == ["newer"]


@asynchronous
async def test_waiting_claims_count_as_provided_trigger_types() -> None:
    async with bench(trigger_types=1) as b:
        await b.second.send("registertriggertype", id="other", description="")
        await b.second.send("registertriggertype", id="tick", description="newer")
        await b.second.settled()
        assert b.provider == "first"
        await b.first.socket.close()
        assert (await b.second.next("registertrigger"))["id"] == "b"
        assert rows(b.hub)["kinds"] == 1


@asynchronous
async def test_a_slow_provider_gets_a_binding_once() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as provider, wired(hub) as binder:
        await bind(binder)
        await provide(provider)
        await provider.next("registertrigger")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(provider.next("registertrigger"), 1.2)


@asynchronous
async def test_a_binding_that_ends_before_a_provider_on_the_python_sdk_is_ready_is_never_sent() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as provider, wired(hub) as binder:
        await provider.introduce("provider", runtime="python")
        await provide(provider)
        await bind(binder, "short")
        await binder.send("unregistertrigger", id="short", trigger_type="tick")
        await bind(binder, "long")
        assert (await provider.next("registertrigger"))["id"] == "long"
        await binder.send("unregistertrigger", id="long", trigger_type="tick")
        assert (await provider.next("unregistertrigger"))["id"] == "long"
        assert provider.seen == []
