"""Workers of this package and of the `iii-sdk` on one hub call each other."""

from __future__ import annotations

import asyncio
import threading
import warnings
from pathlib import Path
from typing import Any, ClassVar

import iii
import pytest
from iii.helpers import create_channel_async
from iii.triggers import TriggerHandler

import waypost.worker
from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import failure, settled, working
from tests.worker.sdk import sdk
from tests.workers.wire import address, at_work, hub_for_workers
from waypost.worker import InvocationFailed


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a temporary home directory, because the SDK writes files to it."""
    monkeypatch.setenv("HOME", str(tmp_path))


@asynchronous
async def test_functions_and_their_failures_reach_the_other_side() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as ours, sdk(address(hub)) as theirs:

        async def double(data: Any) -> Any:
            return {"n": data["n"] * 2}

        async def fail(data: Any) -> Any:
            raise ValueError("not today")

        def refuse(payload: Any) -> Any:
            raise InvocationFailed("no such order", "order_unknown")

        ours.register_function("ours::greet", lambda payload, metadata: [payload, metadata])
        ours.register_function("ours::refuse", refuse)
        await settled(ours)
        await theirs.offer("theirs::double", double)
        await theirs.offer("theirs::fail", fail)

        assert await ours.trigger("theirs::double", {"n": 21}) == {"n": 42}
        error = await failure(ours.trigger("theirs::fail"))
        assert (error.code, error.message) == ("invocation_failed", "not today")
        assert await theirs.trigger("ours::greet", {"ä": None}, metadata={"m": 1}) == [{"ä": None}, {"m": 1}]
        refused = await theirs.refused("ours::refuse")
        assert refused.code == "order_unknown"
        assert "no such order" in str(refused)


@asynchronous
async def test_a_trigger_of_ours_calls_a_function_of_theirs() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as ours, sdk(address(hub)) as theirs:
        kind = ours.register_trigger_type("ours::tick", "Ticks.")
        await theirs.hear("ours::tick")
        await until(lambda: kind.bound)

        kind.fire({"n": 1})

        await theirs.until_heard({"n": 1})


class Late(dict[str, Any]):
    """A dictionary that stores values only once it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()

    def __setitem__(self, key: str, value: Any) -> None:
        assert self.may.wait(60)
        super().__setitem__(key, value)


@asynchronous
async def test_a_trigger_of_theirs_is_bound_although_they_offer_it_before_they_can_take_bindings() -> None:
    hub = hub_for_workers()
    bound: list[str] = []

    class Ticks(TriggerHandler[Any]):  # type: ignore[misc]  # the SDK has no types
        async def register_trigger(self, config: Any) -> None:
            bound.append(config.function_id)

        async def unregister_trigger(self, config: Any) -> None: ...

    async with at_work(hub), working(hub) as ours, sdk(address(hub)) as theirs:
        await theirs.trigger("engine::functions::list")
        known = theirs.worker._trigger_types = Late()
        ours.register_trigger("theirs::tick", "ours::tick")
        await settled(ours)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind = {"id": "theirs::tick", "description": "Ticks."}
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(theirs.worker.register_trigger_type, kind, Ticks()))
                await until(lambda: any(one.id == "theirs::tick" for one in hub.workers.triggers.types))
                known.may.set()
        await until(lambda: bound == ["ours::tick"])


@asynchronous
async def test_a_channel_goes_from_ours_to_theirs_and_back() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as ours, sdk(address(hub)) as theirs:
        texts: list[str] = []

        async def upper(data: Any) -> int:
            data["from"].on_message(texts.append)
            got = await data["from"].read_all()
            await data["to"].send_message_async("done")
            await data["to"].write(got.upper())
            await data["to"].close_async()
            return len(got)

        await theirs.offer("theirs::upper", upper)
        there, back = await ours.create_channel(), await ours.create_channel()
        received: list[str] = []
        back.reader.on_message(received.append)
        answer = ours.trigger("theirs::upper", {"from": there.reader_ref, "to": back.writer_ref})
        await there.writer.send_message("go")
        await there.writer.write(b"abc" * 100_000)
        await there.writer.close()
        assert await back.reader.read_all() == b"ABC" * 100_000
        assert (texts, received) == (["go"], ["done"])
        assert await answer == 300_000


@asynchronous
async def test_a_channel_of_theirs_is_read_by_ours() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as ours, sdk(address(hub)) as theirs:

        @ours.register_function("ours::count")
        async def count(payload: dict[str, Any]) -> int:
            return len(await payload["reader"].read_all())

        await settled(ours)
        channel = await create_channel_async(theirs.worker, 64)
        answer = asyncio.ensure_future(
            theirs.trigger("ours::count", {"reader": channel.reader_ref.model_dump()}),
        )
        await channel.writer.write(b"x" * 200_000)
        await channel.writer.close_async()
        assert await answer == 200_000


@asynchronous
async def test_ours_observes_theirs_and_theirs_ours() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as ours, sdk(address(hub)) as theirs:
        seen: list[Any] = []

        async def echo(data: Any) -> Any:
            return data

        ours.register_function("ours::see", lambda event: seen.append(("ours", event["function_id"], event["input"])))
        ours.register_function("ours::echo", lambda payload: payload)
        await settled(ours)
        await theirs.offer("theirs::echo", echo)
        await theirs.offer("theirs::see", keep(seen))
        await ours.observe({"function_id": "theirs::echo"}, "ours::see").ready()
        await theirs.worker.observe({"function_id": "ours::echo"}, "theirs::see").ready_async()
        await theirs.trigger("theirs::echo", 1)
        await theirs.trigger("ours::echo", 2)
        await until(lambda: len(seen) == 2, f"only {seen} was seen")
        assert sorted(seen) == [("ours", "theirs::echo", 1), ("theirs", "ours::echo", 2)]


def clock(sdk: Any) -> Any:
    """A program with hooks, written against one of the two packages; it emits the events that observers asked for."""

    class Hooks(sdk.ObserveHooks):  # type: ignore[misc]
        delivery = "owner"
        args_format: ClassVar = {"type": "object", "required": ["every"]}

        def on_observer_added(self, obs: Any) -> None:
            if obs.args["every"] == 0:
                raise sdk.ObserveRejection("NEVER", "every 0 is never")

    return Hooks()


def tell(ref: Any, sdk: Any) -> Any:
    """A handler that emits its payload to observers and returns them and the caller."""

    def tick(payload: Any) -> Any:
        received = [[one.id, one.args, one.target] for one in ref[0].observers() if one.emit(payload)]
        return {"told": received, "by": sdk.current_invocation().caller["worker_name"]}

    return tick


@pytest.mark.parametrize("package", [waypost.worker, iii], ids=lambda one: one.__name__)
@asynchronous
async def test_a_program_with_hooks_is_the_same_on_both(package: Any) -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as ours, sdk(address(hub)) as theirs, working(hub, "seer") as seer:
        seen: list[Any] = []
        seer.register_function("seer::see", seen.append)
        await settled(seer)
        worker = ours if package is waypost.worker else theirs.worker
        ref: list[Any] = []
        ref.append(worker.register_function("clock::tick", tell(ref, package), observe=clock(package)))
        await until(lambda: any(one.id == "clock::tick" for one in hub.workers.functions))

        source = {"function_id": "clock::tick", "filters": {"input.n": {"$lt": 3}}, "deliver": "input"}
        refused = await failure(seer.observe({**source, "args": {"every": 0}}, "seer::see").ready())
        assert (refused.code, refused.message) == ("NEVER", "every 0 is never")
        assert (await failure(seer.observe(source, "seer::see").ready())).code == "INVALID_ARGS"
        handle = seer.observe({**source, "args": {"every": 5}}, "seer::see", {"id": "o"})
        await handle.ready()
        received = [await seer.trigger("clock::tick", {"n": n}) for n in (1, 3)]
        assert received == [{"told": [["o", {"every": 5}, "seer::see"]], "by": "seer"}, {"told": [], "by": "seer"}]
        await until(lambda: seen == [{"n": 1}])
        handle.dispose()
        await until(lambda: not ref[0].is_observed())
        ref[0].unregister()
        await until(lambda: not any(one.id == "clock::tick" for one in hub.workers.functions))


def keep(seen: list[Any]) -> Any:
    """A function of theirs that records its payloads."""

    async def see(event: Any) -> None:
        seen.append(("theirs", event["function_id"], event["input"]))

    return see
