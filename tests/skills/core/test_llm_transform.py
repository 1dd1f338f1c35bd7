"""Transforming text: the requests to the client's model, and its answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.skills.core.calling import calling
from waypost import RemoteError


def saying(text: str, asked: list[dict[str, Any]]) -> Any:
    def answer(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}

    return answer


async def asked_by(**given: Any) -> dict[str, Any]:
    """The sampling request."""
    asked: list[dict[str, Any]] = []
    async with calling(sampling=saying("done", asked)) as call:
        reply = await call("llm_transform", **given)
    assert reply.text == "done"
    return asked[0]


def prompt(params: dict[str, Any]) -> str:
    (message,) = params["messages"]
    return str(message["content"]["text"])


@asynchronous
async def test_the_model_gets_the_input_the_system_prompt_and_a_preference() -> None:
    params = await asked_by(input="hello", system_prompt="Be brief.", model="claude", config={"max_tokens": 50})

    assert prompt(params) == "hello"
    assert params["systemPrompt"] == "Be brief."
    assert params["modelPreferences"] == {"hints": [{"name": "claude"}]}
    assert params["maxTokens"] == 50


@asynchronous
async def test_without_options_the_model_gets_only_the_input() -> None:
    params = await asked_by(input="hello")

    assert params.keys() >= {"messages", "maxTokens"}
    assert "systemPrompt" not in params
    assert "modelPreferences" not in params


@pytest.mark.parametrize(
    ("template", "given", "sent"),
    [
        ("Say: {input}!", "hi", "Say: hi!"),
        ("{input} and {input}", "hi", "hi and hi"),
        ("Summarise.", "hi", "Summarise.\n\nhi"),
        ("Say {input}", "{input} {0} {config}", "Say {input} {0} {config}"),
        ("{input.__class__}", "hi", "{input.__class__}\n\nhi"),
        ("Write a poem.", "", "Write a poem."),
    ],
)
@asynchronous
async def test_a_template_only_inserts_the_input(template: str, given: str, sent: str) -> None:
    assert prompt(await asked_by(input=given, config={"prompt_template": template})) == sent


@pytest.mark.parametrize(
    ("tier", "wanted"),
    [
        ("light", {"costPriority": 1.0, "speedPriority": 1.0}),
        ("heavy", {"intelligencePriority": 1.0}),
        ("medium", None),
    ],
)
@asynchronous
async def test_a_tier_becomes_a_preference(tier: str, wanted: dict[str, float] | None) -> None:
    assert (await asked_by(input="x", config={"llm_tier": tier})).get("modelPreferences") == wanted


@asynchronous
async def test_a_missing_input_and_an_empty_answer_are_errors() -> None:
    async with calling(sampling=saying("", [])) as call:
        assert (await call("llm_transform")).text == "input is missing."
        assert (await call("llm_transform", input="x")).text == "The model answered without text."


@asynchronous
async def test_a_client_without_sampling_gets_an_error_that_names_it() -> None:
    async with calling() as call:
        with pytest.raises(RemoteError, match="sampling") as caught:
            await call("llm_transform", input="x")

    assert caught.value.code == -32021
