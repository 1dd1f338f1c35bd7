"""Slash commands with the SDKs of the iii project: the scenarios of its registry, through `trigger`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.iii_desk import Publisher, Scenario, call, scenarios
from tests.interop.iii_desk import connected as connected
from tests.interop.iii_desk import hub as hub
from tests.interop.iii_desk import publisher as publisher

pytestmark = pytest.mark.timeout(120)

REGISTER, LIST, GET, REMOVE = "prompts::register", "prompts::list", "prompts::mcp-get", "prompts::unregister"
LETTERS = "name may only contain lowercase ASCII letters, digits, '-' and '_'"
SHAPES = "prompt handler returned unsupported shape; expected string, { content }, or { messages: [...] }"
PROMPT: dict[str, Any] = {
    "name": "greet",
    "description": "Compose a greeting.",
    "arguments": [{"name": "name", "description": "Who to greet", "required": True}, {"name": "tone"}],
    "function_id": "mine::greet",
}


def refused(name: str, text: str, /, **wrong: Any) -> Scenario:
    """A scenario with an invalid prompt, which is not registered."""
    return Scenario(name, (call(REGISTER, fails=text, **{**PROMPT, **wrong}), call(LIST, {"prompts": []})))


@scenarios(
    refused("rejects an empty name", "name must be non-empty", name=""),
    refused("rejects uppercase name", LETTERS, name="Greet"),
    refused("rejects name with a space", LETTERS, name="greet me"),
    refused("rejects name with ::", LETTERS, name="mine::greet"),
    refused("rejects blank description", "description must be non-empty", description="  "),
    refused("rejects missing function_id", "function_id must be non-empty", function_id=" "),
    refused(
        "rejects duplicate argument names",
        "duplicate argument name: name",
        arguments=[{"name": "name"}, {"name": "name"}],
    ),
    refused("rejects empty argument name", "argument name must be non-empty", arguments=[{"name": " "}]),
    refused("a long name is too long", "name too long (65 chars; max 64)", name="a" * 65),
    Scenario(
        "register then list surfaces the scoped prompt",
        (
            call(REGISTER, {"name": "greet", "registered_at": str}, **PROMPT),
            call(
                LIST,
                {"prompts": [{"name": "greet", "function_id": "mine::greet", "arguments": 2, "registered_at": str}]},
            ),
        ),
        then=lambda answers: answers[0]["registered_at"] == answers[1]["prompts"][0]["registered_at"],
    ),
    Scenario(
        "re-register overwrites and refreshes the timestamp",
        (
            call(REGISTER, **PROMPT),
            call(REGISTER, **{**PROMPT, "function_id": "mine::other", "arguments": []}),
            call(LIST, {"prompts": [{"name": "greet", "function_id": "mine::other", "arguments": 0}]}),
        ),
        then=lambda answers: answers[0]["registered_at"] < answers[1]["registered_at"],
    ),
    Scenario(
        "unregister is idempotent",
        (
            call(REGISTER, **PROMPT),
            call(REMOVE, {"name": "greet", "removed": True}, name="greet"),
            call(REMOVE, {"name": "greet", "removed": False}, name="greet"),
            call(LIST, {"prompts": []}),
        ),
    ),
)
def test_prompts_register(publisher: Publisher, scenario: Scenario) -> None:
    publisher.play(scenario)


def user_message(text: str) -> dict[str, Any]:
    """One message of the user."""
    return {"role": "user", "content": {"type": "text", "text": text}}


CONVERSATION = [user_message("Hello."), {"role": "assistant", "content": {"type": "text", "text": "Yes?"}}]


def written(name: str, gives: Any, messages: list[Any]) -> Scenario:
    """A scenario with a prompt and the answer of its function."""
    answer = {"description": "Compose a greeting.", "messages": messages}
    steps = (call(REGISTER, **PROMPT), call(GET, answer, name="greet", arguments={"name": "Ada"}))
    return Scenario(name, steps, {"mine::greet": gives})


def unwritten(name: str, gives: Any) -> Scenario:
    """A scenario with a prompt whose function gives an invalid answer."""
    return Scenario(name, (call(REGISTER, **PROMPT), call(GET, fails=SHAPES, name="greet")), {"mine::greet": gives})


@scenarios(
    written("string handler wrapped", "Greet Ada.", [user_message("Greet Ada.")]),
    written("{content} handler wrapped", {"content": "Greet Ada."}, [user_message("Greet Ada.")]),
    written("{messages} passed through", {"messages": CONVERSATION}, CONVERSATION),
    written("messages count more than content", {"content": "No.", "messages": CONVERSATION}, CONVERSATION),
    unwritten("unsupported shape fails", {"text": "Greet Ada."}),
    unwritten("a number is no prompt", 5),
    Scenario(
        "unknown prompt not-found",
        (call(REGISTER, **PROMPT), call(GET, fails="Prompt not found: gret", name="gret")),
    ),
    Scenario(
        "infra-namespace handler rejected by the hard floor",
        (
            call(REGISTER, **{**PROMPT, "function_id": "state::get"}),
            call(
                GET,
                fails="Prompt handler 'state::get' is in an internal namespace and cannot back a prompt",
                name="greet",
            ),
        ),
    ),
)
def test_prompts_get(publisher: Publisher, scenario: Scenario) -> None:
    publisher.play(scenario)


@pytest.mark.parametrize("given", [{}, {"arguments": None}, {"arguments": {"name": "Ada", "more": [1]}}])
def test_a_handler_gets_the_arguments_unchanged(publisher: Publisher, given: dict[str, Any]) -> None:
    publisher.give(mine__greet="Hello.")
    publisher.call(REGISTER, **PROMPT)
    publisher.call(GET, name="greet", **given)
    assert publisher.payloads_of("mine::greet") == [given.get("arguments") or {}]


def test_a_failing_or_missing_handler_is_named(publisher: Publisher) -> None:
    publisher.call(REGISTER, **PROMPT)
    assert "trigger mine::greet: Function mine::greet not found" in publisher.refusal(GET, name="greet")
    publisher.offer("mine::greet", "fail")
    assert "trigger mine::greet: it went wrong" in publisher.refusal(GET, name="greet")
