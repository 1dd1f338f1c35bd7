"""A worker that sends a lot at once, or does not read, delays no other connection."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from websockets.asyncio.client import connect as dial
from websockets.frames import Frame, Opcode

from tests.protocol.conftest import DEADLINE, asynchronous, until
from tests.transports.http.conftest import browsing
from tests.workers.test_channels import end, made, rest
from tests.workers.wire import Wire, address, at_work, hub_for_workers, rows, wired
from waypost import Hub
from waypost.capabilities.schemas.validators import Validator
from waypost.workers.calls import CallRunner
from waypost.workers.functions import Function
from waypost.workers.tools import PublishedFunctions, find_schema_problem

FLOOD = 5_000
MAX_CALLS_PER_TURN = 200
"""A little more than the calls in 16 KiB, the most that is handled in one turn."""
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


def on_loop(loop: Callable[[], asyncio.AbstractEventLoop], scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run something on a kind of loop, under a deadline."""

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await scenario()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(bounded())


def frames(*messages: dict[str, Any]) -> bytes:
    """Messages as they go over a socket."""
    return b"".join(Frame(Opcode.TEXT, json.dumps(one).encode()).serialize(mask=True) for one in messages)


def call(number: int, function: str = "no::such") -> dict[str, Any]:
    """A call."""
    return {"type": "invokefunction", "function_id": function, "invocation_id": str(number), "data": {}}


@asynccontextmanager
async def raw(hub: Hub) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to the port for workers, bytes for bytes."""
    host, port = address(hub).removeprefix("ws://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions called by workers, recorded as the hub takes the calls."""
    seen: list[str] = []
    start = CallRunner.start

    def record(runner: CallRunner, worker: Any, frame: Any) -> None:
        seen.append(frame.function_id)
        start(runner, worker, frame)

    monkeypatch.setattr(CallRunner, "start", record)
    return seen


async def count_per_turn(counted: list[str], turns: list[int]) -> None:
    """Note how much a list grows in each turn of the event loop; runs until it is cancelled."""
    before = len(counted)
    while True:
        await asyncio.sleep(0)
        turns.append(len(counted) - before)
        before = len(counted)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("is_patient", [True, False], ids=["after the handshake", "with the handshake"])
def test_a_flood_of_calls_shares_the_event_loop_with_other_clients(
    loop: Callable[[], asyncio.AbstractEventLoop], is_patient: bool, calls: list[str]
) -> None:
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), browsing(hub) as web, wired(hub) as other, raw(hub) as (reader, writer):
            await other.introduce("other")
            answers = asyncio.create_task(until_answered(reader, FLOOD))
            flood = frames(*map(call, range(FLOOD)))
            if is_patient:
                writer.write(HANDSHAKE)
                await until(lambda: rows(hub)["workers"] == 2)
                writer.write(flood)
            else:
                writer.write(HANDSHAKE + flood)
            turns: list[int] = []
            counting = asyncio.create_task(count_per_turn(calls, turns))
            waited: list[int] = []
            # Counted in calls and turns, not in seconds: how fast the machine is must not matter. `/health` would
            # wait for a thread of the store, which a busy machine may run as late as it likes.
            while not answers.done():
                before = len(calls)
                assert await other.result("engine::workers::list", {})
                assert (await web.open("GET", path="/no-such-page").done()).status == 404
                waited.append(len(calls) - before)
            await answers
            counting.cancel()
            assert max(turns) <= MAX_CALLS_PER_TURN
            assert max(waited) < FLOOD // 2, "calls of one worker that were taken while others waited for two answers"
            assert len(waited) > 2

    on_loop(loop, scenario)


async def until_answered(reader: asyncio.StreamReader, number: int) -> None:
    """Read until `number` calls are answered."""
    mark, rest, seen = b'"invocationresult"', b"", 0
    while seen < number:
        data = await reader.read(1 << 20)
        assert data, "the connection ended"
        data = rest + data
        seen += data.count(mark)
        rest = data[-len(mark) + 1 :]


def with_a_long_answer() -> tuple[Hub, list[int]]:
    """A hub with a tool that answers much, and how often it ran."""
    hub, runs = hub_for_workers(), [0]

    @hub.tool
    async def long() -> str:
        """A long text."""
        runs[0] += 1
        return "x" * 400_000

    return hub, runs


async def at_rest(runs: list[int]) -> int:
    """Wait until no call runs, and return how many there were."""
    before = -1
    while before != runs[0]:
        before = runs[0]
        for _ in range(200):
            await asyncio.sleep(0)
    return before


@pytest.mark.parametrize("loop", LOOPS)
def test_a_worker_that_does_not_read_its_answers_is_not_read_from_until_it_does(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> None:
        hub, runs = with_a_long_answer()
        async with at_work(hub), wired(hub) as other, raw(hub) as (reader, writer):
            await other.introduce("other")
            writer.write(HANDSHAKE)
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport that reads
            writer.write(frames(*(call(number, "long") for number in range(500))))
            await until(lambda: runs[0] > 0)
            assert await at_rest(runs) < 250
            assert await other.result("engine::workers::list", {})
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            await until_answered(reader, 500)
            assert runs == [500]

    on_loop(loop, scenario)


@asynchronous
async def test_a_worker_that_does_not_read_for_long_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.sockets._CHECK_INTERVAL_S", 0.02)
    monkeypatch.setattr("waypost.workers.sockets._SILENCE_TIMEOUT_S", 0.5)
    hub, _ = with_a_long_answer()
    async with at_work(hub), raw(hub) as (reader, writer):
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(frames(*(call(number, "long") for number in range(1000))))
        await until(lambda: rows(hub)["workers"] == 1)
        await until(lambda: rows(hub)["workers"] == 0)


async def fill(hub: Hub, caller: Wire, function: str) -> None:
    """Send a worker that does not read more than fits."""
    while not any(worker.socket.is_full for worker in hub.workers.connected):
        await caller.send("invokefunction", function_id=function, data="x" * 500_000, action={"type": "void"})
        await caller.settled()


@asynchronous
async def test_results_of_a_worker_are_read_while_it_has_unread_messages() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as caller, dial(address(hub), max_size=None) as socket:
        await caller.offer("c::heard", name="caller")
        busy = Wire(socket)
        await busy.offer("a::b", name="busy")
        asked = await caller.ask("a::b", 1)
        taken = await busy.next("invokefunction")
        socket.transport.pause_reading()
        await fill(hub, caller, "a::b")
        await busy.send("invokefunction", function_id="c::heard", data=1, action={"type": "void"})
        await busy.answer(taken, "done")
        assert (await caller.next("invocationresult", invocation_id=asked))["result"] == "done"
        assert (await caller.next("invokefunction"))["function_id"] == "c::heard"
        socket.transport.abort()


@pytest.mark.parametrize("loop", LOOPS)
def test_messages_written_to_a_channel_at_once_are_read_in_order(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), wired(hub) as worker:
            ends = await made(worker, buffer_size=2)
            async with end(hub, ends["reader"]) as reader, end(hub, ends["writer"]) as writer:
                reading = asyncio.create_task(rest(reader))
                written = [str(number) for number in range(20_000)]
                data = b"".join(Frame(Opcode.TEXT, one.encode()).serialize(mask=True) for one in written)
                writer.transport.write(data)
                await writer.close()
                assert await reading == written

    on_loop(loop, scenario)


@asynchronous
async def test_calls_before_the_name_are_not_held_without_end(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.workers.worker.INTRODUCTION_TIMEOUT_S", 60)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        for number in range(100):
            await worker.raw(json.dumps(call(number)))
            if number >= 63:
                await worker.next("invocationresult", invocation_id=str(number))
        assert len(calls) == 100


WIDE = {
    "type": "object",
    "properties": {"v": {"anyOf": [{"type": "object", "required": [f"p{n}"]} for n in range(1_000)]}},
}


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads in which schemas were checked, one for each."""
    threads: list[str] = []

    def note(schema: dict[str, Any]) -> str | None:
        threads.append(threading.current_thread().name)
        return find_schema_problem(schema)

    monkeypatch.setattr("waypost.workers.tools.find_schema_problem", note)
    return threads


@pytest.mark.parametrize("loop", LOOPS)
def test_large_schemas_are_checked_outside_the_loop_and_a_call_right_behind_them_is_made(
    loop: Callable[[], asyncio.AbstractEventLoop], checked: list[str]
) -> None:
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub) as client, wired(hub) as worker:
            await worker.introduce()
            checked.clear()
            for number in range(5):
                await worker.send("registerfunction", id=f"a::{number}", request_format=WIDE, response_format=WIDE)
            call_id = await worker.ask("a::4", {"v": {"p1": 1}})
            assert (await worker.serve("a::4", {"v": {"p2": 2}}))["data"] == {"v": {"p1": 1}}
            assert "result" in await worker.next("invocationresult", invocation_id=call_id)
            await worker.send("unregisterfunction", id="a::0")
            await worker.send("registerfunction", id="a::5", request_format=WIDE)
            await worker.introduce("wire")
            names = {tool["name"] for tool in await client.list_tools()}
        assert {f"a__{number}" for number in range(1, 6)} <= names
        assert "a__0" not in names
        assert len(checked) == 11
        assert "MainThread" not in checked

    on_loop(loop, scenario)


@asynchronous
async def test_many_functions_are_published_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[int] = []
    replace = PublishedFunctions.replace

    def note(self: PublishedFunctions, old: Iterable[Function], new: Iterable[Function]) -> None:
        published.append(len(list(new)))
        replace(self, old, new)

    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        monkeypatch.setattr(PublishedFunctions, "replace", note)
        # Of two functions with one tool name, that to which the name translates back gets it, in either order.
        await worker.offer("n::a__0", *(f"n::a::{number}" for number in range(500)), description="d" * 100)
        tool = hub.core.registry.tools.get("n__a__0")
        assert tool is not None and tool.definition.title == "n::a::0"
        assert rows(hub)["functions"] == 501
    assert max(published) <= 100


@asynchronous
async def test_a_schema_that_was_checked_is_not_checked_again_when_the_function_passes_on(checked: list[str]) -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as first, wired(hub) as second:
        await first.offer("a::b", name="first", request_format=WIDE)
        await second.offer("a::b", name="second", request_format=WIDE)
        await second.next("registrationrejected", function_id="a::b")
        before = len(checked)
        await first.send("unregisterfunction", id="a::b")
        await until(
            lambda: any("a::b" in worker.functions for worker in hub.workers.connected if worker.name == "second")
        )
        assert len(checked) == before
        assert "MainThread" not in checked[-2:]


@asynchronous
async def test_many_wrong_calls_of_a_worker_get_one_suggestion_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, sought = 0, list[int]()

    def count() -> None:
        nonlocal turn
        turn += 1
        if len(sought) < 50:
            asyncio.get_running_loop().call_soon(count)

    def note(name: str, *_: Any) -> str:
        sought.append(turn)
        return ""

    monkeypatch.setattr("waypost.workers.calls.did_you_mean", note)
    hub = hub_for_workers()
    async with at_work(hub), raw(hub) as (reader, writer):
        count()
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(frames(*map(call, range(50))))
        for _ in range(50):
            await reader.readuntil(b"not found")
    assert sorted(set(sought)) == sought


@asynchronous
async def test_the_reasons_why_payloads_of_a_worker_do_not_fit_are_sought_one_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn, sought, problems = 0, list[int](), Validator.problems

    def count() -> None:
        nonlocal turn
        turn += 1
        if len(sought) < 10:
            asyncio.get_running_loop().call_soon(count)

    def note(validator: Validator, value: Any) -> list[str]:
        sought.append(turn)
        return problems(validator, value)

    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, raw(hub) as (reader, writer):
        await owner.offer("a::b", request_format={"type": "object", "properties": {"v": {"type": "string"}}})
        monkeypatch.setattr(Validator, "problems", note)
        count()
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(frames(*({**call(number, "a::b"), "data": {"v": 1}} for number in range(10))))
        for _ in range(10):
            await reader.readuntil(b"does not fit: v: must be of type string, got 1")
    assert len(sought) == 10
    assert sorted(set(sought)) == sought
