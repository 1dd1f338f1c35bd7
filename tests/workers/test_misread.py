"""Messages that cannot be decoded: the calls they belong to fail at once."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.protocol.conftest import asynchronous
from tests.workers.wire import Json, at_work, hub_for_workers, rows, wired
from waypost.workers.frames import InvocationResult, InvokeFunction, find_ids

DEEP = "[" * 2_000 + "]" * 2_000
PADDING = '"' + "x" * 100_000 + '"'


def answer(call: Json, result: str) -> str:
    """An answer with anything in the place of its result."""
    invocation = call["invocation_id"]
    return f'{{"type":"invocationresult","invocation_id":"{invocation}","function_id":"a::b","result":{result}}}'


def late(call: Json, result: str) -> str:
    """The same, but the call is named last."""
    invocation = call["invocation_id"]
    return f'{{"result":{result},"function_id":"a::b","type":"invocationresult","invocation_id" : "{invocation}"}}'


ODD = ["01", DEEP, "{", "nul", '"\t"', f"[{PADDING},01]"]


@pytest.mark.parametrize("said", [answer, late])
@pytest.mark.parametrize("result", ODD, ids=["a number", "deep", "open", "a word", "a tab", "long"])
def test_a_call_whose_answer_cannot_be_read_fails_at_once(said: object, result: str) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub) as client, wired(hub) as owner, wired(hub) as caller:
            await owner.offer("a::b", name="owner")
            asked = await caller.ask("a::b", 1)
            assert callable(said)
            await owner.raw(said(await owner.next("invokefunction"), result))
            error = (await caller.next("invocationresult", invocation_id=asked))["error"]
            assert error["code"] == "invocation_failed"
            assert error["message"].startswith("The answer of the worker owner cannot be used: it is not a message")
            called = asyncio.create_task(client.call_tool("a__b"))
            await owner.raw(said(await owner.next("invokefunction"), result))
            assert "The answer of the worker owner cannot be used" in (await called).text
            assert rows(hub)["unanswered"] == 0

    scenario()


@asynchronous
async def test_bytes_that_are_no_text_end_a_call_too() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::b", name="owner")
        asked = await caller.ask("a::b", 1)
        call = await owner.next("invokefunction")
        await owner.raw(answer(call, '"\xff"').encode("latin-1"))
        assert "error" in await caller.next("invocationresult", invocation_id=asked)


@asynchronous
async def test_only_a_call_that_the_worker_owes_an_answer_for_fails() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as stranger, wired(hub) as caller:
        await owner.offer("a::b", name="owner")
        await stranger.introduce("stranger")
        asked = await caller.ask("a::b", 1)
        call = await owner.next("invokefunction")
        await stranger.raw(answer(call, "01"))
        await stranger.settled()
        await owner.raw(answer({"invocation_id": "another"}, "01"))
        await owner.answer(call, "fine")
        assert (await caller.next("invocationresult", invocation_id=asked))["result"] == "fine"


@asynchronous
async def test_a_call_that_cannot_be_read_is_answered_with_an_error() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as caller:
        await caller.introduce("caller")
        for data in (DEEP, "01"):
            await caller.raw(f'{{"type":"invokefunction","invocation_id":"i","function_id":"a::b","data":{data}}}')
            error = (await caller.next("invocationresult", invocation_id="i"))["error"]
            assert error["message"].startswith("The call cannot be made: it is not a message")
        await caller.raw('{"type":"registertrigger","id":5,"invocation_id":"i"}')
        await caller.settled()
        assert caller.seen == []


def test_a_message_is_looked_through_near_its_ends_only() -> None:
    named = json.dumps({"type": "invocationresult", "invocation_id": "i"}).encode()[:-1]
    assert find_ids(named) == (InvocationResult, ["i"])
    assert find_ids(b" " * 100_000 + named) == (InvocationResult, ["i"])
    assert find_ids(b" " * 100_000 + named + b" " * 100_000) == (None, [])
    assert find_ids(b'{"type":"invokefunction","invocation_id":5') == (InvokeFunction, [])
    assert find_ids(b"") == (None, [])


@asynchronous
async def test_an_observer_that_cannot_be_read_is_answered_with_an_error() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.introduce("seer", features=["observe.v1"])
        for source in ("5", '{"function_id":5}', '{"function_id":"a::b","filters":01}', DEEP):
            await worker.raw(f'{{"type":"observe","id":"o","source":{source},"target":{{"function_id":"s::see"}}}}')
            answer = await worker.next("observeresult", id="o")
            assert (answer["state"], answer["error"]["code"]) == ("error", "INVALID_OBSERVER")
            assert answer["error"]["message"].startswith("The observer cannot be made: it is not a message")
