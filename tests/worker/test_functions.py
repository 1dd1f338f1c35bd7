"""Functions that a worker offers to a hub: how they are written, described, run, and how they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import failure, settled, working
from tests.workers.wire import at_work, hub_for_workers, wired
from waypost.errors import DefinitionError
from waypost.worker import VOID, InvocationFailed, Worker, enqueue, register_worker
from waypost.workers.frames import split_baggage


async def asynchronously(payload: Any) -> Any:
    return [payload]


async def with_metadata(payload: Any, metadata: Any) -> Any:
    return [payload, metadata]


def plainly(payload: Any) -> Any:
    return [payload]


def plainly_with_metadata(payload: Any, metadata: Any) -> Any:
    return [payload, metadata]


def of_nothing() -> list[Any]:
    return []


class Calls:
    async def __call__(self, payload: Any) -> Any:
        return [payload]


@pytest.mark.parametrize(
    ("handler", "answer"),
    [
        (asynchronously, [{"a": 1}]),
        (with_metadata, [{"a": 1}, {"b": 2}]),
        (plainly, [{"a": 1}]),
        (plainly_with_metadata, [{"a": 1}, {"b": 2}]),
        (of_nothing, []),
        (Calls(), [{"a": 1}]),
        (lambda payload: asynchronously(payload), [{"a": 1}]),
    ],
)
@asynchronous
async def test_a_handler_is_plain_or_async_and_takes_payload_and_metadata_or_less(
    handler: Callable[..., Any], answer: Any
) -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as owner, working(hub, "two") as caller:
        owner.register_function("a::b", handler)
        await settled(owner)

        assert await caller.trigger("a::b", {"a": 1}, metadata={"b": 2}) == answer


@pytest.mark.parametrize("handler", [lambda a, b, c: None, lambda *, a: None, 7], ids=["three", "named", "none"])
@asynchronous
async def test_a_handler_that_cannot_be_called_is_refused_where_it_is_registered(handler: Any) -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as owner:
        with pytest.raises(DefinitionError, match="a::b"):
            owner.register_function("a::b", handler)
        with pytest.raises(DefinitionError, match="needs an id"):
            owner.register_function(" ", of_nothing)


@asynchronous
async def test_a_function_is_a_tool_of_the_hub_until_it_is_taken_back() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, working(hub) as owner:

        @owner.register_function("math::double", description="Double a number.", metadata={"team": "maths"})
        async def double(payload: dict[str, int]) -> int:
            return payload["n"] * 2

        await settled(owner)
        tool = next(tool for tool in await client.list_tools() if tool["name"] == "math__double")
        assert tool["description"] == "Double a number."
        answer = await client.call_tool("math__double", {"n": 21})
        assert answer["content"][0]["text"] == "42"

        owner.unregister_function("math::double")
        assert (await failure(owner.trigger("math::double"))).code == "function_not_found"
        assert "math__double" not in {tool["name"] for tool in await client.list_tools()}


@dataclass
class Letter:
    to: str
    lines: int = 3


class Slip(TypedDict):
    to: str


class Card(msgspec.Struct):
    to: str


class Parcel(pydantic.BaseModel):
    to: str
    weight: float = 1.0


class Content(TypedDict):
    content: str


async def described(worker: Worker, function_id: str) -> dict[str, Any]:
    listed = (await worker.trigger("engine::functions::list"))["functions"]
    found: dict[str, Any] = next(one for one in listed if one["function_id"] == function_id)
    return found


@pytest.mark.parametrize("kind", [Letter, Slip, Card, Parcel])
@asynchronous
async def test_type_hints_become_formats_and_the_payload_arrives_as_its_type(kind: type) -> None:
    async def write(letter: Any) -> Any:
        """Write a letter.

        Nobody sees this.
        """
        return {"content": letter["to"] if isinstance(letter, dict) else letter.to}

    write.__annotations__ = {"letter": kind, "return": Content}
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as owner:
        owner.register_function("post::write", write)

        received = await described(owner, "post::write")
        assert received["description"] == "Write a letter."
        assert received["request_format"]["properties"]["to"] == {"type": "string"}
        assert received["request_format"]["required"] == ["to"]
        assert received["response_format"]["properties"] == {"content": {"type": "string"}}
        assert await owner.trigger("post::write", {"to": "Ada"}) == {"content": "Ada"}
        assert "to" in (await failure(owner.trigger("post::write", {"from": "Ada"}))).message


@asynchronous
async def test_a_payload_that_is_returned_has_the_defaults_of_its_type() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as owner:

        @owner.register_function("post::copy")
        def copy(letter: Letter) -> Letter:
            return letter

        assert await owner.trigger("post::copy", {"to": "Ada"}) == {"to": "Ada", "lines": 3}


@asynchronous
async def test_formats_that_are_given_beat_type_hints() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as owner:

        @owner.register_function("a::b", request_format={"type": "object", "title": "Mine"}, response_format={})
        def read(letter: Letter) -> str:
            return letter.to

        received = await described(owner, "a::b")
        assert (received["request_format"]["title"], received["response_format"]) == ("Mine", {})


def raising(error: Exception) -> Callable[[Any], Any]:
    def fail(payload: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("handler", "code", "message"),
    [
        (raising(ValueError("not today")), "invocation_failed", "not today"),
        (raising(KeyError()), "invocation_failed", "KeyError"),
        (raising(InvocationFailed("no such order", "order_unknown")), "order_unknown", "no such order"),
        (lambda payload: object(), "invocation_failed", "cannot be sent as JSON"),
    ],
)
@asynchronous
async def test_a_failure_reaches_the_caller_with_its_code_and_message(
    handler: Callable[..., Any], code: str, message: str
) -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as owner:
        owner.register_function("a::b", handler)

        error = await failure(owner.trigger("a::b"))

        assert (error.code, message in error.message) == (code, True)
        assert bool(error.stacktrace) == (code == "invocation_failed")


@asynchronous
async def test_a_call_that_takes_too_long_is_given_up_by_the_caller() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as owner:
        owner.register_function("a::b", lambda payload: asyncio.Event().wait())

        error = await failure(owner.trigger("a::b", timeout_ms=20))

        assert error.code == "TIMEOUT"
        assert "20 ms" in error.message
        assert await owner.trigger("state::get", {"scope": "a", "key": "b"}) is None


@asynchronous
async def test_a_void_call_has_no_answer_and_an_enqueued_one_a_receipt() -> None:
    hub = hub_for_workers()
    seen: list[Any] = []
    async with at_work(hub), working(hub) as owner:
        owner.register_function("a::b", seen.append)

        assert await owner.trigger("a::b", 1, action=VOID) is None
        assert await owner.trigger("a::b", 2, action={"type": "void"}) is None
        assert await owner.trigger("nobody::there", action=VOID) is None
        assert list(await owner.trigger("a::b", 3, action=enqueue("later"))) == ["messageReceiptId"]
        assert (await failure(owner.trigger("a::b", 3, action=enqueue("")))).code == "enqueue_error"
        await until(lambda: sorted(seen) == [1, 2, 3])


@asynchronous
async def test_the_number_of_concurrent_handlers_is_limited() -> None:
    hub = hub_for_workers()
    running, most, go_on = 0, 0, asyncio.Event()

    async def work(payload: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1

    async with at_work(hub), working(hub, max_running=3) as owner:
        owner.register_function("a::b", work)
        calls = [owner.trigger("a::b", number) for number in range(10)]
        await until(lambda: running == 3)
        await settled(owner)
        go_on.set()
        await asyncio.gather(*calls)

    assert most == 3


@asynchronous
async def test_the_trace_of_a_call_goes_on_in_the_calls_it_makes() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as owner, wired(hub) as other:
        owner.register_function("a::plain", lambda payload: owner.trigger("b::c", payload).result())
        owner.register_function("a::b", lambda payload: owner.trigger("b::c", payload))
        await settled(owner)
        await other.offer("b::c")

        for function in ("a::plain", "a::b"):
            asked = await other.ask(function, 1, traceparent="00-1-2-01", baggage="k=v")
            inner = await other.serve("b::c", 2)
            assert (inner["traceparent"], split_baggage(inner["baggage"])[0]) == ("00-1-2-01", "k=v")
            assert (await other.next("invocationresult", invocation_id=asked))["result"] == 2


@asynchronous
async def test_large_messages_go_both_ways_and_too_large_ones_are_refused() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as owner:
        owner.register_function("a::b", asynchronously)
        text = "ä" * (9 * 1024 * 1024)  # 18 MiB, more than one frame

        assert await owner.trigger("a::b", text) == [text]
        assert (await failure(owner.trigger("a::b", "x" * (64 * 1024 * 1024)))).code == "payload_too_large"
        assert await owner.trigger("a::b", 1) == [1]


@asynchronous
async def test_an_invalid_url_is_refused_at_once() -> None:
    with pytest.raises(DefinitionError, match="ws://"):
        register_worker("http://127.0.0.1:1")


@pytest.mark.parametrize(("part", "what"), [("data", "payload"), ("metadata", "metadata")])
def test_a_call_that_cannot_be_read_fails_and_is_no_failure_of_the_handler(
    part: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), working(hub) as owner, wired(hub) as caller:
            owner.register_function("a::b", with_metadata)
            await settled(owner)
            await caller.introduce("caller")
            fields = f'"invocation_id":"i","function_id":"a::b","{part}":{{"n":1e999}}'
            await caller.raw(f'{{"type":"invokefunction",{fields}}}')
            error = (await caller.next("invocationresult", invocation_id="i"))["error"]
            assert error["message"].startswith(f"The {what} cannot be read: ")
            assert "stacktrace" not in error
            assert "a::b failed" not in caplog.text

    scenario()
