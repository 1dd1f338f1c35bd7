"""Text that UTF-8 cannot encode: results of tools, resources and prompts are still readable."""

import logging
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, in_session, request, stateless
from waypost import EmbeddedResource, Hub, InvalidParams, Result, Text, ToolError
from waypost.policy.audit import Sink

TORN = "torn \udc80 text"
SHOWN = "torn \ufffd text"

WAYS: dict[str, Any] = {
    "text": TORN,
    "block": Text(TORN),
    "blocks": [TORN, EmbeddedResource("a://b", text=TORN)],
    "result": Result([TORN], structured={"fine": True}),
    "data": {"text": TORN},
    "refusal": ToolError(TORN),
    "crash": RuntimeError(TORN),
    "protocol": InvalidParams(TORN, {"why": TORN}),
}

ERAS = pytest.mark.parametrize("make", [request, stateless], ids=["session", "stateless"])


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep the tracebacks out of test reports, which cannot encode the text either."""
    caplog.set_level(logging.CRITICAL, logger="waypost.execution.pipeline")


def torn(sink: Sink = "none") -> Hub:
    """A hub whose handlers return text that cannot be encoded."""
    hub = Hub("torn", version="1", audit=sink, breakers=True)

    @hub.tool(input_schema={"type": "object"})
    def say(args: dict[str, Any]) -> Any:
        """Answer in one way or another."""
        answer = WAYS[args["how"]]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @hub.resource("torn://text")
    def text() -> str:
        """Cannot be sent."""
        return TORN

    @hub.resource("torn://refused")
    def refused() -> str:
        """Says so in words that cannot be sent."""
        raise ToolError(TORN)

    @hub.prompt
    def letter() -> str:
        """Cannot be sent."""
        return TORN

    @hub.prompt
    def unwritten() -> str:
        """Says so in words that cannot be sent."""
        raise ToolError(TORN)

    return hub


@ERAS
@pytest.mark.parametrize("how", ["text", "block", "blocks", "result"])
@asynchronous
async def test_text_of_a_tool_that_cannot_be_encoded_is_replaced(make: Any, how: str) -> None:
    async with in_session(torn()) as peer:
        result = await peer.result(make(1, "tools/call", {"name": "say", "arguments": {"how": how}}))
    assert "isError" not in result
    assert result["content"][0] == {"type": "text", "text": SHOWN}
    if how == "blocks":
        assert result["content"][1]["resource"]["text"] == SHOWN
    assert result.get("structuredContent") == ({"fine": True} if how == "result" else None)


@ERAS
@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("refusal", SHOWN),
        ("crash", f"Tool crashed: RuntimeError: {SHOWN}"),
        ("data", "Tool crashed: UnicodeEncodeError"),
    ],
)
@asynchronous
async def test_errors_of_a_tool_that_cannot_be_encoded_are_readable(make: Any, how: str, outcome: str) -> None:
    async with in_session(torn()) as peer:
        result = await peer.result(make(1, "tools/call", {"name": "say", "arguments": {"how": how}}))
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith(outcome)


@ERAS
@asynchronous
async def test_a_protocol_error_that_cannot_be_encoded_is_readable(make: Any) -> None:
    async with in_session(torn()) as peer:
        error = await peer.error(make(1, "tools/call", {"name": "say", "arguments": {"how": "protocol"}}))
    assert error == {"code": -32602, "message": SHOWN, "data": {"why": SHOWN}}


@ERAS
@asynchronous
async def test_resources_and_prompts_that_cannot_be_encoded_are_readable(make: Any) -> None:
    async with in_session(torn()) as peer:
        read = await peer.result(make(1, "resources/read", {"uri": "torn://text"}))
        written = await peer.result(make(2, "prompts/get", {"name": "letter"}))
        unread = await peer.error(make(3, "resources/read", {"uri": "torn://refused"}))
        unwritten = await peer.error(make(4, "prompts/get", {"name": "unwritten"}))
    assert read["contents"][0]["text"] == SHOWN
    assert written["messages"][0]["content"]["text"] == SHOWN
    assert unread == unwritten == {"code": -32000, "message": SHOWN}


@asynchronous
async def test_the_last_error_of_a_breaker_is_readable() -> None:
    hub = torn("store")
    async with in_session(hub) as peer:
        await peer.result(request(1, "tools/call", {"name": "say", "arguments": {"how": "crash"}}))
        assert hub.guard.breakers is not None
        assert hub.guard.breakers.states()["say"].last_error == SHOWN
