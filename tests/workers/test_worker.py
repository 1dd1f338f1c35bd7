"""The first messages of a worker are held until it says its name."""

from __future__ import annotations

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import at_work, hub_for_workers, rows, wired


@asynchronous
async def test_functions_of_a_worker_wait_for_its_introduction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.worker.INTRODUCTION_TIMEOUT_S", 60)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker, wired(hub) as other:
        await worker.send("registerfunction", id="a::b")
        asked = await worker.ask("a::b")
        await other.introduce("other")
        assert rows(hub)["functions"] == 0
        await worker.send(
            "invokefunction", function_id="engine::workers::register", data={"name": "named"}, action={"type": "void"}
        )
        await worker.serve("a::b", "then")
        assert (await worker.next("invocationresult", invocation_id=asked))["result"] == "then"
        tool = hub.registry.find_tool("a__b")
        assert tool is not None
        assert tool.owner == "worker:named"


@asynchronous
async def test_a_worker_that_never_introduces_itself_is_served() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.send("registerfunction", id="a::b")
        asked = await worker.ask("a::b")
        await worker.serve("a::b", "nameless")
        assert (await worker.next("invocationresult", invocation_id=asked))["result"] == "nameless"


@asynchronous
async def test_a_function_withdrawn_before_the_introduction_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.worker.INTRODUCTION_TIMEOUT_S", 60)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.send("registerfunction", id="a::b")
        await worker.send("unregisterfunction", id="a::b")
        await worker.send("registerfunction", id="a::c")
        await worker.introduce()
        assert list(hub.workers.connected[0].functions) == ["a::c"]


@asynchronous
async def test_held_messages_are_limited_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.worker.INTRODUCTION_TIMEOUT_S", 60)
    monkeypatch.setattr("waypost.workers.worker.MAX_HELD_MESSAGES", 10)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        for number in range(12):
            await worker.send("registerfunction", id=f"a::f{number}")
        await until(lambda: rows(hub)["functions"] == 12)


@asynchronous
async def test_a_worker_that_leaves_before_its_introduction_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.worker.INTRODUCTION_TIMEOUT_S", 0.05)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as other:
        async with wired(hub) as worker:
            await worker.send("registerfunction", id="a::b")
            worker.socket.transport.abort()
        await other.introduce("other")
        await other.settled()
        await until(lambda: rows(hub)["workers"] == 1)
        assert rows(hub)["functions"] == 0


@asynchronous
async def test_old_and_unknown_messages_have_no_effect() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.introduce()
        await worker.send("registerservice", id="s", name="n")
        await worker.send("localinvocationstats", window_ms=1, functions=[], dropped_reports=[])
        await worker.send("pong")
        await worker.settled()
        assert worker.seen == []


@asynchronous
async def test_functions_that_are_offered_one_after_the_other_are_one_change() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.introduce()
        changes: list[object] = []
        hub.registry.subscribe(changes.append)
        for number in range(50):
            await worker.send("registerfunction", id=f"a::f{number}")
        await until(lambda: rows(hub)["functions"] == 50)
        assert len(changes) == 1


@asynchronous
async def test_a_function_can_be_called_right_after_its_registration() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.introduce()
        for number in range(20):
            await worker.send("registerfunction", id=f"a::f{number}")
            asked = await worker.ask(f"a::f{number}")
            await worker.serve(f"a::f{number}", number)
            assert (await worker.next("invocationresult", invocation_id=asked))["result"] == number
            await worker.send("registerfunction", id=f"b::f{number}")
            await worker.send("unregisterfunction", id=f"b::f{number}")
        await worker.settled()
        assert rows(hub)["functions"] == 20
