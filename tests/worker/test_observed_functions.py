"""Observers of a worker's own functions: hooks, refusals, and events that the worker emits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import AT_ONCE, failure, owner_and_seer, scripted, settled, threaded, working
from tests.workers.wire import address, at_work, hub_for_workers
from waypost import Hub
from waypost.errors import DefinitionError
from waypost.worker import (
    FunctionRef,
    InvocationFailed,
    ObserveHooks,
    Observer,
    ObserveRejection,
    Worker,
    current_invocation,
    register_worker,
)


class Clock(ObserveHooks):
    """Hooks of a function whose worker emits events, and the calls of the hooks."""

    delivery = "owner"

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.seen: list[tuple[str, str]] = []
        self.there: dict[str, Observer] = {}

    async def on_observer_added(self, obs: Observer) -> None:
        """Record an observer, or refuse it for an unsupported interval."""
        if obs.args.get("every") == 0:
            raise ObserveRejection("NEVER", "every 0 is never")
        if obs.args.get("every") == "ever":
            raise ValueError("not for ever")
        self.seen.append(("added", obs.id))
        self.there[obs.id] = obs

    def on_observer_removed(self, obs: Observer) -> None:
        """Forget an observer."""
        self.seen.append(("removed", obs.id))
        assert self.there.pop(obs.id) is obs


class Bench:
    """A worker with a clock, and one that observes it."""

    def __init__(self, hub: Hub, owner: Worker, seer: Worker) -> None:
        self.hub = hub
        self.owner = owner
        self.seer = seer
        self.hooks = Clock()
        self.seen: list[Any] = []
        self.tick: FunctionRef = owner.register_function("clock::tick", lambda: None, observe=self.hooks)

    async def begin(self) -> None:
        """Have both offer their functions."""

        @self.seer.register_function("seer::see")
        def see(event: Any) -> Any:
            self.seen.append(event)
            return {"saw": event}

        await settled(self.owner)
        await settled(self.seer)

    async def observed(self, observer: str = "o", **source: Any) -> Observer:
        """Observe the clock; the observer as the clock knows it."""
        given = {"function_id": "clock::tick", "deliver": "input", **source}
        await self.seer.observe(given, "seer::see", {"id": observer}).ready()
        return self.hooks.there[observer]

    async def refusal(self, **args: Any) -> str:
        """The code that an observer with such arguments is refused with."""
        given = {"function_id": "clock::tick", "args": args}
        return (await failure(self.seer.observe(given, "seer::see").ready())).code

    async def lose(self) -> None:
        """Have the owner lose its connection, and come back."""
        (before,) = [one for one in self.hub.workers.connected if one.name == "owner"]
        before.socket.close()
        await until(lambda: self.hub.workers.find(before.id) is None)


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    """A hub with both."""
    async with owner_and_seer() as (hub, owner, seer):
        together = Bench(hub, owner, seer)
        await together.begin()
        yield together


@asynchronous
async def test_hooks_are_called_when_observers_are_added_and_removed() -> None:
    async with bench() as b:
        assert not b.tick.is_observed()
        handle = b.seer.observe(
            {"function_id": "clock::tick", "args": {"every": 5}, "filters": {"input": {"$eq": 1}}},
            "seer::see",
            {"id": "o"},
        )
        await handle.ready()
        (observer,) = b.tick.observers()
        assert observer is b.hooks.there["o"]
        assert observer.to_dict() == {
            "id": "o",
            "function_id": "clock::tick",
            "args": {"every": 5},
            "filters": {"input": {"$eq": 1}},
            "target": "seer::see",
            "capture": ["input", "output", "caller"],
            "on": "success",
        }
        assert (observer.matches({"input": 1}), observer.matches({"input": 2})) == (True, False)
        handle.dispose()
        await until(lambda: b.hooks.seen == [("added", "o"), ("removed", "o")])
        assert b.tick.observers() == []
        assert not observer.emit(1)


@asynchronous
async def test_a_worker_refuses_an_observer_with_a_code_of_its_own_or_by_any_error() -> None:
    async with bench() as b:
        assert await b.refusal(every=0) == "NEVER"
        assert await b.refusal(every="ever") == "OBSERVE_REJECTED"
        assert b.tick.observers() == []
        assert b.hooks.seen == []


@asynchronous
async def test_observers_get_the_events_that_match_their_filters() -> None:
    async with bench() as b:
        every = await b.observed("every")
        large = await b.observed("large", filters={"input.n": {"$gte": 2}}, deliver="envelope", capture=["input"])
        await b.owner.trigger("clock::tick")  # says nothing by itself
        assert [one.emit({"n": 1}) for one in (every, large)] == [True, False]
        assert [one.emit({"n": 2}) for one in (every, large)] == [True, True]
        await until(lambda: len(b.seen) == 3)
        assert [event for event in b.seen if "n" in event] == [{"n": 1}, {"n": 2}]
        (received,) = [event for event in b.seen if "n" not in event]
        assert (received["observer_id"], received["function_id"], received["input"]) == (
            "large",
            "clock::tick",
            {"n": 2},
        )


@asynchronous
async def test_an_observers_function_is_called_and_answers() -> None:
    async with bench() as b:
        observer = await b.observed(filters={"input": {"$gt": 0}})
        assert await observer.call_async(1) == {"saw": 1}
        assert await asyncio.to_thread(observer.call, 2) == {"saw": 2}
        assert (await failure(observer.call_async(0))).code == "FILTERS_NOT_MATCHED"
        b.tick.unregister()
        await until(lambda: not b.tick.is_observed())
        assert (await failure(observer.call_async(1))).code == "OBSERVER_NOT_ACTIVE"
        await until(lambda: ("removed", "o") in b.hooks.seen)


@asynchronous
async def test_the_caller_of_an_event_is_that_of_the_function_or_the_worker_itself() -> None:
    async with bench() as b:
        seen: list[Any] = []
        b.seer.register_function("seer::who", lambda event: seen.append(event["caller"]))
        given = {"function_id": "clock::set", "capture": ["caller"]}
        hooks = Clock()

        def tell() -> None:
            for observer in hooks.there.values():
                observer.emit(1)

        b.owner.register_function("clock::set", tell, observe=hooks)
        b.owner.register_function("clock::other", tell)
        await b.seer.observe(given, "seer::who").ready()
        tell()
        await until(lambda: len(seen) == 1)
        await b.seer.trigger("clock::set")
        await until(lambda: len(seen) == 2)
        await b.seer.trigger("clock::other")
        await until(lambda: len(seen) == 3)
        alone, called, other = seen
        assert (alone["worker_name"], "function_id" in alone) == ("owner", False)
        assert called["worker_name"] == "seer"
        assert (other["worker_name"], other["function_id"]) == ("owner", "clock::other")
        assert other["parent"]["worker_name"] == "seer"


@asynchronous
async def test_an_observer_can_be_refused_after_all() -> None:
    async with bench() as b:
        handle = b.seer.observe({"function_id": "clock::tick"}, "seer::see", {"id": "o"})
        await handle.ready()
        observer = b.hooks.there["o"]
        observer.reject("TOO_LATE", "The clock has stopped.")
        assert not observer.emit(1)
        await until(lambda: handle.state == "error")
        assert handle.reason == {"code": "TOO_LATE", "message": "The clock has stopped."}


@asynchronous
async def test_events_without_a_connection_are_sent_afterwards_and_no_hook_is_called_again() -> None:
    async with bench() as b:
        observer = await b.observed()
        await b.lose()
        assert observer.emit("meanwhile")
        await until(lambda: b.seen == ["meanwhile"])
        assert b.hooks.seen == [("added", "o")]
        assert b.tick.observers() == [observer]


@asynchronous
async def test_a_function_that_another_worker_offers_has_no_observers_here_until_it_is_taken_over() -> None:
    async with bench() as b, working(b.hub, "second") as second:
        hooks = Clock()
        standing_by = second.register_function("clock::tick", lambda: None, observe=hooks)
        await until(lambda: second.refused)
        await b.observed()
        assert not standing_by.is_observed()
        await b.owner.shutdown()
        await until(standing_by.is_observed)
        assert hooks.there["o"].emit("taken over")
        await until(lambda: b.seen == ["taken over"])


@asynchronous
async def test_a_hook_that_takes_too_long_refuses_and_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.worker.observers.HOOK_TIMEOUT_S", 0.05)
    async with bench() as b:
        go = asyncio.Event()
        gone: list[str] = []

        async def wait(_: Observer) -> None:
            await go.wait()

        hooks = {"on_observer_added": wait, "on_observer_removed": lambda obs: gone.append(obs.id)}
        b.owner.register_function("slow::one", lambda: None, observe=hooks)
        handle = b.seer.observe({"function_id": "slow::one"}, "seer::see", {"id": "late"})
        assert (await failure(handle.ready())).code == "OWNER_TIMEOUT"
        go.set()
        await until(lambda: gone == ["late"])


@asynchronous
async def test_a_function_with_automatic_delivery_has_hooks_but_cannot_emit() -> None:
    async with bench() as b:
        came: list[Observer] = []
        b.owner.register_function(
            "auto::one", lambda payload: payload, observe=ObserveHooks(on_observer_added=came.append)
        )
        await b.seer.observe({"function_id": "auto::one", "deliver": "input"}, "seer::see").ready()
        await b.seer.trigger("auto::one", "by itself")
        await until(lambda: b.seen == ["by itself"])
        with pytest.raises(InvocationFailed, match="not delivered by its owner") as caught:
            came[0].emit(1)
        assert caught.value.code == "NOT_OWNER_DELIVERED"


@asynchronous
async def test_the_terms_of_a_function_apply_to_its_observers() -> None:
    async with bench() as b:
        b.owner.register_function("closed::one", lambda: None, observe={"allow": False})
        schema = {"type": "object", "required": ["every"]}
        b.owner.register_function("strict::one", lambda: None, observe=Clock(args_format=schema))
        await settled(b.owner)
        for function, code in (("closed::one", "NOT_OBSERVABLE"), ("strict::one", "INVALID_ARGS")):
            handle = b.seer.observe({"function_id": function}, "seer::see")
            with pytest.raises(ObserveRejection) as caught:
                await handle.ready()
            assert caught.value.code == code


@pytest.mark.parametrize(
    "observe", [{"delivery": "sometimes"}, {"args_format": {}}, {"delivers": "owner"}, "owner", {"allow": 1, "on": 2}]
)
@asynchronous
async def test_invalid_hooks_are_refused_at_once(observe: Any) -> None:
    async with scripted() as engine, register_worker(engine.url, reconnecting=AT_ONCE) as worker:
        with pytest.raises(DefinitionError):
            worker.register_function("a::b", lambda: None, observe=observe)


@asynchronous
async def test_hooks_on_an_engine_without_observers_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted() as engine, register_worker(engine.url, reconnecting=AT_ONCE) as worker:
        visit = await engine.visits.get()
        await visit.greeted()
        worker.register_function("a::b", lambda: None, observe=Clock())
        worker.register_function("a::c", lambda: None)
        await visit.next("registerfunction")
        await visit.socket.close()
        await (await engine.visits.get()).greeted()
        await until(lambda: "the hooks of a::b are never called" in caplog.text)


@asynchronous
async def test_a_handler_knows_the_call_that_it_answers() -> None:
    async with bench() as b:
        seen: list[Any] = []
        b.owner.register_function("plain::one", lambda: seen.append(current_invocation()))
        b.owner.register_function("void::one", lambda: seen.append((current_invocation(), current_invocation())))
        b.seer.register_function("seer::through", lambda: b.seer.trigger("plain::one").result(60))
        await settled(b.owner)
        await b.seer.trigger("seer::through")
        (call,) = seen
        assert (call.function_id, call.observe_depth, call.activation) == ("plain::one", 0, None)
        assert (call.caller["worker_name"], call.caller["function_id"]) == ("seer", "seer::through")
        assert call.invocation_id
        await b.seer.trigger("void::one", action={"type": "void"})
        await until(lambda: len(seen) == 2)
        first, second = seen[1]
        assert first.invocation_id == second.invocation_id != ""
        assert current_invocation() is None


def test_a_program_without_a_loop_emits_events_too() -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub):
            await asyncio.to_thread(plainly, address(hub))

    def plainly(url: str) -> None:
        with threaded(url) as worker:
            hooks = Clock()
            tick = worker.register_function("clock::tick", lambda: "called as before", observe=hooks)
            worker.register_function("a::see", lambda event: event)
            worker.observe({"function_id": "clock::tick"}, "a::see").ready().result(60)
            (observer,) = tick.observers()
            assert observer.call("now") == "now"
            assert tick() == "called as before"

    scenario()


@asynchronous
async def test_filters_that_read_what_cannot_be_decoded_do_not_match() -> None:
    async with bench() as b:
        observer = await b.observed(filters={"metadata.tenant": {"$ne": "t"}})
        assert observer.wants({"metadata": Raw(b'{"tenant":"u"}')})
        assert not observer.wants({"metadata": Raw(b"1e999")})
