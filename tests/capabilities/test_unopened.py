"""Results that are raw JSON: not parsed on the way to a client, and decoded for other tools."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from tests.capabilities.client import call
from waypost import Context, Hub
from waypost.capabilities.results import decode_result, to_result


@pytest.mark.parametrize(
    ("json", "text", "data"),
    [
        (b'{"a": 1}', '{"a": 1}', {"a": 1}),
        (b"[1, 2]", "[1, 2]", {"result": [1, 2]}),
        (b"3", "3", {"result": 3}),
        (b"true", "true", {"result": True}),
        ('"gr\u00fc\\n"'.encode(), "gr\u00fc\n", None),
        (b"null", "", None),
    ],
)
def test_raw_json_becomes_the_same_result_as_its_value(json: bytes, text: str, data: Any) -> None:
    result = decode_result(to_result(Raw(json)))
    assert (result.text, result.structured, result.is_error) == (text, data, False)


def test_a_client_gets_raw_json_unchanged_and_another_tool_gets_data() -> None:
    hub = Hub("test", version="1")

    @hub.tool(input_schema={"type": "object"})
    async def far(args: dict[str, Any]) -> Any:
        return Raw(b'{"sum": 3.0}')

    @hub.tool(input_schema={"type": "object"})
    async def near(args: dict[str, Any], ctx: Context) -> Any:
        found = await ctx.invoke("far")
        return found.structured["sum"]

    assert call(hub, "far") == {"content": [{"type": "text", "text": '{"sum": 3.0}'}], "structuredContent": {"sum": 3}}
    assert call(hub, "near")["structuredContent"] == {"result": 3.0}


def test_raw_json_that_cannot_be_decoded_is_a_failed_call_for_another_tool() -> None:
    hub = Hub("test", version="1")

    @hub.tool(input_schema={"type": "object"})
    async def far(args: dict[str, Any]) -> Any:
        return Raw(b'{"half": "\\ud800"}')

    @hub.tool(input_schema={"type": "object"})
    async def near(args: dict[str, Any], ctx: Context) -> Any:
        found = await ctx.invoke("far")
        return f"{found.is_error}: {found.text}"

    assert call(hub, "near")["content"][0]["text"].startswith("True: Tool crashed: DecodeError")
