"""A function on the Python SDK replaces a trigger type, transparently for existing bindings."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import iii
import pytest

from tests.interop.iii_observing import Party, party
from tests.interop.iii_peers import peer
from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import address, hub_for_workers

ARGS = {"type": "object", "required": ["every"], "properties": {"every": {"type": "integer"}}}


class Clock(iii.ObserveHooks):  # type: ignore[misc]
    """Sends the time to its observers, in place of the trigger `clock`."""

    delivery = "owner"
    args_format = ARGS
    legacy_trigger_type = "clock"

    def __init__(self) -> None:
        super().__init__()
        self.observers: dict[str, Any] = {}
        self.gone: list[str] = []
        self.function: Any = None

    async def on_observer_added(self, observer: Any) -> None:
        if observer.legacy["config"].get("every") == 0:
            raise iii.ObserveRejection("TOO_OFTEN", "a clock does not tick all the time")
        self.observers[observer.target] = observer

    async def on_observer_removed(self, observer: Any) -> None:
        del self.observers[observer.target]
        self.gone.append(observer.target)


async def clock_of(p: Party) -> Clock:
    """Register a clock of the owner."""

    async def tick(data: Any) -> None:
        return None

    clock = Clock()
    clock.function = p.owner.worker.register_function("clock::tick", tick, observe=clock)
    await p.owner.trigger("engine::functions::list")
    return clock


def bound(p: Party, target: str = "seer::see", **more: Any) -> Any:
    """Bind a function to the trigger, in the old way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # triggers are deprecated
        return p.observer.worker.register_trigger({"type": "clock", "function_id": target, **more})


@pytest.mark.parametrize("first", ["the function", "the binding"])
@asynchronous
async def test_a_binding_to_the_replaced_trigger_gets_its_events(first: str) -> None:
    async with party() as p:
        if first == "the binding":
            trigger = bound(p, config={"every": 5}, metadata={"tenant": "t"})
            await p.observer.trigger("engine::functions::list")
            clock = await clock_of(p)
        else:
            clock = await clock_of(p)
            trigger = bound(p, config={"every": 5}, metadata={"tenant": "t"})
        await p.until_active(1)
        observer = clock.observers["seer::see"]
        assert observer.args == {"every": 5}
        assert observer.legacy == {"trigger_type": "clock", "config": {"every": 5}}

        assert observer.emit({"time": "noon"})

        assert await p.until_seen(1) == [{"time": "noon"}]
        assert p.beside[0][0] == {"tenant": "t"}
        assert await observer.call_async({"time": "one"}) == "seen"
        trigger.unregister()
        await until(lambda: clock.gone == ["seer::see"], "the owner never heard that it is observed no more")
        assert len(p.hub.workers.observers) == 0


@asynchronous
async def test_an_unknown_config_of_a_binding_is_passed_to_the_owner() -> None:
    async with party() as p:
        clock = await clock_of(p)
        bound(p, config={"interval": 7})
        await p.until_active(1)
        observer = clock.observers["seer::see"]
        assert (observer.args, observer.legacy["config"]) == ({}, {"interval": 7})


@asynchronous
async def test_a_binding_is_pending_while_the_function_is_unregistered() -> None:
    async with party() as p:
        clock = await clock_of(p)
        bound(p, config={"every": 5})
        await p.until_active(1)
        answer = await p.owner.trigger("engine::triggers::info", {"id": "clock"})
        assert (answer["worker_name"], answer["trigger_request_format"]) == ("owner", ARGS)
        clock.function.unregister()
        await until(lambda: len(p.hub.workers.observers) == 0)
        [binding] = (await p.owner.trigger("engine::registered-triggers::list"))["registered_triggers"]
        assert binding["state"] == "pending"
        again = await clock_of(p)
        await p.until_active(1)
        assert "seer::see" in again.observers


@pytest.mark.timeout(300)
def test_a_worker_without_observer_support_can_be_bound(tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        async with party() as p, peer("node", address(p.hub), tmp_path) as node:
            clock = await clock_of(p)
            await node.offer("node::tick")
            await node.call_until_found("node::tick", "first")
            await node.wait_for_event("called", data="first")
            await node.bind("b", "clock", "node::tick", {"every": 1})
            await p.until_active(1)
            clock.observers["node::tick"].emit({"time": "noon"})
            await node.wait_for_event("called", function="node::tick", data={"time": "noon"})
            assert await node.logged_errors() == []
            await node.send_command("unbind", id="b")
            await until(lambda: clock.gone == ["node::tick"])

    scenario()


@pytest.mark.timeout(300)
def test_a_binding_that_the_owner_refuses_is_logged_by_its_worker(tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        async with party() as p, peer("python", address(p.hub), tmp_path) as worker:
            await clock_of(p)
            await worker.bind("b", "clock", "seer::see", {"every": 0})
            logs = await worker.send_command("wait_for_log", text="a clock does not tick all the time")
            assert any("a clock does not tick all the time" in line for line in logs), logs

    scenario()


@asynchronous
async def test_without_the_setting_bindings_are_pending() -> None:
    async with party(lambda: hub_for_workers(workers={"port": 0, "observe": False})) as p:
        await clock_of(p)
        bound(p, config={"every": 5})
        [binding] = (await p.observer.trigger("engine::registered-triggers::list"))["registered_triggers"]
        assert binding["state"] == "pending"
