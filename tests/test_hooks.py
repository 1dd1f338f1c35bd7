"""Several functions for one hook: they run in the order of registration, each going on to the next."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from waypost import Context, DefinitionError, Hub, Session
from waypost.testing import connect
from waypost.wire.versions import LATEST_LEGACY


def wrapped(hub: Hub, word: str) -> None:
    @hub.on("tool_call")
    async def around(name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        result = await Hub.on_tool_call(hub, name, arguments, ctx)
        return f"{word}({result if isinstance(result, str) else result.content[0].text})"


def hub_with_tool(kind: type[Hub] = Hub) -> Hub:
    hub = kind("stacked", version="1")
    hub.tool(lambda: "core", name="speak")
    return hub


@asynchronous
async def test_wrapping_hooks_go_on_to_the_next_and_then_to_the_hub() -> None:
    hub = hub_with_tool()
    wrapped(hub, "first")
    wrapped(hub, "second")
    async with connect(hub) as client:
        assert (await client.call_tool("speak")).text == "first(second(core))"
        assert (await client.call_tool("speak")).text == "first(second(core))"


@asynchronous
async def test_a_method_of_a_subclass_runs_after_registered_functions() -> None:
    class Loud(Hub):
        async def on_tool_call(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
            result = await super().on_tool_call(name, arguments, ctx)
            return f"loud({result.content[0].text})"

    hub = hub_with_tool(Loud)
    wrapped(hub, "first")
    async with connect(hub) as client:
        assert (await client.call_tool("speak")).text == "first(loud(core))"


@asynchronous
async def test_functions_that_go_on_by_the_method_of_the_hub_reach_a_subclass_once() -> None:
    class Loud(Hub):
        async def on_tool_call(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
            result = await super().on_tool_call(name, arguments, ctx)
            return f"loud({result.content[0].text})"

    hub = hub_with_tool(Loud)
    for word in ("first", "second"):

        @hub.on("tool_call")
        async def around(name: str, arguments: dict[str, Any], ctx: Context, word: str = word) -> Any:
            return f"{word}({await hub.on_tool_call(name, arguments, ctx)})"

    async with connect(hub) as client:
        assert (await client.call_tool("speak")).text == "first(second(loud(core)))"


@asynchronous
async def test_a_hook_that_does_not_go_on_answers_alone() -> None:
    hub = hub_with_tool()
    hub.on("tool_call")(lambda name, arguments, ctx: "mine")
    wrapped(hub, "never")
    async with connect(hub) as client:
        assert (await client.call_tool("speak")).text == "mine"


@asynchronous
async def test_list_hooks_stack_too() -> None:
    hub = hub_with_tool()
    seen: list[str] = []

    for word in ("first", "second"):

        @hub.on("list_tools")
        async def listed(cursor: str | None, ctx: Context, word: str = word) -> Any:
            seen.append(word)
            return await Hub.on_list_tools(hub, cursor, ctx)

    async with connect(hub) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["speak"]
    assert seen == ["first", "second"]


@asynchronous
async def test_notifying_hooks_all_run_and_the_first_answer_counts() -> None:
    hub = hub_with_tool()
    seen: list[str] = []

    @hub.on("init")
    async def first(client_info: Any, session: Session) -> None:
        seen.append("first")

    @hub.on("init")
    def second(client_info: Any, session: Session) -> None:
        seen.append("second")

    hub.on("call")(lambda request, session: None)
    hub.on("call")(lambda request, session: f"answer to {request}")
    hub.on("call")(lambda request, session: "too late")
    async with connect(hub, LATEST_LEGACY):
        (session,) = hub.engine.sessions
        assert await hub.call(session.id, "x") == "answer to x"
    assert seen == ["first", "second"]


def test_an_unknown_hook_is_refused_where_it_is_registered() -> None:
    with pytest.raises(DefinitionError, match=r"There is no hook 'tool_list'; there are .*list_tools"):
        hub_with_tool().on("tool_list")


@pytest.mark.parametrize(("hook", "function"), [("tool_call", lambda: None), ("start", lambda hub: None)])
def test_a_function_that_cannot_take_the_arguments_of_its_hook_is_refused(hook: str, function: Any) -> None:
    with pytest.raises(DefinitionError, match="cannot be called for the hook"):
        Hub("h", version="1").on(hook)(function)
