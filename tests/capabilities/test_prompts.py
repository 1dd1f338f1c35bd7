from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest

from tests.capabilities.client import connected, listed, new_hub, request
from waypost import DefinitionError, Hub, Image, Prompt, Text
from waypost.capabilities.prompts import PromptMessage, to_messages

if TYPE_CHECKING:
    from waypost import Context


class Greet(Prompt):
    """Compose a greeting."""

    name: str
    tone: Annotated[Literal["warm", "cool"], "How it should sound"] = "warm"

    def messages(self) -> str:
        return f"Greet {self.name} in a {self.tone} way."


def get(hub: Hub, name: str, /, **arguments: Any) -> Any:
    return request(hub, "prompts/get", name=name, arguments=arguments)


def test_fields_are_the_arguments() -> None:
    assert listed(new_hub(Greet), "prompts") == {
        "greet": {
            "name": "greet",
            "description": "Compose a greeting.",
            "arguments": [
                {"name": "name", "required": True},
                {"name": "tone", "description": "How it should sound"},
            ],
        }
    }


def test_undeclared_arguments_do_not_replace_what_an_instance_keeps() -> None:
    class Sign(Prompt):
        def __init__(self) -> None:
            self._by = "the office"

        def messages(self) -> str:
            return f"Signed by {self._by}"

    assert get(new_hub(Sign()), "sign", _by="a caller")["result"]["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "Signed by the office"}}
    ]


def test_text_without_a_role_is_the_users() -> None:
    assert get(new_hub(Greet), "greet", name="ann")["result"] == {
        "description": "Compose a greeting.",
        "messages": [{"role": "user", "content": {"type": "text", "text": "Greet ann in a warm way."}}],
    }


def test_a_function_is_a_prompt_with_its_parameters_as_arguments() -> None:
    hub = new_hub()

    @hub.prompt(title="Count up")
    async def count(start: int, step: int = 2) -> list[str]:
        """Count."""
        return [str(start), str(start + step)]

    row = listed(hub, "prompts")["count"]
    assert row["title"] == "Count up"
    assert row["arguments"] == [{"name": "start", "required": True}, {"name": "step"}]
    sent = get(hub, "count", start="40")["result"]["messages"]
    assert [message["content"]["text"] for message in sent] == ["40", "42"]


def test_a_context_imported_for_type_checkers_only_is_still_injected() -> None:
    hub = new_hub()

    @hub.prompt
    def who(name: str, ctx: Context) -> str:
        return f"{name} of {ctx.principal.id}"

    assert listed(hub, "prompts")["who"]["arguments"] == [{"name": "name", "required": True}]
    assert get(hub, "who", name="ann")["result"]["messages"][0]["content"]["text"] == "ann of anonymous"


def test_a_function_without_annotations_takes_any_arguments() -> None:
    hub = new_hub()

    @hub.prompt
    def loose(args):  # type: ignore[no-untyped-def]
        return ", ".join(sorted(args))

    assert "arguments" not in listed(hub, "prompts")["loose"]
    assert get(hub, "loose", a="1", b="2")["result"]["messages"][0]["content"]["text"] == "a, b"


@pytest.mark.parametrize("kind", [str | None, Literal["7", "8"], enum.Enum("Digit", {"SEVEN": "7"})], ids=str)
def test_a_numeric_text_stays_text_in_a_text_field(kind: Any) -> None:
    members = {"__annotations__": {"value": kind}, "messages": lambda self: f"{self.value!r}"}
    show = type("Show", (Prompt,), members)
    assert "'7'" in get(new_hub(show), "show", value="7")["result"]["messages"][0]["content"]["text"]


@pytest.mark.parametrize("arguments", [{}, {"name": "ann", "tone": "odd"}])
def test_invalid_arguments_are_a_protocol_error(arguments: dict[str, str]) -> None:
    assert get(new_hub(Greet), "greet", **arguments)["error"]["code"] == -32602


def test_an_unknown_prompt_is_a_protocol_error() -> None:
    error = get(new_hub(Greet), "nope")["error"]
    assert (error["code"], error["message"]) == (-32602, "Unknown prompt: nope")


def test_a_hidden_prompt_is_not_listed_but_can_be_got() -> None:
    hub = new_hub().add(Greet, hidden=True, name="secret")
    assert listed(hub, "prompts") == {}
    assert "result" in get(hub, "secret", name="ann")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("hi", [PromptMessage("user", Text("hi"))]),
        (["a", Text("b")], [PromptMessage("user", Text("a")), PromptMessage("user", Text("b"))]),
        (Image(b"x", "image/png"), [PromptMessage("user", Image(b"x", "image/png"))]),
        ({"role": "assistant", "content": "yes"}, [PromptMessage("assistant", Text("yes"))]),
        (
            [{"role": "user", "content": {"type": "text", "text": "raw"}}],
            [PromptMessage("user", {"type": "text", "text": "raw"})],
        ),
        (PromptMessage("assistant", Text("done")), [PromptMessage("assistant", Text("done"))]),
        ([], []),
    ],
)
def test_a_returned_value_becomes_messages(value: Any, expected: list[PromptMessage]) -> None:
    assert to_messages(value) == expected


@pytest.mark.parametrize("value", [3, {"role": "system", "content": "x"}, {"role": "user"}, [None]])
def test_a_value_that_is_not_a_message_is_refused(value: Any) -> None:
    with pytest.raises(DefinitionError, match="A prompt returns text"):
        to_messages(value)


@pytest.mark.parametrize(
    "content", [5, None, [Text("a"), Text("b")], {"foo": 1}, {"type": "text"}, {"type": ["text"]}, {"type": "video"}]
)
def test_invalid_content_of_a_message_is_refused(content: Any) -> None:
    with pytest.raises(DefinitionError, match="whose content is text or one content block"):
        to_messages({"role": "user", "content": content})


def test_choices_are_offered_as_completions() -> None:
    async def scenario() -> list[Any]:
        async with connected(new_hub(Greet)) as client:
            ref = {"type": "ref/prompt", "name": "greet"}
            return [
                (await client.result("completion/complete", ref=ref, argument={"name": name, "value": value}))
                for name, value in [("tone", ""), ("tone", "W"), ("name", "a")]
            ]

    everything, one, none = [answer["completion"] for answer in asyncio.run(scenario())]
    assert everything == {"values": ["warm", "cool"], "total": 2, "hasMore": False}
    assert one["values"] == ["warm"]
    assert none["values"] == []


def test_an_invalid_option_is_refused_with_the_name_of_the_prompt() -> None:
    with pytest.raises(DefinitionError, match=r"^Prompt Bad: unknown option 'timeuot', did you mean 'timeout'\?"):

        class Bad(Prompt, timeuot=3):
            def messages(self) -> str:
                return ""


def test_a_prompt_without_messages_is_refused_when_registered() -> None:
    class Empty(Prompt):
        pass

    with pytest.raises(DefinitionError, match=r"Prompt Empty has no messages\(\) method"):
        new_hub(Empty)
