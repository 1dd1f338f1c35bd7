from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from tests.capabilities.client import connected, new_hub, text
from waypost import Context, Hub, UnknownTool
from waypost.wire.versions import ALL, LEGACY, V2024_11_05, V2025_11_25, V2026_07_28


@pytest.fixture
def hub() -> Hub:
    hub = new_hub()

    @hub.tool
    async def about(ctx: Context) -> dict[str, Any]:
        info = ctx.client_info
        return {
            "id": ctx.request_id,
            "principal": ctx.principal.id,
            "client": None if info is None else info.name,
            "session": ctx.session.id,
            "cancelled": ctx.cancelled,
        }

    @hub.tool
    async def put(key: str, value: Any, ctx: Context) -> str:
        await ctx.session.put(key, value)
        ctx.assigns[key] = value
        return str(ctx.session.assigns[key])

    @hub.tool
    async def seen(ctx: Context) -> dict[str, Any]:
        return {"session": dict(ctx.session.assigns), "call": dict(ctx.assigns)}

    return hub


@pytest.mark.parametrize("version", ALL)
def test_a_handler_can_read_its_request_and_client(hub: Hub, version: str) -> None:
    async def scenario() -> str:
        async with connected(hub, version) as client:
            return text(await client.call("about"))

    about = msgspec.json.decode(asyncio.run(scenario()))
    assert about["principal"] == "anonymous"
    assert about["client"] == (None if version == V2026_07_28 else "test")
    assert isinstance(about["id"], int)
    assert about["cancelled"] is False
    assert about["session"]


def test_values_put_last_for_the_session_and_assigned_ones_for_the_call(hub: Hub) -> None:
    async def scenario() -> None:
        async with connected(hub) as mine, connected(hub) as theirs:
            assert text(await mine.call("put", key="k", value="first")) == "first"
            assert text(await mine.call("put", key="k", value="last")) == "last"
            assert (await mine.call("seen"))["structuredContent"] == {"session": {"k": "last"}, "call": {}}
            assert (await theirs.call("seen"))["structuredContent"] == {"session": {}, "call": {}}

    asyncio.run(scenario())


def test_values_put_by_a_stateless_request_are_not_kept(hub: Hub) -> None:
    async def scenario() -> None:
        async with connected(hub, V2026_07_28) as client:
            assert text(await client.call("put", key="k", value="v")) == "v"
            assert (await client.call("seen"))["structuredContent"] == {"session": {}, "call": {}}

    asyncio.run(scenario())


def test_the_sessions_values_can_only_be_read(hub: Hub) -> None:
    @hub.tool
    def meddle(ctx: Context) -> None:
        ctx.session.assigns["k"] = 1  # type: ignore[index]

    async def scenario() -> dict[str, Any]:
        async with connected(hub) as client:
            return await client.call("meddle")

    assert asyncio.run(scenario())["isError"] is True


@pytest.mark.parametrize("version", ALL)
def test_progress_reaches_the_client_that_asked(hub: Hub, version: str) -> None:
    @hub.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1, 3)
        await ctx.progress(1, 3, "not news")
        await ctx.progress(2.5, 3, "almost")
        return "done"

    async def scenario() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        async with connected(hub, version) as client:
            await client.call("work")
            unasked = list(client.notifications)
            await client.result("tools/call", name="work", _meta={"progressToken": "t"})
            return unasked, client.notifications

    unasked, asked = asyncio.run(scenario())
    assert unasked == []
    last: dict[str, Any] = {"progressToken": "t", "progress": 2.5, "total": 3}
    assert [note["params"] for note in asked] == [
        {"progressToken": "t", "progress": 1, "total": 3},
        last if version == V2024_11_05 else last | {"message": "almost"},
    ]


@pytest.mark.parametrize("version", LEGACY)
def test_log_messages_reach_the_client_at_the_level_it_wants(hub: Hub, version: str) -> None:
    @hub.tool
    async def work(ctx: Context) -> None:
        await ctx.log("debug", "too fine")
        await ctx.log("warning", "look", {"at": "this"})
        await ctx.log("error", "now")

    async def scenario() -> list[Any]:
        async with connected(hub, version) as client:
            await client.call("work")
            await client.result("logging/setLevel", level="error")
            await client.call("work")
            return [note["params"] for note in client.notifications]

    assert asyncio.run(scenario()) == [
        {"level": "warning", "data": {"message": "look", "at": "this"}},
        {"level": "error", "data": "now"},
        {"level": "error", "data": "now"},
    ]


def test_a_stateless_client_gets_logs_only_when_it_asks(hub: Hub) -> None:
    @hub.tool
    async def work(ctx: Context) -> None:
        await ctx.log("info", "hello")

    async def scenario() -> list[Any]:
        async with connected(hub, V2026_07_28) as client:
            await client.call("work")
            assert client.notifications == []
            await client.result("tools/call", name="work", _meta={"io.modelcontextprotocol/logLevel": "info"})
            return [note["params"] for note in client.notifications]

    assert asyncio.run(scenario()) == [{"level": "info", "data": "hello"}]


def test_an_unknown_log_level_is_refused(hub: Hub) -> None:
    @hub.tool
    async def work(ctx: Context) -> None:
        await ctx.log("loud", "hello")

    async def scenario() -> dict[str, Any]:
        async with connected(hub) as client:
            return await client.request("tools/call", name="work")

    result = asyncio.run(scenario())["result"]
    assert result["isError"]
    assert result["content"][0]["text"].startswith("Tool crashed: ValueError: ")
    assert "loud" in result["content"][0]["text"]


def test_a_handler_calls_other_tools_through_the_same_pipeline(hub: Hub) -> None:
    @hub.tool(hidden=True)
    async def half(n: int, ctx: Context) -> float:
        return n / 2

    @hub.tool
    async def outer(n: Any, ctx: Context) -> str:
        inner = await ctx.invoke("half", {"n": n})
        return f"{inner.is_error} {inner.text}"

    @hub.tool
    async def lost(ctx: Context) -> str:
        try:
            await ctx.invoke("nobody")
        except UnknownTool as error:
            return error.message
        return "found"

    async def scenario() -> list[str]:
        async with connected(hub) as client:
            return [
                text(await client.call("outer", n=3)),
                text(await client.call("outer", n="three")),
                text(await client.call("lost")),
            ]

    good, bad, lost_text = asyncio.run(scenario())
    assert good == "False 1.5"
    assert bad.startswith("True Invalid arguments for tool half: n: ")
    assert lost_text == "Unknown tool: nobody"


def test_a_handler_can_report_that_a_resource_changed(hub: Hub) -> None:
    @hub.resource("docs://page", subscribable=True)
    def page() -> str:
        return ""

    @hub.tool
    async def touch(ctx: Context) -> None:
        await ctx.notify_resource_updated("docs://page")

    async def scenario() -> list[Any]:
        async with connected(hub) as client:
            await client.result("resources/subscribe", uri="docs://page")
            await client.call("touch")
            return [note["params"] for note in client.notifications]

    assert asyncio.run(scenario()) == [{"uri": "docs://page"}]


def test_a_synchronous_handler_can_see_that_it_was_cancelled(hub: Hub) -> None:
    started, seen, released = threading.Event(), threading.Event(), threading.Event()

    @hub.tool
    def patient(ctx: Context) -> None:
        started.set()
        while not ctx.cancelled and not released.wait(0.001):
            pass
        seen.set()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with connected(hub, V2025_11_25) as client:
            running = asyncio.create_task(client.request("tools/call", name="patient"))
            assert await loop.run_in_executor(None, started.wait, 10)
            client.notify("notifications/cancelled", requestId=2)
            assert await loop.run_in_executor(None, seen.wait, 10)
            running.cancel()

    try:
        asyncio.run(scenario())
    finally:
        released.set()
