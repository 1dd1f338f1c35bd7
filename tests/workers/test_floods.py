"""Workers that send more than they should: the hub serves the others, and keeps nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections.abc import Iterator, Sequence

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import Wire, at_work, hub_for_workers, rows, wired
from waypost.workers.builtins import describe_functions
from waypost.workers.frames import encode
from waypost.workers.functions import Call, Function, hosted
from waypost.workers.tools import in_turns
from waypost.workers.worker import MAX_PENDING_CALLS

FLOOD = 100_000


async def drain(wire: Wire) -> None:
    """Read and discard all messages."""
    async for _ in wire.socket:
        pass


async def flood(wire: Wire, messages: Sequence[str | bytes]) -> None:
    """Send messages as fast as they are taken; the hub on the same loop has its turns."""
    for number, message in enumerate(messages):
        await wire.raw(message)
        if number % 100 == 0:
            await asyncio.sleep(0)


async def serving(caller: Wire, flooding: asyncio.Task[None]) -> int:
    """Call something again and again while a flood lasts; how often it was answered."""
    answered = 0
    while not flooding.done():
        assert await asyncio.wait_for(caller.result("engine::workers::list", {}), 60)
        answered += 1
    await flooding
    return answered


@pytest.mark.parametrize("function", ["no::such", "state::get", "deaf::one"])
def test_a_flood_of_calls_delays_no_other_worker(function: str) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), wired(hub) as other, wired(hub) as deaf:
            await other.introduce("other")
            await deaf.offer("deaf::one")
            reading = asyncio.create_task(drain(deaf))
            async with wired(hub) as wild:
                await wild.introduce("wild")
                answers = asyncio.create_task(drain(wild))
                data = {"scope": "s", "key": "k"}
                frame = {"type": "invokefunction", "function_id": function, "invocation_id": "i", "data": data}
                message = json.dumps(frame)

                number = FLOOD if function == "no::such" else FLOOD // 5
                flooding = asyncio.create_task(flood(wild, [message] * number))
                assert await serving(other, flooding) > 3
                assert rows(hub)["unanswered"] <= MAX_PENDING_CALLS
                answers.cancel()
                wild.socket.transport.abort()
            await until(lambda: rows(hub)["unanswered"] == 0)
            assert rows(hub)["running"] == 0
            reading.cancel()

    scenario()


@asynchronous
async def test_a_flood_of_void_calls_delays_no_other_worker() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as other, wired(hub) as wild, wired(hub) as target:
        await other.introduce("other")
        await wild.introduce("wild")
        await target.offer("a::b")
        reading = asyncio.create_task(drain(target))

        void = {"type": "invokefunction", "function_id": "a::b", "data": 1, "action": {"type": "void"}}
        flooding = asyncio.create_task(flood(wild, [json.dumps(void)] * (FLOOD // 5)))
        assert await serving(other, flooding) > 3
        await until(lambda: rows(hub)["running"] == 0)
        reading.cancel()


@asynchronous
async def test_a_flood_of_garbage_delays_no_other_worker() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as other, wired(hub) as wild:
        await other.introduce("other")
        await wild.introduce("wild")
        garbage: list[str | bytes] = [
            os.urandom(500),
            '{"type":"x"}',
            "{" * 300,
            '{"type":"invocationresult","invocation_id":"i"}',
        ]

        flooding = asyncio.create_task(flood(wild, garbage * (FLOOD // 20)))
        assert await serving(other, flooding) > 3
        await wild.settled()


@asynchronous
async def test_disconnected_workers_leave_nothing_behind() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client:
        empty, tools = rows(hub), len(hub.registry.tools)
        for number in range(30):
            async with wired(hub) as worker:
                await worker.send("registertriggertype", id="tick", description="")
                await worker.send("registertrigger", id=f"b{number}", trigger_type="tick", function_id="a::b")
                await worker.offer(*(f"a::f{one}" for one in range(20)), name=f"worker {number}")
                await worker.ask("a::f1")
                called = asyncio.create_task(client.call_tool("a__f2"))
                await worker.next("invokefunction", function_id="a::f2")
                if number % 2:
                    worker.socket.transport.abort()
            assert (await called).is_error
            await until(lambda: rows(hub) == empty)
        assert len(hub.registry.tools) == tools
        assert not hub.workers.triggers._budget._bytes and not hub.workers.triggers._budget._sizes
        assert not hub.workers._port._sockets


@asynchronous
async def test_the_functions_of_a_worker_are_limited_in_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hub = hub_for_workers(workers={"port": 0, "limits": {"functions": 10}})
    async with at_work(hub), wired(hub) as worker:
        await worker.offer(*(f"a::f{number}" for number in range(20)))
        assert rows(hub)["functions"] == 10
        assert sum("was not taken" in record.getMessage() for record in caplog.records) == 3
        await worker.send("registerfunction", id="a::f1", description="again")
        await worker.settled()
        again = hub.workers.functions.get("default", "a::f1")
        assert again is not None
        assert again.frame.description == "again"
        await worker.send("unregisterfunction", id="a::f2")
        await worker.send("registerfunction", id="a::f15")
        await worker.settled()
        assert rows(hub)["functions"] == 10
        assert hub.workers.functions.get("default", "a::f15") is not None


@asynchronous
async def test_the_schemas_of_a_worker_are_limited_and_listed_only_up_to_a_size(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("waypost.workers.builtins.MAX_LISTED_BYTES", 5_000)
    hub = hub_for_workers(workers={"port": 0, "limits": {"total_bytes": 10_000}})
    schema = {"type": "object", "description": "d" * 2_000}
    async with at_work(hub), wired(hub) as worker:
        await worker.offer(*(f"a::f{number}" for number in range(9)), request_format=schema)
        assert rows(hub)["functions"] == 4
        assert "of 10000 bytes already" in caplog.text
        listed = (await worker.result("engine::functions::list", {"prefix": "a::"}))["functions"]
        assert [one["request_format"] for one in listed] == [schema, schema, None, None]
        assert (await worker.result("engine::functions::info", {"function_id": "a::f3"}))["request_format"] == schema
        for number in range(4):
            await worker.send("unregisterfunction", id=f"a::f{number}")
        await worker.offer("a::f8", "a::f8", request_format=schema)
        assert rows(hub)["functions"] == 1


@asynchronous
async def test_of_a_large_introduction_only_the_name_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.introduce("large", runtime="python", notes="n" * 100_000)
        [about] = (await worker.result("engine::workers::list"))["workers"]

    assert about["name"] == "large"
    assert not {"runtime", "notes"} & about.keys()
    assert "introduction of the worker" in caplog.text


@asynchronous
async def test_calls_beyond_a_number_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.worker.MAX_PENDING_CALLS", 5)
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::b")
        asked = [await caller.ask("a::b") for _ in range(5)]
        calls = [await owner.next("invokefunction") for _ in asked]
        busy = await caller.error("a::b")
        assert "5 calls to answer already" in busy["message"]
        refused = await client.call_tool("a__b")
        assert refused.is_error
        assert "try again later" in refused.text
        for call in calls:
            await owner.answer(call, 1)
        for one in asked:
            await caller.next("invocationresult", invocation_id=one)


LARGE = "x" * 3000


@asynchronous
async def test_the_registrations_of_a_worker_are_limited_in_bytes(caplog: pytest.LogCaptureFixture) -> None:
    hub = hub_for_workers(workers={"port": 0, "limits": {"registration_bytes": 4000, "total_bytes": 10_000}})
    async with at_work(hub), wired(hub) as worker:
        await worker.offer("a::large", description=LARGE * 2)
        assert rows(hub)["functions"] == 0
        assert "workers.limits.registrationBytes is 4000" in caplog.text
        await worker.send("registertrigger", id="b", trigger_type="none", function_id="a::b", config={"x": LARGE * 2})
        refused = (await worker.next("triggerregistrationresult", id="b"))["error"]["message"]
        assert "workers.limits.registrationBytes is 4000" in refused
        await worker.send("registertriggertype", id="t", description=LARGE * 2)
        await worker.next("triggerregistrationresult", id="t")
        # Functions, triggers and trigger types count together; what is withdrawn makes room.
        await worker.send("registerfunction", id="a::one", description=LARGE)
        await worker.send("registertrigger", id="b", trigger_type="none", function_id="a::b", config={"x": LARGE})
        await worker.send("registertriggertype", id="t", description=LARGE)
        await worker.settled()
        assert (rows(hub)["functions"], rows(hub)["bindings"], rows(hub)["kinds"]) == (1, 1, 1)
        await worker.send("registerfunction", id="a::two", description=LARGE)
        await worker.settled()
        assert rows(hub)["functions"] == 1
        assert "of 10000 bytes already" in caplog.text
        for again in range(5):
            await worker.send("registerfunction", id="a::one", description=LARGE, metadata=again)
        await worker.send("unregistertriggertype", id="t")
        await worker.send("registerfunction", id="a::two", description=LARGE)
        await worker.settled()
        assert rows(hub)["functions"] == 2


@asynchronous
async def test_a_prompt_is_limited_in_bytes() -> None:
    hub = hub_for_workers(workers={"port": 0, "limits": {"registration_bytes": 4000}})
    async with at_work(hub), wired(hub) as worker:
        prompt = {"name": "p", "description": LARGE * 100, "function_id": "a::b"}
        refused = await worker.error("prompts::register", prompt)
        assert "prompt too large" in refused["message"]


def test_a_function_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_payload: object, _call: Call) -> None: ...

    function, measured = hosted("a::f", nothing), []

    def note(frame: object) -> bytes:
        measured.append(frame)
        return encode(frame)

    monkeypatch.setattr("waypost.workers.functions.encode", note)
    assert function.size == function.size == len(encode(function.frame))
    assert measured == [function.frame]


def test_large_functions_are_published_in_several_turns_and_small_ones_together() -> None:
    async def nothing(_payload: object, _call: Call) -> None: ...

    def parts(count: int, size: int) -> list[int]:
        functions = [hosted(f"a::f{number}", nothing, description="d" * size) for number in range(count)]
        return [len(part) for part in in_turns(functions)]

    assert parts(0, 10) == []
    assert parts(250, 10) == [100, 100, 50]
    assert parts(10, 20_000) == [3, 3, 3, 1]
    assert parts(3, 200_000) == [1, 1, 1]


@asynchronous
async def test_a_long_list_of_functions_leaves_turns_for_others() -> None:
    async def nothing(_payload: object, _call: Call) -> None: ...

    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(count_turns())
    try:
        assert len(await describe_functions(hosted(f"a::f{number}", nothing) for number in range(5_000))) == 5_000
    finally:
        other.cancel()
    assert turns >= 9


def count_functions(function_id: str) -> int:
    """How many functions with an id are in memory."""
    return sum(type(one) is Function and one.id == function_id for one in gc.get_objects())


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Only what nothing refers to any more is freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("is_caller_first", [True, False])
@asynchronous
async def test_an_interrupted_call_is_freed_without_the_garbage_collector(is_caller_first: bool) -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::b", name="owner")
        await caller.introduce("caller")
        await caller.ask("a::b", 1)
        await owner.next("invokefunction")
        for number, worker in enumerate((caller, owner) if is_caller_first else (owner, caller)):
            await worker.socket.close()
            await until(lambda left=1 - number: rows(hub)["workers"] == left)  # type: ignore[misc]
        await until(lambda: count_functions("a::b") == 0)
