"""Hooks of requests: what they see, replace and refuse, and what a crash in one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.lifecycle.hubs import BOTH, fill, only_session, plain, talking
from tests.protocol.conftest import asynchronous, in_session, notification, until
from waypost import Context, Hub
from waypost.capabilities.context import Session
from waypost.errors import DefinitionError, RemoteError, ToolError
from waypost.hooks import HOOKS
from waypost.wire.versions import ALL, V2026_07_28


class Recording(Hub):
    """A hub whose hooks record every step and pass it on."""

    def __init__(self) -> None:
        super().__init__("recording", version="1")
        self.steps: list[Any] = []
        fill(self)

    async def on_init(self, client_info: Any, session: Session) -> None:
        self.steps.append(("init", client_info.name, session.id))
        await super().on_init(client_info, session)

    async def on_request(self, method: str, params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        self.steps.append(("request", method))
        return await super().on_request(method, params, ctx)

    async def on_tool_call(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        self.steps.append(("tool_call", name, arguments))
        return await super().on_tool_call(name, arguments, ctx)

    async def on_resource_read(self, uri: str, ctx: Context) -> Any:
        self.steps.append(("resource_read", uri))
        return await super().on_resource_read(uri, ctx)

    async def on_prompt_get(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        self.steps.append(("prompt_get", name, arguments))
        return await super().on_prompt_get(name, arguments, ctx)

    async def on_terminate(self, reason: str, session: Session) -> None:
        self.steps.append(("terminate", reason, session.id))
        await super().on_terminate(reason, session)


@BOTH
def test_a_subclass_sees_every_step_and_passes_it_on(version: str) -> None:
    hub = Recording()

    @asynchronous
    async def run() -> None:
        async with talking(hub, version) as client:
            hub.steps.clear()
            assert (await client.call_tool("shout", {"text": "hi"})).text == "HI"
            assert (await client.read_resource("docs://readme")).text == "# Hello"
            assert (await client.get_prompt("greet", {"name": "Ada"})).text == "Greet Ada."

    run()
    assert [step for step in hub.steps if step[0] not in ("terminate",)] == [
        ("request", "tools/call"),
        ("tool_call", "shout", {"text": "hi"}),
        ("request", "resources/read"),
        ("resource_read", "docs://readme"),
        ("request", "prompts/get"),
        ("prompt_get", "greet", {"name": "Ada"}),
    ]


@asynchronous
async def test_hooks_that_pass_everything_on_do_not_change_results() -> None:
    async def answers(hub: Hub) -> list[Any]:
        async with talking(hub, V2026_07_28) as client:
            asked: tuple[tuple[str, dict[str, Any]], ...] = (
                ("tools/list", {}),
                ("tools/call", {"name": "shout", "arguments": {"text": "hi"}}),
                ("resources/read", {"uri": "docs://readme"}),
                ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
            )
            found: list[Any] = []
            for method, params in asked:
                result = dict(await client.request(method, params))
                result.pop("_meta")
                found.append(result)
            return found

    handed_on, usual = await answers(Recording()), await answers(plain())
    for mine, other in zip(handed_on, usual, strict=True):
        if other.get("cacheScope") == "private":
            assert mine["cacheScope"] == "private"
        assert {**mine, "cacheScope": ""} == {**other, "cacheScope": ""}


@asynchronous
async def test_a_session_begins_with_init_and_ends_with_terminate() -> None:
    hub = Recording()
    async with talking(hub) as client:
        session_id = only_session(hub).id
        await client.ping()
    named = [step for step in hub.steps if step[0] in ("init", "terminate")]
    assert named == [("init", "waypost", session_id), ("terminate", "disconnected", session_id)]


@BOTH
def test_hook_functions_replace_the_hubs_own_results(version: str) -> None:
    hub = plain()

    @hub.on("tool_call")
    async def on_tool_call(name: str, arguments: dict[str, Any], ctx: Context) -> str:
        return f"{name} for {ctx.client_info.name if ctx.client_info else '?'}"

    @hub.on("resource_read")
    def on_resource_read(uri: str, ctx: Context) -> str:
        return f"contents of {uri}"

    @hub.on("prompt_get")
    def on_prompt_get(name: str, arguments: dict[str, Any], ctx: Context) -> str:
        return f"prompt {name}"

    @asynchronous
    async def run() -> None:
        async with talking(hub, version) as client:
            assert (await client.call_tool("nobody wrote this")).text == "nobody wrote this for waypost"
            assert (await client.read_resource("any://where")).text == "contents of any://where"
            assert (await client.get_prompt("any")).text == "prompt any"

    run()


@BOTH
def test_a_request_hook_answers_unknown_methods(version: str) -> None:
    hub = plain()

    @hub.on("request")
    async def on_request(method: str, params: dict[str, Any], ctx: Context) -> Any:
        if method == "weather/today":
            return {"sun": True, "where": params["where"], "_meta": {"mine": 1}}
        return await hub.on_request(method, params, ctx)

    @asynchronous
    async def run() -> None:
        async with talking(hub, version) as client:
            answer = await client.request("weather/today", {"where": "here"})
            assert (answer["sun"], answer["where"], answer["_meta"]["mine"]) == (True, "here", 1)
            assert (await client.call_tool("shout", {"text": "hi"})).text == "HI"
            with pytest.raises(RemoteError) as caught:
                await client.request("weather/tomorrow")
            assert caught.value.code == -32601

    run()


def test_a_hook_that_does_not_exist_is_refused_where_it_is_written() -> None:
    with pytest.raises(DefinitionError, match="no hook 'tool'"):
        plain().on("tool")


def test_every_hook_is_a_method_to_override() -> None:
    plain_names = {"server_info", "server_capabilities", "supported_protocol_versions", "instructions"}
    for name in HOOKS:
        assert callable(getattr(Hub, name if name in plain_names else f"on_{name}")), name


@asynchronous
async def test_notifications_of_a_session_reach_the_hook_in_order() -> None:
    hub = plain()
    seen: list[Any] = []

    @hub.on("notification")
    async def on_notification(method: str, params: dict[str, Any], ctx: Context) -> None:
        await asyncio.sleep(0)
        seen.append((method, params))

    async with in_session(hub) as peer:
        for number in range(3):
            peer.send(notification("notifications/mine", {"number": number}))
        await until(lambda: len(seen) == 4)
    assert seen == [
        ("notifications/initialized", {}),
        *(("notifications/mine", {"number": number}) for number in range(3)),
    ]


@BOTH
def test_a_crash_in_a_hook_ends_that_call_only(version: str, caplog: pytest.LogCaptureFixture) -> None:
    hub = plain()

    @hub.on("tool_call")
    async def on_tool_call(name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        if arguments["text"] == "crash":
            raise RuntimeError("the hook broke")
        if arguments["text"] == "say":
            raise ToolError("not today")
        return await hub.on_tool_call(name, arguments, ctx)

    @asynchronous
    async def run() -> None:
        async with talking(hub, version) as client:
            crashed = await client.call_tool("shout", {"text": "crash"})
            assert crashed.is_error
            said = await client.call_tool("shout", {"text": "say"})
            assert said.is_error
            assert said.text == "not today"
            assert (await client.call_tool("shout", {"text": "hi"})).text == "HI"

    run()


@BOTH
def test_a_crash_in_a_request_hook_is_an_internal_error_without_details(version: str) -> None:
    hub = plain()

    @hub.on("request")
    async def on_request(method: str, params: dict[str, Any], ctx: Context) -> Any:
        if method == "prompts/list":
            raise RuntimeError("secret path")
        return await hub.on_request(method, params, ctx)

    @asynchronous
    async def run() -> None:
        async with talking(hub, version) as client:
            with pytest.raises(RemoteError) as caught:
                await client.list_prompts()
            assert caught.value.code == -32603
            assert "secret" not in caught.value.message
            assert await client.list_tools()

    run()


@asynchronous
async def test_an_init_hook_that_raises_refuses_the_client() -> None:
    hub = plain()

    @hub.on("init")
    async def on_init(client_info: Any, session: Session) -> None:
        raise ToolError("not you")

    with pytest.raises(RemoteError, match="not you"):
        async with talking(hub):
            raise AssertionError("it got in")
    assert len(hub.engine.sessions) == 0


class Introduced(Hub):
    def server_info(self) -> Mapping[str, Any]:
        return {"name": "other", "version": "7"}

    def instructions(self) -> str:
        return "Mind the gap."

    def supported_protocol_versions(self) -> list[str]:
        return [version for version in ALL if version != V2026_07_28]


def introduced() -> Hub:
    hub = plain()
    hub.on("server_info")(lambda: {"name": "other", "version": "7"})
    hub.on("instructions")(lambda: "Mind the gap.")
    hub.on("supported_protocol_versions")(lambda: [version for version in ALL if version != V2026_07_28])
    return hub


@pytest.mark.parametrize("make", [introduced, lambda: fill(Introduced("plain", version="1"))])
def test_a_hub_may_introduce_itself_differently(make: Callable[[], Hub]) -> None:
    @asynchronous
    async def run() -> None:
        hub = make()
        async with talking(hub) as client:
            assert (client.server_info["name"], client.server_info["version"]) == ("other", "7")
            assert hub.engine.profile.instructions == "Mind the gap."
        with pytest.raises(RemoteError) as caught:
            async with talking(make(), V2026_07_28):
                raise AssertionError("it got in")
        assert caught.value.code == -32022

    run()
