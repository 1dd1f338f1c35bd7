"""Hooks that answer for unregistered capabilities: the shapes they may return, and their deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.lifecycle.hubs import BOTH, plain, talking
from tests.protocol.conftest import asynchronous
from waypost import Context, Hub, RemoteError
from waypost.wire.versions import LATEST_LEGACY, V2024_11_05, V2025_11_25

ROW = {"name": "made", "inputSchema": {"type": "object"}, "title": "Made"}


class Answering(Hub):
    """A hub that answers everything by hooks and has nothing registered."""

    async def on_list_resources(self, cursor: str | None, ctx: Context) -> Any:
        return {"resources": [{"uri": "made://1", "name": "one"}]}

    async def on_resource_read(self, uri: str, ctx: Context) -> Any:
        return f"read {uri}"

    async def on_list_prompts(self, cursor: str | None, ctx: Context) -> Any:
        return [{"name": "made"}]

    async def on_prompt_get(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        return f"prompt {name}"

    async def on_completion(self, ref: str, argument: Mapping[str, Any], ctx: Context) -> list[str]:
        return [f"{ref} {argument['name']}"]


def completing(ref: dict[str, str]) -> dict[str, Any]:
    return {"ref": ref, "argument": {"name": "n", "value": "v"}}


@BOTH
@asynchronous
async def test_resources_and_prompts_of_hooks_need_not_be_registered_or_declared(version: str) -> None:
    async with talking(Answering("answering", version="1"), version) as client:
        assert client.server_capabilities.keys() >= {"resources", "prompts", "completions"}
        assert [row["uri"] for row in await client.list_resources()] == ["made://1"]
        assert (await client.read_resource("made://1"))["contents"][0]["text"] == "read made://1"
        assert [row["name"] for row in await client.list_prompts()] == ["made"]
        assert (await client.get_prompt("made", {}))["messages"][0]["content"]["text"] == "prompt made"


@pytest.mark.parametrize("hook", ["list_resources", "list_resource_templates", "resource_read"])
@asynchronous
async def test_any_hook_about_resources_offers_them(hook: str) -> None:
    hub = Hub("hub", version="1")
    async with talking(hub) as client:
        with pytest.raises(RemoteError, match="Method not found"):
            await client.list_resources()
        hub.on(hook)(lambda *_: [])
        assert await client.list_resources() == []


@BOTH
@asynchronous
async def test_a_hook_completes_arguments_of_unregistered_prompts_and_templates(version: str) -> None:
    async with talking(Answering("answering", version="1"), version) as client:
        for ref, place in (
            ({"type": "ref/prompt", "name": "made"}, "made"),
            ({"type": "ref/resource", "uri": "made://{id}"}, "made://{id}"),
        ):
            answer = await client.request("completion/complete", completing(ref))
            assert answer["completion"]["values"] == [f"{place} n"]
        with pytest.raises(RemoteError, match="A completion needs a ref"):
            await client.request("completion/complete", completing({"type": "ref/prompt"}))


@asynchronous
async def test_without_a_hook_only_registered_prompts_and_templates_are_completed() -> None:
    async with talking(plain()) as client:
        for ref in ({"type": "ref/prompt", "name": "made"}, {"type": "ref/resource", "uri": "made://{id}"}):
            with pytest.raises(RemoteError, match="made"):
                await client.request("completion/complete", completing(ref))


@pytest.mark.parametrize("version", [V2024_11_05, LATEST_LEGACY])
@asynchronous
async def test_a_list_hook_may_return_the_result_of_the_method(version: str) -> None:
    hub = plain()

    @hub.on("list_tools")
    def rows(cursor: str | None, ctx: Context) -> dict[str, Any]:
        return {"tools": [ROW]} if cursor else {"tools": [{**ROW, "name": "first"}], "nextCursor": "more"}

    async with talking(hub, version) as client:
        listed = await client.list_tools()
        assert [row["name"] for row in listed] == ["first", "made"]
        assert ("title" in listed[0]) is (version != V2024_11_05)


@asynchronous
async def test_a_list_hook_with_a_wrong_result_is_an_error_that_names_the_hook() -> None:
    hub = plain()
    hub.on("list_tools")(lambda cursor, ctx: {"items": [ROW]})
    async with talking(hub) as client:
        with pytest.raises(RemoteError, match="on_list_tools returns definitions"):
            await client.list_tools()


@BOTH
@asynchronous
async def test_a_hook_that_never_answers_a_call_is_held_to_the_deadline(version: str) -> None:
    hub = plain(tool_timeout=0.05)

    @hub.on("tool_call")
    async def never(name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        await asyncio.Event().wait()

    async with talking(hub, version) as client:
        result = await client.call_tool("shout", {"text": "hi"})
        assert (result["isError"], result.text) == (True, "Tool execution timed out")


class Wrapping(Hub):
    """A hub whose hook passes every call on."""

    async def on_tool_call(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        return await super().on_tool_call(name, arguments, ctx)


@asynchronous
async def test_a_hook_that_hands_on_waits_for_as_long_as_the_tool_may_take() -> None:
    asked = asyncio.Event()

    async def slowly(_params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.wait_for(asked.wait(), 60)
        return {"roots": []}

    hub = Wrapping("wrapping", version="1", tool_timeout=1.0)  # the tool has to ask within it

    @hub.tool
    async def patient(ctx: Context) -> str:
        """Ask a client that takes longer than a tool may."""
        asyncio.get_running_loop().call_later(1.5, asked.set)
        return str(await ctx.roots())

    @hub.tool(timeout=0.05)
    async def stuck() -> str:
        """Never return."""
        await asyncio.Event().wait()
        return "never"

    async with talking(hub, V2025_11_25, roots=slowly) as client:
        assert (await client.call_tool("patient")).text == "[]"
        assert (await client.call_tool("stuck")).text == "Tool execution timed out"


@BOTH
@asynchronous
async def test_the_result_of_a_tool_call_hook_must_fit_the_output_schema(version: str) -> None:
    hub = Hub("hub", version="1")

    @hub.tool(output={"ok": {"type": "boolean", "required": True}})
    def work() -> dict[str, bool]:
        """Promise something."""
        return {"ok": True}

    answers: list[Any] = ["hello", {"ok": "yes"}, {"ok": False}]
    hub.on("tool_call")(lambda name, arguments, ctx: answers.pop(0))
    async with talking(hub, version) as client:
        for answer in ("structured content is missing", "ok: "):
            refused = await client.call_tool("work")
            assert refused["isError"] is True
            assert f"Tool work returned a result that does not fit its output schema: {answer}" in refused.text
        assert (await client.call_tool("work")).structured == {"ok": False}


@BOTH
@pytest.mark.parametrize("way", ["send", "call", "cast"])
@asynchronous
async def test_a_tool_that_sends_to_an_ended_session_fails(version: str, way: str) -> None:
    hub = Hub("hub", version="1")

    @hub.tool
    async def reach() -> str:
        """Send to a session."""
        await getattr(hub, way)("gone", "hello")
        return "reached"

    async with talking(hub, version) as client:
        result = await client.call_tool("reach")
    assert (result["isError"], result.text) == (True, "There is no session gone.")
