"""Workers observe functions: theirs and others', through a hub that can and engines that cannot."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import AT_ONCE, failure, owner_and_seer, scripted, settled, threaded, working
from tests.workers.wire import address, at_work, hub_for_workers, wired
from waypost import Hub
from waypost.errors import DefinitionError
from waypost.worker import InvocationFailed, Worker, register_worker


class Party:
    """A worker that offers a function, one that observes it, and the events it saw."""

    def __init__(self, hub: Hub, owner: Worker, seer: Worker) -> None:
        self.hub = hub
        self.owner = owner
        self.seer = seer
        self.seen: list[Any] = []
        self.beside: list[Any] = []

    async def begin(self) -> None:
        """Have both offer their functions."""

        @self.owner.register_function("shop::double")
        def double(payload: Any) -> Any:
            if payload["amount"] < 0:
                raise InvocationFailed("less than nothing", "too_little")
            return {"total": payload["amount"] * 2}

        @self.seer.register_function("seer::see")
        def see(event: Any, metadata: Any) -> None:
            self.seen.append(event)
            self.beside.append(metadata)

        await settled(self.owner)
        await settled(self.seer)

    async def until_seen(self, count: int) -> list[Any]:
        """Wait until `count` events were seen, and return them."""
        await until(lambda: len(self.seen) >= count, f"only {self.seen} was seen")
        return self.seen

    async def at_rest(self) -> None:
        """Wait until no call and no observer runs any more."""
        workers = self.hub.workers
        await until(lambda: workers.calls.running + workers.observers.running == 0, "something still runs")


@asynccontextmanager
async def party(**options: Any) -> AsyncIterator[Party]:
    """A hub with both."""
    async with owner_and_seer(**options) as (hub, owner, seer):
        together = Party(hub, owner, seer)
        await together.begin()
        yield together


@asynchronous
async def test_a_function_observes_the_calls_of_another() -> None:
    async with party() as p:
        handle = p.seer.observe(
            {"function_id": "shop::double", "on": "complete", "filters": {"input.amount": {"$ne": 0}}},
            "seer::see",
            {"id": "o-1", "metadata": {"tenant": "t"}, "max_in_flight": 1},
        )
        assert handle.id == "o-1"
        await handle.ready()
        assert handle.state == "active"
        for amount in (0, 1):
            await p.owner.trigger("shop::double", {"amount": amount})
        assert (await failure(p.owner.trigger("shop::double", {"amount": -1}))).code == "too_little"
        first, second = await p.until_seen(2)
        assert (first["input"], first["output"], first["status"]) == ({"amount": 1}, {"total": 2}, "success")
        assert (second["input"], second["status"]) == ({"amount": -1}, "error")
        assert first["caller"]["worker_name"] == "owner"
        assert p.beside == [{"tenant": "t"}] * 2


@asynchronous
async def test_an_observer_reports_its_state_and_ends_when_it_is_disposed() -> None:
    async with party() as p:
        states: list[Any] = []
        handle = p.seer.observe({"function_id": "later::called"}, {"function_id": "seer::see"})
        end = handle.on_state_change(lambda state, reason: states.append((state, reason and reason["code"])))
        await settled(p.seer)
        assert handle.state == "pending"
        p.owner.register_function("later::called", lambda payload: payload)
        await handle.ready()
        p.owner.unregister_function("later::called")
        await until(lambda: handle.state == "suspended")
        assert handle.reason is not None
        assert handle.reason["code"] == "OWNER_MISSING"
        end()
        handle.dispose()
        assert (await failure(handle.ready())).code == "UNOBSERVED"
        await settled(p.seer)
        assert len(p.hub.workers.observers) == 0
        assert ("active", None) in states
        assert states[-1] == ("suspended", "OWNER_MISSING")


@asynchronous
async def test_an_observer_ends_by_itself_when_it_fired_often_enough() -> None:
    async with party() as p:
        handle = p.seer.observe({"function_id": "shop::double", "deliver": "input"}, "seer::see", {"max_fires": 1})
        await handle.ready()
        for amount in (1, 2):
            await p.owner.trigger("shop::double", {"amount": amount})
        await until(lambda: handle.state == "disposed")
        await p.at_rest()
        assert p.seen == [{"amount": 1}]
        assert (await failure(handle.ready())).code == "MAX_FIRES"


@asynchronous
async def test_an_observer_that_the_hub_refuses_has_the_error_code() -> None:
    async with party() as p:
        handle = p.seer.observe({"function_id": "shop::double", "filters": {"input.amount": 5}}, "seer::see")
        assert (await failure(handle.ready())).code == "INVALID_FILTER"
        assert handle.state == "error"


@pytest.mark.parametrize(
    ("source", "target", "options"),
    [
        ({}, "seer::see", {}),
        ({"function_id": "a::b", "filter": {}}, "seer::see", {}),
        ({"function_id": 5}, "seer::see", {}),
        ({"function_id": "a::b"}, {}, {}),
        ({"function_id": "a::b"}, {"id": "seer::see"}, {}),
        ({"function_id": "a::b"}, "seer::see", {"often": 1}),
        ({"function_id": "a::b"}, "seer::see", {"max_fires": "1"}),
        ({"function_id": "a::b"}, "seer::see", {"id": "taken"}),
    ],
)
@asynchronous
async def test_an_invalid_observer_is_refused_at_once(source: Any, target: Any, options: Any) -> None:
    async with party() as p:
        p.seer.observe({"function_id": "a::b"}, "seer::see", {"id": "taken"})
        with pytest.raises(DefinitionError):
            p.seer.observe(source, target, options)


@asynchronous
async def test_an_observer_is_there_again_after_a_reconnection() -> None:
    async with party() as p:
        handle = p.seer.observe({"function_id": "shop::double", "deliver": "input"}, "seer::see")
        await handle.ready()
        (seer,) = [one for one in p.hub.workers.connected if one.name == "seer"]
        seer.socket.close()
        await until(lambda: p.hub.workers.find(seer.id) is None)
        await until(lambda: [one.state for one in p.hub.workers.observers] == ["active"], "it did not come back")
        await p.owner.trigger("shop::double", {"amount": 1})
        assert await p.until_seen(1) == [{"amount": 1}]


@asynchronous
async def test_workers_in_a_namespace_observe_its_functions() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub, namespace="blue") as worker:
        seen: list[Any] = []
        worker.register_function("a::b", lambda payload: payload)
        worker.register_function("a::see", seen.append)
        await worker.observe({"function_id": "a::b", "deliver": "input"}, "a::see").ready()
        await worker.trigger("a::b", 1)
        await until(lambda: seen == [1])


@asynchronous
async def test_a_loop_of_observers_is_bounded() -> None:
    async with party() as p:
        count: list[int] = []

        async def again(_payload: Any) -> None:
            count.append(1)
            await p.seer.trigger("seer::start", {})

        p.seer.register_function("seer::start", lambda payload: None)
        p.seer.register_function("seer::again", again)
        await p.seer.observe({"function_id": "seer::start"}, "seer::again").ready()
        await p.seer.trigger("seer::start", {})
        await until(lambda: len(count) == 8)
        await p.at_rest()
        assert len(count) == 8


@asynchronous
async def test_a_call_made_by_a_handler_names_its_function_and_its_caller() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub, "middle") as middle, wired(hub) as end, wired(hub) as start:
        await end.send("registerfunction", id="end::of")
        await end.introduce("end", features=["observe.v1"])
        middle.register_function("middle::of", lambda payload: middle.trigger("end::of", payload).result(60))
        await settled(middle)
        await start.introduce("start", features=["observe.v1"])
        asked = await start.ask("middle::of", 1)
        call = await end.serve("end::of", 2)
        assert call["caller"]["worker_name"] == "middle"
        assert call["caller"]["function_id"] == "middle::of"
        assert call["caller"]["parent"]["worker_name"] == "start"
        await start.next("invocationresult", invocation_id=asked)


@asynchronous
async def test_a_hub_without_observers_refuses_them_as_unsupported() -> None:
    async with party(workers={"port": 0, "observe": False}) as p:
        handle = p.seer.observe({"function_id": "shop::double"}, "seer::see")
        assert (await failure(handle.ready())).code == "UNSUPPORTED"
        assert await p.seer.trigger("shop::double", {"amount": 2}) == {"total": 4}


@asynchronous
async def test_an_engine_without_observers_gets_no_messages_about_them() -> None:
    async with scripted() as engine, register_worker(engine.url, reconnecting=AT_ONCE) as worker:
        visit = await engine.visits.get()
        await visit.greeted()
        handle = worker.observe({"function_id": "a::b"}, "c::d")
        assert (await failure(handle.ready())).code == "UNSUPPORTED"
        worker.trigger("e::f")
        assert (await visit.next())["function_id"] == "e::f"


@asynchronous
async def test_an_observer_ends_with_its_worker() -> None:
    async with scripted() as engine:
        worker = register_worker(engine.url)
        handle = worker.observe({"function_id": "a::b"}, "c::d")
        ready = handle.ready()
        await worker.shutdown()
        assert (await failure(ready)).code in ("SHUTDOWN", "UNSUPPORTED")
        assert handle.state == "disposed"


def test_a_program_without_a_loop_observes_too() -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub):
            await asyncio.to_thread(plainly, address(hub))

    def plainly(url: str) -> None:
        seen = threading.Event()
        with threaded(url) as worker:
            worker.register_function("a::b", lambda payload: payload)
            worker.register_function("a::see", lambda event: seen.set())
            handle = worker.observe({"function_id": "a::b", "deliver": "input"}, "a::see")
            handle.ready().result(60)
            worker.trigger("a::b", 1).result(60)
            assert seen.wait(60)
            handle.dispose()

    scenario()
