"""The table of functions, and functions that the hub runs itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from tests.protocol.conftest import asynchronous
from waypost.errors import InvocationFailed
from waypost.workers.frames import encode
from waypost.workers.functions import Call, Function, Functions, hosted, is_internal


async def echo(payload: Any, call: Call) -> Any:
    """The payload and the caller."""
    return [payload, call.sender]


@asynchronous
async def test_a_function_of_the_hub_gets_values_and_answers_values() -> None:
    function = hosted("a::b", echo, description="Echoes", request={"type": "object"})
    answer = await function.run(Call("a::b", Raw(b'{"n": 1}'), sender="w"))
    assert bytes(answer) == b'[{"n":1},"w"]'
    assert (function.owner, function.namespace, function.frame.description) == (None, "default", "Echoes")


@asynchronous
async def test_a_payload_that_cannot_be_decoded_is_an_error() -> None:
    with pytest.raises(InvocationFailed, match="The payload of a::b cannot be read"):
        await hosted("a::b", echo).run(Call("a::b", Raw(b"[" * 100_000 + b"]" * 100_000)))


def test_a_function_is_found_in_its_namespace_and_the_hubs_everywhere() -> None:
    table = Functions()
    blue, plain = hosted("a::b", echo), hosted("a::b", echo)
    blue.namespace = "blue"
    engine, shared = hosted("engine::x", echo), hosted("state::get", echo)
    for function in (blue, plain, engine, shared):
        table.put(function)
    assert table.find("a::b", "blue") is blue
    assert table.find("a::b", "default") is plain
    assert table.find("engine::x", "blue") is engine
    assert table.find("state::get", "blue") is shared
    assert table.find("c::d", "default") is None
    assert table.get("blue", "a::b") is blue
    assert len(table) == len(list(table)) == 4


def test_removing_a_replaced_function_keeps_its_replacement() -> None:
    table = Functions()
    old, new = hosted("a::b", echo), hosted("a::b", echo)
    table.put(old)
    table.put(new)
    table.pop(old)
    assert table.find("a::b", "default") is new
    table.pop(new)
    table.pop(new)
    assert len(table) == 0
    assert isinstance(new, Function)


@pytest.mark.parametrize(
    ("function_id", "internal"),
    [
        *((one, True) for one in ("state::get", "engine::workers", "stream::publish", "iii.on_foo", "iii::internal")),
        *((one, True) for one in ("mcp::handler", "a2a::send", "skills::register", "prompts::register")),
        *((one, False) for one in ("mem::observe", "brain::summarize", "my-worker::my-fn", "skill::fetch", "state")),
    ],
)
def test_nine_beginnings_are_plumbing(function_id: str, internal: bool) -> None:
    assert is_internal(function_id) is internal


@asynchronous
async def test_a_large_payload_is_decoded_in_a_turn_of_its_own() -> None:
    turns: list[str] = []

    async def measure(payload: Any, _call: Call) -> int:
        turns.append("handled")
        return len(payload)

    async def note_turns() -> None:
        while True:
            turns.append("other")
            await asyncio.sleep(0)

    run = hosted("a::b", measure).run
    other = asyncio.create_task(note_turns())
    assert await run(Call("a::b", Raw(b"[1]"))) == Raw(b"1")
    assert turns == ["handled"]
    assert await run(Call("a::b", Raw(encode(["x" * 100] * 1_000)))) == Raw(b"1000")
    other.cancel()
    assert turns == ["handled", "other", "other", "handled", "other"]
