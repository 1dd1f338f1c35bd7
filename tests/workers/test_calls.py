"""Calls from worker to worker, and to tools of the hub."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import Json, at_work, hub_for_workers, rows, wired
from waypost.policy.rules import Rule
from waypost.settings import WorkerLimits

VALUES = [None, 0, -1.5, "", 'grüße 🦊 \u0000 \\ "', True, [], {}, [[{"a": [None]}]], {"": {"ключ": "値"}}]


@asynchronous
async def test_values_go_there_and_back_as_they_are() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::echo")
        for value in VALUES:
            asked = await caller.ask("a::echo", value)
            call = await owner.next("invokefunction")
            assert call["data"] == value
            await owner.answer(call, value)
            answer = await caller.next("invocationresult", invocation_id=asked)
            assert answer["result"] == value
            assert answer["function_id"] == "a::echo"


@asynchronous
async def test_metadata_trace_and_caller_reach_the_owner() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.send("registerfunction", id="a::b")
        await owner.introduce("owner", features=["observe.v1"])
        beside = {"metadata": {"tenant": "t"}, "traceparent": "00-1-2-01", "baggage": "a=b"}
        origin = {"worker_id": "a lie", "worker_name": "a lie", "function_id": "x::y", "invocation_id": "i"}
        await caller.introduce("caller")
        asked = await caller.ask("a::b", 1, **beside, caller=origin, observe_depth=2)
        call = await owner.serve("a::b", 1)
        call["baggage"], _, parent = call["baggage"].partition(",waypost-call=")
        assert {key: call[key] for key in beside} == beside
        assert parent == call["invocation_id"]
        assert call["caller"] == {**origin, "worker_id": caller.id, "worker_name": "caller"}
        assert call["observe_depth"] == 2
        assert call["invocation_id"] != asked
        await caller.next("invocationresult", invocation_id=asked)


@asynchronous
async def test_an_owner_that_answers_without_a_result_answered_null() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::b")
        asked = await caller.ask("a::b")
        call = await owner.next("invokefunction")
        await owner.send("invocationresult", invocation_id=call["invocation_id"], function_id="a::b")
        assert (await caller.next("invocationresult", invocation_id=asked))["result"] is None


@pytest.mark.parametrize(
    ("said", "received"),
    [
        ({"code": "invocation_failed", "message": "no", "stacktrace": "at 1"}, None),
        ({"code": "MINE", "message": "no"}, None),
        ({"message": "no"}, {"message": "no"}),
        ("just text", {"message": '"just text"'}),
        ({"code": 5, "message": "no"}, {"message": '{"code": 5, "message": "no"}'}),
    ],
)
def test_an_error_of_the_owner_reaches_the_caller(said: Json | str, received: Json | None) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
            await owner.offer("a::b")
            asked = await caller.ask("a::b")
            call = await owner.next("invokefunction")
            await owner.send("invocationresult", invocation_id=call["invocation_id"], function_id="a::b", error=said)
            answer = await caller.next("invocationresult", invocation_id=asked)
            error = {key: value for key, value in answer["error"].items() if key != "code" or value != "UNKNOWN"}
            assert error == (said if received is None else received)
            assert "result" not in answer

    scenario()


@asynchronous
async def test_the_error_for_an_unknown_function_names_it() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as caller:
        error = await caller.error("no::such")
        assert error == {"code": "function_not_found", "message": "Function no::such not found in namespace default."}


@asynchronous
async def test_void_calls_are_never_answered() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::b")
        await caller.introduce("caller")
        void = {"type": "void"}
        await caller.send("invokefunction", function_id="a::b", data=1, action=void)
        await caller.send("invokefunction", function_id="a::b", data=2, action=void, invocation_id="odd")
        await caller.send("invokefunction", function_id="a::b", data=3)
        await caller.send("invokefunction", function_id="no::such", data=4, action=void, invocation_id="odd")
        await caller.send("invokefunction", function_id="state::get", data={}, action=void)
        calls = [await owner.next("invokefunction") for _ in range(3)]
        assert sorted(call["data"] for call in calls) == [1, 2, 3]
        assert not any("invocation_id" in call or "action" in call for call in calls)
        await until(lambda: not hub.workers.calls.running)
        await caller.settled()
        assert not any(message["type"] == "invocationresult" for message in caller.seen)
        assert rows(hub)["unanswered"] == 0


@asynchronous
async def test_a_call_ends_at_once_when_its_owner_dies() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as caller:
        async with wired(hub) as owner:
            await owner.offer("a::b", name="mortal")
            asked = await caller.ask("a::b")
            await owner.next("invokefunction")
            called = asyncio.create_task(client.call_tool("a__b"))
            await owner.next("invokefunction")
            owner.socket.transport.abort()
        error = (await caller.next("invocationresult", invocation_id=asked))["error"]
        assert error["code"] == "invocation_stopped"
        assert "mortal" in error["message"]
        result = await called
        assert result.is_error
        assert "mortal disconnected" in result.text
        assert rows(hub)["unanswered"] == 0


@asynchronous
async def test_an_answer_that_is_late_or_from_another_worker_is_dropped() -> None:
    hub = hub_for_workers(tool_timeout=0.05)
    async with at_work(hub) as client, wired(hub) as owner, wired(hub) as stranger:
        await owner.offer("a::b")
        late = await client.call_tool("a__b")
        assert late.is_error
        call = await owner.next("invokefunction")
        assert rows(hub)["unanswered"] == 0
        await owner.answer(call, "late")
        await owner.answer({"invocation_id": "never was", "function_id": "a::b"}, 1)
        await owner.settled()
        asked = await stranger.ask("a::b")
        call = await owner.next("invokefunction")
        await stranger.answer(call, "spoofed")
        await stranger.settled()
        await owner.answer(call, "mine")
        assert (await stranger.next("invocationresult", invocation_id=asked))["result"] == "mine"


@asynchronous
async def test_the_open_calls_of_a_caller_are_forgotten_when_it_disconnects() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner:
        await owner.offer("a::b")
        async with wired(hub) as caller:
            for _ in range(50):
                await caller.ask("a::b")
            calls = [await owner.next("invokefunction") for _ in range(50)]
            assert rows(hub)["unanswered"] == 50
        await until(lambda: rows(hub)["unanswered"] == 0)
        for call in calls:
            await owner.answer(call, 1)
        await owner.settled()


@asynchronous
async def test_workers_call_the_tools_of_the_hub_and_get_their_errors() -> None:
    hub = hub_for_workers()

    @hub.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @hub.tool
    async def describe(text: str) -> dict[str, str]:
        """Describe."""
        return {"text": text}

    async with at_work(hub), wired(hub) as caller:
        assert await caller.result("add", {"a": 1, "b": 2}) == 3
        assert await caller.result("describe", {"text": "x"}) == {"text": "x"}
        assert "Invalid arguments" in (await caller.error("add", {"a": "x"}))["message"]
        assert "takes an object" in (await caller.error("add", [1, 2]))["message"]


@asynchronous
async def test_a_rule_keeps_a_worker_from_calling_a_function() -> None:
    hub = hub_for_workers(
        policies=[Rule(name="few", type="allow_list", config={"allow": ["open__*"]}, callers=("worker",))]
    )

    @hub.tool(name="secret__tool")
    async def secret() -> str:
        """Denied to all callers."""
        return "done"

    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("secret::plan", "open::plan")
        for name in ("secret::plan", "secret__tool", "state::get"):
            assert (await caller.error(name, {}))["code"] == "FORBIDDEN", name
        assert not any(message["type"] == "invokefunction" for message in owner.seen)
        asked = await caller.ask("open::plan")
        await owner.serve("open::plan", 1)
        await caller.next("invocationresult", invocation_id=asked)


@asynchronous
async def test_a_number_that_is_not_json_is_null_to_others() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::b")
        asked = await caller.ask("a::b")
        call = await owner.next("invokefunction")
        fields = {"type": "invocationresult", "invocation_id": call["invocation_id"], "function_id": "a::b"}
        await owner.raw(json.dumps({**fields, "result": [float("nan"), float("-inf"), "NaN"]}))
        assert (await caller.next("invocationresult", invocation_id=asked))["result"] == [None, None, "NaN"]


@asynchronous
async def test_a_text_with_half_a_character_is_readable_to_others() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as owner:
        await owner.offer("a::b")
        called = asyncio.create_task(client.call_tool("a__b"))
        call = await owner.next("invokefunction")
        start = f'{{"type":"invocationresult","invocation_id":"{call["invocation_id"]}","result":'
        await owner.raw(start + r'"half \ud800 of \ud83e\udd8a"}')
        assert (await called).text == "half ? of 🦊"


@asynchronous
async def test_a_payload_that_a_tool_cannot_read_is_an_error_of_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    hub = hub_for_workers()

    @hub.tool
    def double(n: float) -> float:
        return 2 * n

    async with at_work(hub), wired(hub) as caller:
        await caller.introduce("caller")
        await caller.raw('{"type":"invokefunction","invocation_id":"i","function_id":"double","data":{"n":1e999}}')
        error = (await caller.next("invocationresult", invocation_id="i"))["error"]
        assert error["code"] == "invocation_failed"
        assert error["message"].startswith("The payload of double cannot be read: ")
        assert "crashed" not in caplog.text


@asynchronous
async def test_large_calls_of_workers_are_bounded_in_bytes_until_they_end() -> None:
    hub = hub_for_workers(workers={"port": 0, "limits": WorkerLimits(call_bytes=100_000)})
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::b")
        asked = [await caller.ask("a::b", "x" * 60_000) for _ in range(3)]
        calls = [await owner.next("invokefunction") for _ in range(2)]
        refused = await caller.next("invocationresult", invocation_id=asked[2])
        assert "bytes of large calls are in work (workers.limits.callBytes)" in refused["error"]["message"]
        small = await caller.ask("a::b", 1)
        calls.append(await owner.next("invokefunction"))
        for call in calls:
            await owner.answer(call, "done")
        for one in (*asked[:2], small):
            assert (await caller.next("invocationresult", invocation_id=one))["result"] == "done"
        again = await caller.ask("a::b", "x" * 60_000)
        await owner.answer(await owner.next("invokefunction"), "done")
        assert (await caller.next("invocationresult", invocation_id=again))["result"] == "done"
