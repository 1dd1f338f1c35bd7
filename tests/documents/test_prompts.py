"""Prompts: registered, listed and written by functions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.documents.desk import SHELVES, desk

ARGUMENTS = [{"name": "to", "description": "Whom", "required": True}, {"name": "subject", "more": 1}]
on_each_store = pytest.mark.parametrize("shelf", SHELVES)


def user(text: str) -> dict[str, Any]:
    """A message of the user."""
    return {"role": "user", "content": {"type": "text", "text": text}}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"name": ""}, "name must be non-empty"),
        ({"name": "Greet"}, "name may only contain lowercase ASCII letters, digits, '-' and '_'"),
        ({"name": "a b"}, "name may only contain"),
        ({"name": "a::b"}, "name may only contain"),
        ({"name": "a" * 65}, "name too long (65 chars; max 64)"),
        ({"description": "  "}, "description must be non-empty"),
        ({"function_id": ""}, "function_id must be non-empty"),
        ({"arguments": [{"name": "a"}, {"name": "a"}]}, "duplicate argument name: a"),
        ({"arguments": [{"name": ""}]}, "argument name must be non-empty"),
        ({"arguments": [{}]}, "missing field `name`"),
        ({"arguments": ["a"]}, 'invalid type: string "a", expected struct PromptArgument'),
        ({"arguments": None}, "invalid type: null, expected a sequence"),
        ({"arguments": [{"name": "a", "required": "yes"}]}, 'invalid type: string "yes", expected a boolean'),
    ],
)
@asynchronous
async def test_a_wrong_prompt_is_refused(wrong: dict[str, Any], text: str) -> None:
    async with desk() as it:
        given = {"name": "greet", "description": "Greets.", "function_id": "demo::greet", **wrong}

        assert text in await it.refusal("prompts::register", given)
        assert it.changes == []


@pytest.mark.parametrize("field", ["name", "description", "function_id"])
@asynchronous
async def test_a_prompt_needs_three_fields(field: str) -> None:
    async with desk() as it:
        given = {"name": "greet", "description": "Greets.", "function_id": "demo::greet"}
        del given[field]

        assert await it.refusal("prompts::register", given) == f"missing field `{field}`"


@on_each_store
@asynchronous
async def test_prompts_are_listed_by_name_with_their_arguments(shelf: str) -> None:
    async with desk(shelf) as it:
        await it.prompt("b", "demo::b")
        await it.prompt("a", "demo::a", arguments=ARGUMENTS)

        first, second = (await it.call("prompts::list", {}))["prompts"]
        assert (first["name"], first["function_id"], first["arguments"]) == ("a", "demo::a", 2)
        assert (second["name"], second["arguments"]) == ("b", 0)
        assert await it.call("prompts::mcp-list", {}) == {
            "prompts": [
                {
                    "name": "a",
                    "description": "Writes.",
                    "arguments": [
                        {"name": "to", "required": True, "description": "Whom"},
                        {"name": "subject", "required": False},
                    ],
                },
                {"name": "b", "description": "Writes.", "arguments": []},
            ]
        }


@on_each_store
@asynchronous
async def test_prompts_are_overwritten_and_removed_with_one_announcement_per_change(shelf: str) -> None:
    async with desk(shelf) as it:
        first = await it.prompt("a", "demo::a")
        again = await it.prompt("a", "demo::b")

        assert first["registered_at"] < again["registered_at"]
        assert (await it.call("prompts::list"))["prompts"][0]["function_id"] == "demo::b"
        assert await it.call("prompts::unregister", {"name": "a"}) == {"name": "a", "removed": True}
        assert await it.call("prompts::unregister", {"name": "a"}) == {"name": "a", "removed": False}
        assert "name may only" in await it.refusal("prompts::unregister", {"name": "A"})
        registered = ("prompts", "register", "a")
        assert it.changes == [registered, registered, ("prompts", "unregister", "a")]


@pytest.mark.parametrize(
    ("output", "messages"),
    [
        ("Hi", [user("Hi")]),
        ({"content": "Hi"}, [user("Hi")]),
        ({"messages": [{"role": "assistant", "content": 1}]}, [{"role": "assistant", "content": 1}]),
        ({"messages": [user("x")], "content": "Hi"}, [user("x")]),
        ({"messages": "x", "content": "Hi"}, [user("Hi")]),
    ],
)
@asynchronous
async def test_the_messages_of_a_prompt_are_the_answer_of_its_function(output: Any, messages: Any) -> None:
    async with desk() as it:
        it.engine.functions["demo::write"] = lambda _: output
        await it.prompt("a", arguments=ARGUMENTS)

        answer = await it.call("prompts::mcp-get", {"name": "a", "arguments": {"to": "Ann", "odd": 1}})
        assert answer == {"description": "Writes.", "messages": messages}
        await it.call("prompts::mcp-get", {"name": "a"})
        await it.call("prompts::mcp-get", {"name": "a", "arguments": None})
        assert [payload for _, payload in it.engine.calls] == [{"to": "Ann", "odd": 1}, {}, {}]


@pytest.mark.parametrize("output", [5, None, [], {}, {"content": 5}, {"messages": {}}])
@asynchronous
async def test_an_answer_of_another_shape_is_an_error(output: Any) -> None:
    async with desk() as it:
        it.engine.functions["demo::write"] = lambda _: output
        await it.prompt("a")

        assert await it.refusal("prompts::mcp-get", {"name": "a"}) == (
            "prompt handler returned unsupported shape; expected string, { content }, or { messages: [...] }"
        )


@asynchronous
async def test_an_unknown_or_failing_prompt_is_an_error() -> None:
    async with desk(within=0.05) as it:
        it.engine.functions["demo::slow"] = lambda _: asyncio.Event().wait()
        await it.prompt("send-email", "state::set")
        await it.prompt("slow", "demo::slow")
        await it.prompt("gone", "demo::gone")

        assert await it.refusal("prompts::mcp-get", {"name": "sendemail"}) == (
            'Prompt not found: sendemail; did you mean "send-email"?'
        )
        assert await it.refusal("prompts::mcp-get", {"name": "zzz"}) == "Prompt not found: zzz"
        assert await it.refusal("prompts::mcp-get", {"name": "send-email"}) == (
            "Prompt handler 'state::set' is in an internal namespace and cannot back a prompt"
        )
        assert "trigger demo::slow: " in await it.refusal("prompts::mcp-get", {"name": "slow"})
        assert "trigger demo::gone: Function demo::gone not found" in await it.refusal(
            "prompts::mcp-get", {"name": "gone"}
        )
