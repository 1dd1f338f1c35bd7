"""The client for users' own tests: it speaks every version, and its failures name what is missing."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from waypost import Context, Hub, RemoteError
from waypost.testing import TestClient, connect
from waypost.wire.versions import ALL, LATEST_LEGACY, V2026_07_28

SESSIONS = [version for version in ALL if version != V2026_07_28]
ERAS = [LATEST_LEGACY, V2026_07_28]


def sample() -> Hub:
    hub = Hub("sample", version="1.0.0")

    @hub.tool
    async def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    @hub.tool
    async def count(ctx: Context) -> str:
        """Report three steps."""
        for step in (1, 2, 3):
            await ctx.progress(step, 3, f"step {step}")
        return "counted"

    @hub.tool
    async def complain(ctx: Context) -> str:
        """Log something."""
        await ctx.log("error", "ouch", {"where": "knee"})
        return "said"

    @hub.resource("docs://readme", subscribable=True)
    async def readme() -> str:
        return "# Hello"

    @hub.prompt
    def greet(name: str) -> str:
        return f"Greet {name}."

    return hub


async def failure(awaitable: Any) -> str:
    """The message of a helper that fails."""
    with pytest.raises(AssertionError) as caught:
        await awaitable
    return str(caught.value)


@pytest.mark.parametrize("version", ALL)
def test_a_client_of_every_version_uses_everything(version: str) -> None:
    async def scenario() -> None:
        async with connect(sample(), version=version) as client:
            assert client.version == version
            assert client.server_info.name == "sample"
            result = await client.call_tool("add", {"a": 1, "b": 2})
            assert (result.is_error, result.text) == (False, "3.0")
            assert [row.name for row in await client.list_tools()] == ["add", "complain", "count"]
            assert (await client.read_resource("docs://readme")).contents[0].text == "# Hello"
            assert (await client.get_prompt("greet", {"name": "Ada"})).messages[0].content.text == "Greet Ada."

    asyncio.run(scenario())


def test_the_newest_version_is_spoken_unless_another_is_asked_for() -> None:
    async def scenario() -> None:
        async with connect(sample()) as client:
            assert client.version == V2026_07_28

    asyncio.run(scenario())


@pytest.mark.parametrize("version", SESSIONS)
def test_only_sessions_can_ping(version: str) -> None:
    async def scenario() -> None:
        async with connect(sample(), version) as client:
            await client.ping()
        async with connect(sample()) as client:
            with pytest.raises(RemoteError, match="ping"):
                await client.ping()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ALL)
def test_an_error_of_the_hub_is_raised(version: str) -> None:
    async def scenario() -> None:
        async with connect(sample(), version) as client:
            with pytest.raises(RemoteError, match="Unknown tool: nothing") as caught:
                await client.call_tool("nothing")
            assert caught.value.code == -32602

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_progress_is_asserted_value_by_value(version: str) -> None:
    async def scenario() -> None:
        async with connect(sample(), version) as client:
            assert (await client.call_with_progress("count")).text == "counted"
            await client.assert_progress(1, 2, 3)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ((1, 5, 3), "progress [1, 2], expected [1, 5, 3]"),
        ((1, 2), "unexpected notification: .*'progress': 3"),
    ],
)
def test_unexpected_progress_fails_with_the_values_received(expected: tuple[int, ...], said: str) -> None:
    async def scenario() -> None:
        async with connect(sample()) as client:
            await client.call_with_progress("count")
            message = await failure(client.assert_progress(*expected))
            assert said in message or re.search(said, message)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_no_progress_comes_unless_it_is_asked_for(version: str) -> None:
    async def scenario() -> None:
        async with connect(sample(), version) as client:
            await client.call_tool("count")
            await client.refute_notification("progress")

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_notification_is_asserted_by_method_and_parameters(version: str) -> None:
    async def scenario() -> None:
        async with connect(sample(), version) as client:
            await client.set_log_level("warning")
            await client.call_tool("complain")
            await client.refute_notification("message", level="info")
            note = await client.assert_notification("message", level="error")
            assert note.params.data == {"message": "ouch", "where": "knee"}
            await client.refute_notification("message")

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["tools/list_changed", "notifications/tools/list_changed"])
def test_a_method_is_named_with_or_without_its_prefix(method: str) -> None:
    hub = sample()

    async def scenario() -> None:
        async with connect(hub, LATEST_LEGACY) as client:
            await hub.notify_changed("tools")
            assert (await client.assert_notification(method)).method == "notifications/tools/list_changed"

    asyncio.run(scenario())


def test_an_assertion_waits_for_a_notification_still_to_come() -> None:
    hub = sample()

    async def scenario() -> None:
        async with connect(hub, LATEST_LEGACY) as client:
            waiting = asyncio.create_task(client.assert_notification("prompts/list_changed"))
            await client.ping()
            assert not waiting.done()
            await hub.notify_changed("prompts")
            assert (await waiting).method == "notifications/prompts/list_changed"

    asyncio.run(scenario())


def test_a_missing_notification_fails_with_those_that_came() -> None:
    hub = sample()

    async def scenario() -> None:
        async with connect(hub, LATEST_LEGACY) as client:
            await hub.notify_changed("tools")
            message = await failure(client.assert_notification("prompts/list_changed", within=0.02))
            assert message == (
                "no notifications/prompts/list_changed came within 0.02 s; seen: ['notifications/tools/list_changed']"
            )

    asyncio.run(scenario())


def test_a_refuted_notification_that_arrives_fails_with_its_content() -> None:
    hub = sample()

    async def scenario() -> None:
        async with connect(hub, LATEST_LEGACY) as client:
            await hub.notify_changed("tools")
            message = await failure(client.refute_notification("tools/list_changed"))
            assert message.startswith("unexpected notification: ")
            assert "notifications/tools/list_changed" in message

    asyncio.run(scenario())


def test_an_asserted_notification_is_taken_out_and_others_stay() -> None:
    hub = sample()

    async def scenario() -> None:
        async with connect(hub, LATEST_LEGACY) as client:
            await hub.notify_changed("tools")
            await hub.notify_changed("prompts")
            await client.assert_notification("prompts/list_changed")
            assert [note.method for note in client.notifications] == ["notifications/tools/list_changed"]

    asyncio.run(scenario())


def test_several_clients_of_one_hub_come_and_go() -> None:
    hub = sample()

    async def scenario() -> None:
        async with connect(hub, LATEST_LEGACY) as first:
            async with connect(hub, LATEST_LEGACY) as second:
                assert len(hub.engine.sessions) == 2
                await second.ping()
            assert len(hub.engine.sessions) == 1
            await hub.notify_changed("tools")
            await first.assert_notification("tools/list_changed")
        assert len(hub.engine.sessions) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_one_hub_serves_test_after_test_each_with_a_loop_of_its_own(version: str) -> None:
    hub = sample()

    async def scenario() -> None:
        async with connect(hub, version) as client:
            if version == V2026_07_28:
                async with client.listen(toolsListChanged=True):
                    await hub.notify_changed("tools")
                    await client.assert_notification("tools/list_changed")
            else:
                await hub.notify_changed("tools")
                await client.assert_notification("tools/list_changed")

    for _ in range(3):
        asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_leaving_the_block_stops_the_calls_of_the_client(version: str) -> None:
    hub = Hub("slow", version="1")
    started, stopped = asyncio.Event(), asyncio.Event()

    @hub.tool
    async def wait() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async def scenario() -> None:
        async with asyncio.timeout(60):
            async with connect(hub, version) as client:
                call = asyncio.create_task(client.call_tool("wait"))
                await started.wait()
            await stopped.wait()
            await asyncio.wait({call})
            assert call.cancelled() or call.exception() is not None

    asyncio.run(scenario())


def test_a_notification_is_waited_for_as_long_as_an_answer() -> None:
    within = inspect.signature(TestClient.assert_notification).parameters["within"].default
    assert within == inspect.signature(connect).parameters["patience"].default


@pytest.mark.parametrize("version", ERAS)
def test_patience_bounds_how_long_an_answer_may_take(version: str) -> None:
    hub = Hub("slow", version="1")

    @hub.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    async def scenario() -> None:
        # The client opens within it too, also on a busy machine.
        async with connect(hub, version, patience=1) as client:
            with pytest.raises(RemoteError, match=r"did not answer within 1 s"):
                await client.call_tool("wait")

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_client_introduces_itself(version: str) -> None:
    hub = Hub("curious", version="1")

    @hub.tool
    async def who(ctx: Context) -> str:
        assert ctx.client_info is not None
        return ctx.client_info.name

    async def scenario() -> None:
        async with connect(hub, version) as client:
            assert (await client.call_tool("who")).text == "waypost"

    asyncio.run(scenario())


@asynchronous
async def test_a_block_stops_the_hub_that_it_started() -> None:
    hub, events = sample(), list[str]()
    hub.on("start")(lambda: events.append("started"))
    hub.on("stop")(lambda: events.append("stopped"))
    async with connect(hub), connect(hub):
        assert events == ["started"]
    assert events == ["started", "stopped"]


@asynchronous
async def test_a_hub_runs_until_the_last_block_ends() -> None:
    hub, first_left = sample(), asyncio.Event()

    async def leave_first() -> None:
        async with connect(hub):
            pass
        first_left.set()

    async def stay() -> None:
        async with connect(hub) as client:
            await first_left.wait()
            assert await client.list_tools()

    async with asyncio.timeout(60):
        await asyncio.gather(leave_first(), stay())
    assert not hub.runtime.is_running


@asynchronous
async def test_a_block_leaves_a_hub_running_that_ran_before() -> None:
    hub, events = sample(), list[str]()
    hub.on("stop")(lambda: events.append("stopped"))
    await hub.start()
    async with connect(hub):
        pass
    assert events == []
    await hub.stop()
    assert events == ["stopped"]
