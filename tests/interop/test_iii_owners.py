"""Functions of the Python SDK whose owners select the events of observers, and reconnections after a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import iii
import pytest

from tests.interop.iii_observing import Party, double, party, until_state
from tests.protocol.conftest import asynchronous, until
from tests.worker.sdk import sdk
from tests.workers.wire import address, at_work, hub_for_workers

ARGS = {"type": "object", "required": ["minute"], "properties": {"minute": {"type": "integer"}}}


class Clock(iii.ObserveHooks):  # type: ignore[misc]
    """Sends minutes to observers, and refuses the thirteenth."""

    delivery = "owner"
    args_format = ARGS

    def __init__(self) -> None:
        super().__init__()
        self.wound: dict[str, Any] = {}

    async def on_observer_added(self, observer: Any) -> None:
        if observer.args["minute"] == 13:
            raise iii.ObserveRejection("UNLUCKY", "not the thirteenth")
        self.wound[observer.id] = observer

    async def on_observer_removed(self, observer: Any) -> None:
        del self.wound[observer.id]


async def tick(_data: Any) -> None:
    """The handler of a clock."""


async def ticking(p: Party) -> Clock:
    """A clock that is offered."""
    clock = Clock()
    await p.owner.offer("clock::tick", tick, observe=clock)
    return clock


def minute(number: int, **more: Any) -> dict[str, Any]:
    """The source for the events of a minute."""
    return {"function_id": "clock::tick", "args": {"minute": number}, **more}


@asynchronous
async def test_an_owner_is_notified_of_observers_and_sends_them_events() -> None:
    async with party() as p:
        clock = await ticking(p)
        handle = await p.observe(minute(5, filters={"input.second": {"$lt": 30}}), id="o-5", metadata={"a": 1})
        assert clock.wound["o-5"].args == {"minute": 5}
        assert clock.wound["o-5"].target == "seer::see"
        assert clock.wound["o-5"].emit({"second": 7}) is True
        assert clock.wound["o-5"].emit({"second": 40}) is False
        [seen] = await p.until_seen(1)
        assert seen["input"] == {"second": 7}
        assert seen["caller"]["worker_name"] == "owner"
        assert p.beside[0][0] == {"a": 1}
        await p.owner.trigger("clock::tick")
        await p.wait_until_idle()
        assert len(p.seen) == 1  # a call of the function is not an event
        handle.dispose()
        await until(lambda: not clock.wound, "the clock was not told")


@asynchronous
async def test_an_owner_calls_an_observer_and_gets_its_answer() -> None:
    async with party() as p:
        clock = await ticking(p)
        handle = await p.observe(minute(5, filters={"input.second": {"$lt": 30}}), id="o-5", max_fires=2)
        observer = clock.wound["o-5"]
        assert await observer.call_async({"second": 7}) == "seen"
        assert p.seen == [{"second": 7}]
        assert p.beside[0][1].activation["observer_id"] == "o-5"
        assert p.beside[0][1].observe_depth == 1
        with pytest.raises(iii.InvocationError) as caught:
            await observer.call_async({"second": 31})
        assert caught.value.code == "FILTERS_NOT_MATCHED"
        assert await observer.call_async({"second": 8}) == "seen"
        assert (await until_state(handle, "disposed"))["code"] == "MAX_FIRES"


@asynchronous
async def test_an_owner_sends_an_event_to_several_observers_with_their_captures() -> None:
    async with party() as p:
        clock = await ticking(p)
        await p.observe(minute(1, deliver="input", capture=[]), id="bare")
        await p.observe(minute(1, capture=["caller"]), id="wrapped")
        event = {"second": 1}
        for observer in clock.wound.values():
            assert observer.emit(event)
        seen = await p.until_seen(2)
        assert event in seen
        [wrapped] = [one for one in seen if one != event]
        assert wrapped["observer_id"] == "wrapped"
        assert "input" not in wrapped
        assert "caller" in wrapped


@asynchronous
async def test_an_owner_refuses_an_observer_at_once_or_later() -> None:
    async with party() as p:
        clock = await ticking(p)
        assert await p.refusal(minute(13)) == "UNLUCKY"
        assert await p.refusal({"function_id": "clock::tick", "args": {"minute": "five"}}) == "INVALID_ARGS"
        assert await p.refusal("clock::tick") == "INVALID_ARGS"
        handle = await p.observe(minute(5), id="o-5")
        observer = clock.wound["o-5"]
        observer.reject("CLOSED", "no more minutes")
        assert await until_state(handle, "error") == {"code": "CLOSED", "message": "no more minutes"}
        await until(lambda: not clock.wound, "the clock was not told")
        assert observer.emit({"second": 1}) is False


@asynchronous
async def test_the_owner_of_a_plain_function_may_refuse_observers() -> None:
    async with party() as p:

        def refuse(observer: Any) -> None:
            if observer.target == "seer::see":
                raise ValueError("not you")

        hooks = iii.ObserveHooks(on_observer_added=refuse)
        await p.owner.offer("shop::double", double, observe=hooks)
        assert await p.refusal("shop::double") == "OBSERVE_REJECTED"
        await p.listen("seer::other")
        await p.observe("shop::double", target="seer::other")
        await p.owner.trigger("shop::double", {"amount": 1})
        await p.until_seen(1)


@asynchronous
async def test_an_owner_that_connects_later_gets_the_pending_observers() -> None:
    async with party() as p:
        handles = [p.start(minute(number), id=f"o-{number}") for number in (1, 2, 13)]
        await p.observer.trigger("engine::functions::list")
        assert [handle.state for handle in handles] == ["pending"] * 3
        clock = await ticking(p)
        assert (await until_state(handles[2], "error"))["code"] == "UNLUCKY"
        for handle in handles[:2]:
            await asyncio.wait_for(handle.ready_async(), 60)
        assert set(clock.wound) == {"o-1", "o-2"}


@asynchronous
async def test_owners_and_observers_reconnect_after_a_restart_of_the_hub() -> None:
    first = hub_for_workers()
    async with at_work(first):
        url = address(first)
        port = int(url.rsplit(":", 1)[-1])
        async with sdk(url, "owner") as owner, sdk(url, "seer") as seer:
            clock = Clock()
            p = Party(first, None, owner, seer)  # type: ignore[arg-type]
            await p.listen()
            await owner.offer("clock::tick", tick, observe=clock)
            await owner.offer("shop::double", double)
            handles = [await p.observe(minute(5), id="o-5"), await p.observe("shop::double", id="o-d")]
            await first.stop()
            states = [one.worker.get_connection_state for one in (owner, seer)]
            await until(lambda: "connected" not in [state() for state in states], "they are connected still")
            second = hub_for_workers(workers={"port": port})
            async with at_work(second):
                p.hub = second
                await p.until_active(2)
                for handle in handles:
                    await until_state(handle, "active")
                await until(
                    lambda: "o-5" in clock.wound and clock.wound["o-5"]._active, "the clock does not know of it"
                )
                assert clock.wound["o-5"].emit({"second": 1})
                await owner.trigger("shop::double", {"amount": 1})
                assert {one["observer_id"] for one in await p.until_seen(2)} == {"o-5", "o-d"}


@asynchronous
async def test_the_event_count_of_an_observer_survives_a_reconnection() -> None:
    async with party() as p:
        await p.owner.offer("shop::double", double)
        handle = await p.observe("shop::double", max_fires=2)
        await p.owner.trigger("shop::double", {"amount": 1})
        await p.until_seen(1)
        [there] = [worker for worker in p.hub.workers.connected if worker.name == "seer"]
        there.socket.close(1001, "try again")
        await until(lambda: p.hub.workers.find(there.id) is None, "it is there still")
        await p.until_active(1)
        await p.owner.trigger("shop::double", {"amount": 2})
        assert (await until_state(handle, "disposed"))["code"] == "MAX_FIRES"


@asynchronous
async def test_many_events_at_once_all_arrive_in_order() -> None:
    async with party() as p:
        clock = await ticking(p)
        await p.observe(minute(5, deliver="input"), id="o-5")
        for number in range(3000):
            assert clock.wound["o-5"].emit(number)
        assert await p.until_seen(3000) == list(range(3000))
