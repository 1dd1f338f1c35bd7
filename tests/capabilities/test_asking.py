from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, in_session, request, stateless
from waypost import Context, Hub, Image, Text
from waypost.capabilities.questions import (
    Root,
    as_sampling_messages,
    check_supported,
    parse_roots,
    parse_sampling_answer,
    sampling_question,
)
from waypost.errors import CapabilityNotSupported, InvalidAnswer
from waypost.testing import connect
from waypost.upstreams.jsonrpc import Reply
from waypost.wire.params import CLIENT_CAPABILITIES
from waypost.wire.versions import LATEST_LEGACY, V2025_06_18, V2026_07_28

BOTH = pytest.mark.parametrize("version", [LATEST_LEGACY, V2026_07_28])
SAID = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m", "stopReason": "endTurn"}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.parametrize(
    ("offered", "needed"),
    [
        ({"sampling": {}}, {"sampling": {}}),
        ({"sampling": {"tools": {}}}, {"sampling": {"tools": {}}}),
        ({"roots": {"listChanged": True}}, {"roots": {}}),
        ({"elicitation": {}}, {"elicitation": {"form": {}}}),
        ({"elicitation": {"form": {}}}, {"elicitation": {"form": {}}}),
        ({"elicitation": {"form": {}, "url": {}}}, {"elicitation": {"url": {}}}),
        ({"elicitation": {"form": None, "url": None}}, {"elicitation": {"form": {}}}),
        ({}, {}),
    ],
)
def test_a_question_that_the_client_supports_is_allowed(offered: dict[str, Any], needed: dict[str, Any]) -> None:
    check_supported(offered, needed)


@pytest.mark.parametrize(
    ("offered", "needed"),
    [
        ({}, {"sampling": {}}),
        ({"elicitation": {}}, {"sampling": {}}),
        ({"sampling": {}}, {"sampling": {"tools": {}}}),
        ({}, {"roots": {}}),
        ({}, {"elicitation": {"form": {}}}),
        ({"elicitation": {}}, {"elicitation": {"url": {}}}),
        ({"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ({"elicitation": {"form": {}, "url": None}}, {"elicitation": {"url": {}}}),
        ({"elicitation": 5}, {"elicitation": {"form": {}}}),
        ({"elicitation": True}, {"elicitation": {"form": {}}}),
        ({"elicitation": "form"}, {"elicitation": {"form": {}}}),
        ({"elicitation": ["form"]}, {"elicitation": {"form": {}}}),
        ({"sampling": 5}, {"sampling": {}}),
        ({"roots": None}, {"roots": {}}),
    ],
)
def test_a_question_that_the_client_does_not_support_is_refused(
    offered: dict[str, Any], needed: dict[str, Any]
) -> None:
    with pytest.raises(CapabilityNotSupported) as caught:
        check_supported(offered, needed)
    assert caught.value.data == {"requiredCapabilities": needed}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("hi", [{"role": "user", "content": {"type": "text", "text": "hi"}}]),
        (Text("hi"), [{"role": "user", "content": {"type": "text", "text": "hi"}}]),
        (
            ["one", {"role": "assistant", "content": "two"}],
            [
                {"role": "user", "content": {"type": "text", "text": "one"}},
                {"role": "assistant", "content": {"type": "text", "text": "two"}},
            ],
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
        ),
    ],
)
def test_sampling_messages_may_be_given_in_many_forms(given: Any, sent: Any) -> None:
    assert as_sampling_messages(given) == sent


def test_an_image_for_a_model_is_sent_as_base64() -> None:
    (message,) = as_sampling_messages(Image(b"\x89PNG", "image/png"))
    assert message["content"] == {"type": "image", "data": "iVBORw==", "mimeType": "image/png"}


@pytest.mark.parametrize("given", [1, None, {"content": "x"}, [{"role": "user"}]])
def test_an_invalid_sampling_message_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="message for sampling"):
        as_sampling_messages(given)


def test_sampling_options_are_sent_under_the_names_of_the_protocol() -> None:
    options = {
        "system_prompt": "Be brief.",
        "model_preferences": {"hints": []},
        "temperature": 0.0,
        "stop_sequences": ["."],
        "include_context": "none",
        "metadata": {"a": 1},
        "tool_choice": None,
    }
    question = sampling_question("hi", options, 7, None, 1.0)
    assert {name: value for name, value in question.params.items() if name != "messages"} == {
        "maxTokens": 7,
        "systemPrompt": "Be brief.",
        "modelPreferences": {"hints": []},
        "temperature": 0.0,
        "stopSequences": ["."],
        "includeContext": "none",
        "metadata": {"a": 1},
    }
    assert question.needs == {"sampling": {}}


def test_sampling_with_tools_needs_a_client_that_supports_them() -> None:
    question = sampling_question("hi", {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}, 7, None, 1.0)
    assert question.needs == {"sampling": {"tools": {}}}


def test_a_sampling_result_is_parsed_into_content() -> None:
    said = parse_sampling_answer(SAID)
    assert (said.role, said.model, said.stop_reason, said.text) == ("assistant", "m", "endTurn", "Paris")
    assert said.content == Text("Paris")


def test_a_sampling_result_may_have_several_and_unknown_content_blocks() -> None:
    use = {"type": "tool_use", "id": "1", "name": "t", "input": {}}
    said = parse_sampling_answer({"role": "assistant", "content": [{"type": "text", "text": "a"}, use], "model": "m"})
    assert said.content == [Text("a"), use]
    assert said.text == "a"


@pytest.mark.parametrize(
    "result",
    [None, 5, {}, {"role": "assistant"}, {"role": 1, "content": {}}, {"role": "a", "content": {"type": "text"}}],
)
def test_a_malformed_sampling_result_is_refused(result: Any) -> None:
    with pytest.raises(InvalidAnswer, match="malformed"):
        parse_sampling_answer(result)


def test_roots_are_parsed() -> None:
    places = parse_roots({"roots": [{"uri": "file:///a", "name": "a"}, {"uri": "file:///b", "_meta": {}}]})
    assert places == [Root("file:///a", "a"), Root("file:///b")]


@pytest.mark.parametrize("result", [None, {}, {"roots": {}}, {"roots": [{}]}, {"roots": ["file:///a"]}])
def test_roots_that_are_malformed_are_refused(result: Any) -> None:
    with pytest.raises(InvalidAnswer, match="malformed"):
        parse_roots(result)


def curious() -> Hub:
    hub = Hub("curious", version="1")

    @hub.tool
    async def who(ctx: Context) -> str:
        """Ask for a name."""
        answer = await ctx.elicit("Who?", NAME, key="who")
        return f"{answer.action} {answer.content}"

    @hub.tool
    async def visit(ctx: Context) -> str:
        """Ask to open a page."""
        return (await ctx.elicit("Open it", url="https://example.com/a")).action

    @hub.tool
    async def think(ctx: Context) -> str:
        """Ask the model."""
        return (await ctx.sample("Capital of France?", max_tokens=5)).text

    @hub.tool
    async def where(ctx: Context) -> str:
        """Ask for the roots."""
        return " ".join(root.uri for root in await ctx.roots())

    @hub.tool
    async def several(ctx: Context) -> str:
        """Ask for several choices."""
        schema = {"a": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}}}
        return str((await ctx.elicit("Which?", {"type": "object", "properties": schema})).content)

    return hub


async def call(name: str, version: str, **answers: Any) -> Reply:
    hub = curious()
    try:
        async with connect(hub, version, **answers) as client:
            return await client.call_tool(name)
    finally:
        await hub.stop()


@BOTH
def test_a_tool_asks_the_client_and_continues_with_the_answers(version: str) -> None:
    seen: list[dict[str, Any]] = []

    def fill_in(params: dict[str, Any]) -> dict[str, Any]:
        seen.append(params)
        return {"action": "accept", "content": {"name": "Ada"}}

    @asynchronous
    async def run() -> None:
        assert (await call("who", version, elicitation=fill_in)).text == "accept {'name': 'Ada'}"
        assert (await call("visit", version, elicitation=lambda params: {"action": "decline"})).text == "decline"
        assert (await call("think", version, sampling=lambda params: SAID)).text == "Paris"
        assert (await call("where", version, roots=lambda params: {"roots": [{"uri": "file:///w"}]})).text == (
            "file:///w"
        )

    run()
    assert seen == [{"mode": "form", "message": "Who?", "requestedSchema": NAME}]


def test_a_client_of_2025_06_18_gets_no_mode_and_no_multiple_choice() -> None:
    seen: list[dict[str, Any]] = []

    def fill_in(params: dict[str, Any]) -> dict[str, Any]:
        seen.append(params)
        return {"action": "cancel"}

    @asynchronous
    async def run() -> None:
        assert (await call("who", V2025_06_18, elicitation=fill_in)).text == "cancel None"
        assert (await call("several", V2025_06_18, elicitation=fill_in)).is_error

    run()
    assert seen == [{"message": "Who?", "requestedSchema": NAME}]


@BOTH
@pytest.mark.parametrize(
    ("tool", "answers"),
    [
        ("who", {"elicitation": {"action": "accept", "content": {"name": 1}}}),
        ("who", {"elicitation": {"action": "accept"}}),
        ("who", {"elicitation": {"action": "perhaps"}}),
        ("think", {"sampling": {"content": {}}}),
        ("where", {"roots": {"roots": "none"}}),
    ],
)
def test_an_answer_that_does_not_match_the_schema_fails_the_call(
    version: str, tool: str, answers: dict[str, Any]
) -> None:
    @asynchronous
    async def run() -> None:
        result = await call(
            tool, version, **{name: lambda _, outcome=outcome: outcome for name, outcome in answers.items()}
        )
        assert result.is_error
        assert "answer" in result.text

    run()


@pytest.mark.parametrize("tool", ["who", "visit", "think", "where"])
def test_a_session_without_capabilities_is_not_asked(tool: str) -> None:
    @asynchronous
    async def run() -> None:
        async with in_session(curious()) as peer:
            result = await peer.result(request(1, "tools/call", {"name": tool}))
            assert result["isError"]
            assert "does not support" in result["content"][0]["text"]
            assert [message for message in peer.received if "method" in message] == []

    run()


@pytest.mark.parametrize(
    ("tool", "offered", "required"),
    [
        ("who", {}, {"elicitation": {"form": {}}}),
        ("who", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ("visit", {"elicitation": {}}, {"elicitation": {"url": {}}}),
        ("think", {"roots": {}}, {"sampling": {}}),
        ("where", {"sampling": {}}, {"roots": {}}),
    ],
)
def test_a_stateless_client_without_the_capability_gets_an_error(
    tool: str, offered: dict[str, Any], required: dict[str, Any]
) -> None:
    @asynchronous
    async def run() -> None:
        async with in_session(curious()) as peer:
            error = await peer.error(stateless(1, "tools/call", {"name": tool}, **{CLIENT_CAPABILITIES: offered}))
            assert error["code"] == -32021
            assert error["data"] == {"requiredCapabilities": required}

    run()


@BOTH
def test_a_step_runs_once_per_call(version: str) -> None:
    hub = Hub("hub", version="1")
    done: list[str] = []

    @hub.tool
    async def step(ctx: Context) -> str:
        """Do a step."""
        return " ".join([await ctx.once("a", lambda: done.append("a") or str(len(done))) for _ in range(2)])  # type: ignore[func-returns-value]

    @hub.tool
    async def steps(ctx: Context) -> str:
        """Do it in two calls."""
        return " ".join([(await ctx.invoke("step")).text for _ in range(2)])

    @asynchronous
    async def run() -> None:
        async with connect(hub, version) as client:
            assert (await client.call_tool("step")).text == "1 1"
            assert (await client.call_tool("steps")).text == "2 2 3 3"
        await hub.stop()

    run()


@asynchronous
async def test_a_key_identifies_one_question_of_a_stateless_request() -> None:
    hub = Hub("hub", version="1")

    @hub.tool
    async def two(ctx: Context) -> str:
        """Ask two things under one key."""
        for message in ("Who?", "And who else?"):
            await ctx.elicit(message, NAME, key="who")
        return "asked"

    @hub.tool
    async def same(ctx: Context) -> str:
        """Ask one thing twice."""
        return " ".join([(await ctx.elicit("Who?", NAME, key="who")).action for _ in range(2)])

    async with connect(hub, elicitation=lambda _: {"action": "decline"}) as client:
        refused = await client.call_tool("two")
        assert refused.is_error
        assert refused.text == "The key 'who' is that of another question of this call; give each its own."
        assert (await client.call_tool("same")).text == "decline decline"
    await hub.stop()
