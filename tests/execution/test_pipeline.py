from __future__ import annotations

import asyncio
import gc
import math
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.capabilities.client import Client, call, connected, listed, text
from waypost import Context, Hub, Result, Text, tool
from waypost.capabilities.tools import expand
from waypost.errors import InvalidOutput
from waypost.execution.pipeline import check_output
from waypost.execution.pool import Pool
from waypost.wire.versions import V2025_11_25, V2026_07_28


@pytest.fixture
def hub() -> Hub:
    return Hub("test", version="1", tool_timeout=30)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def brief(**options: Any) -> Hub:
    return Hub("test", version="1", tool_timeout=0.05, **options)


TIMED_OUT = {"content": [{"type": "text", "text": "Tool execution timed out"}], "isError": True}


def test_asynchronous_work_is_cancelled_when_its_time_is_up() -> None:
    hub = brief()
    ended = []

    @hub.tool
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    assert call(hub, "slow") == TIMED_OUT
    assert ended == ["cancelled"]


def test_work_that_swallows_a_cancellation_is_stopped_all_the_same() -> None:
    hub = brief()

    @hub.tool
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    assert call(hub, "stubborn") == TIMED_OUT


def test_synchronous_work_is_answered_in_time_and_reported(
    release: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    hub = brief()

    @hub.tool
    def slow() -> None:
        release.wait(60)

    assert call(hub, "slow") == TIMED_OUT
    assert "slow is synchronous and cannot be stopped" in caplog.text
    assert hub.engine.pipeline.pool.stuck == 1


def test_the_timeout_of_a_tool_overrides_that_of_the_hub() -> None:
    hub = Hub("test", version="1", tool_timeout=30)

    @hub.tool(timeout=0.05)
    async def slow() -> None:
        await asyncio.Event().wait()

    assert call(hub, "slow") == TIMED_OUT


def test_a_tool_may_have_a_longer_timeout_than_the_hub() -> None:
    hub = Hub("test", version="1", tool_timeout=0.001)

    @hub.tool(timeout=30)
    async def slower() -> str:
        await asyncio.sleep(0.01)
        return "done"

    assert text(call(hub, "slower")) == "done"


def test_the_timeout_of_a_nested_call_does_not_end_its_caller() -> None:
    hub = Hub("test", version="1", tool_timeout=30)

    @hub.tool(timeout=0.02)
    async def slow() -> None:
        await asyncio.Event().wait()

    @hub.tool
    async def outer(ctx: Context) -> str:
        inner = await ctx.invoke("slow")
        return f"{inner.is_error}: {inner.text}"

    assert text(call(hub, "outer")) == "True: Tool execution timed out"


def test_wrong_arguments_never_reach_the_tool(hub: Hub) -> None:
    ran = []

    @hub.tool
    def work(n: int) -> None:
        ran.append(n)

    assert call(hub, "work", n="one")["isError"] is True
    assert ran == []


def test_a_slow_tool_does_not_delay_other_requests(hub: Hub, release: threading.Event) -> None:
    started = threading.Event()

    @hub.tool
    def slow() -> str:
        started.set()
        release.wait(60)
        return "slow"

    async def scenario() -> list[str]:
        order = []
        async with connected(hub) as client:
            slow_call = asyncio.create_task(client.call("slow"))
            assert await asyncio.to_thread(started.wait, 10)
            await client.result("ping")
            order.append("ping")
            release.set()
            order.append(text(await slow_call))
        return order

    assert asyncio.run(scenario()) == ["ping", "slow"]


def test_a_call_beyond_the_limit_is_answered_with_an_error(release: threading.Event) -> None:
    hub = Hub("test", version="1")
    hub.engine.pipeline.pool = Pool(size=1, max_waiting=0)
    started = threading.Event()

    @hub.tool
    def slow() -> str:
        started.set()
        release.wait(60)
        return "through"

    async def scenario() -> tuple[dict[str, Any], dict[str, Any]]:
        async with connected(hub) as client:
            first = asyncio.create_task(client.call("slow"))
            assert await asyncio.to_thread(started.wait, 10)
            second = await client.call("slow")
            release.set()
            return await first, second

    first, second = asyncio.run(scenario())
    assert text(first) == "through"
    assert second["isError"] is True
    assert "try again later" in text(second)


def leave(asynchronous: bool) -> Any:
    def work() -> None:
        sys.exit("bye")

    async def async_work() -> None:
        sys.exit("bye")

    return async_work if asynchronous else work


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_tool_that_exits_does_not_stop_the_hub(hub: Hub, asynchronous: bool) -> None:
    hub.tool(leave(asynchronous), name="leave")

    async def scenario() -> dict[str, Any]:
        async with connected(hub) as client:
            result = await client.call("leave")
            await client.result("ping")
            return result

    try:
        result = asyncio.run(scenario())
    except SystemExit:
        result = {}
    gc.collect()  # collect the remains of the exit now, so that no later test reports them
    assert result
    assert result["isError"] is True
    assert text(result) == "Tool crashed: SystemExit: bye"


def test_a_tool_that_awaits_a_cancelled_task_is_reported_as_crashed(hub: Hub) -> None:
    @hub.tool
    async def stumble() -> None:
        task = asyncio.create_task(asyncio.Event().wait())
        task.cancel()
        await task

    async def scenario() -> dict[str, Any]:
        async with connected(hub) as client:
            return await asyncio.wait_for(client.call("stumble"), 60)

    result = asyncio.run(scenario())
    assert result["isError"] is True
    assert text(result).startswith("Tool crashed: CancelledError")


@pytest.mark.parametrize(
    "asked", [("resources/read", {"uri": "docs://odd"}), ("prompts/get", {"name": "odd"})], ids=["resource", "prompt"]
)
@pytest.mark.parametrize("oddity", [SystemExit("bye"), asyncio.CancelledError()], ids=["exit", "cancellation"])
def test_resources_and_prompts_that_raise_base_exceptions_are_answered(
    hub: Hub, asked: tuple[str, dict[str, Any]], oddity: BaseException
) -> None:
    async def odd() -> str:
        raise oddity

    hub.resource("docs://odd")(odd)
    hub.prompt(odd)

    async def scenario() -> dict[str, Any]:
        async with connected(hub) as client:
            return await asyncio.wait_for(client.request(asked[0], **asked[1]), 60)

    try:
        response = asyncio.run(scenario())
    except SystemExit:
        response = {}
    gc.collect()  # collect the remains of the exit now, so that no later test reports them
    assert response.get("error", {}).get("code") == -32603


def test_a_cancelled_call_stops_and_is_never_answered(hub: Hub) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @hub.tool
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def scenario() -> None:
        async with connected(hub) as client:
            running = asyncio.create_task(client.request("tools/call", name="endless"))
            await started.wait()
            client.notify("notifications/cancelled", requestId=2)
            await asyncio.wait_for(stopped.wait(), 60)
            await client.result("ping")
            assert not running.done()
            running.cancel()

    asyncio.run(scenario())


async def failing(client: Client, method: str, **params: Any) -> dict[str, Any]:
    error: dict[str, Any] = (await client.request(method, **params))["error"]
    return error


def test_errors_in_resources_and_prompts_are_protocol_errors(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    @hub.resource("docs://slow", timeout=0.05)
    async def slow() -> None:
        await asyncio.Event().wait()

    @hub.resource("docs://broken")
    def broken() -> None:
        raise ValueError("a secret")

    @hub.prompt
    def bad() -> int:
        return 3

    async def scenario() -> list[dict[str, Any]]:
        async with connected(hub) as client:
            return [
                await failing(client, "resources/read", uri="docs://slow"),
                await failing(client, "resources/read", uri="docs://broken"),
                await failing(client, "prompts/get", name="bad"),
            ]

    timeout, crash, wrong = asyncio.run(scenario())
    assert timeout["code"] == -32000
    assert crash == {"code": -32603, "message": "Internal error"}
    assert wrong["code"] == -32603
    assert "a secret" in caplog.text


def test_a_hub_that_was_stopped_can_be_started_again(hub: Hub) -> None:
    hub.tool(lambda: "still here", name="work")

    async def scenario() -> str:
        async with connected(hub) as client:
            answer = text(await asyncio.wait_for(client.call("work"), 60))
        await hub.stop()
        return answer

    assert [asyncio.run(scenario()) for _ in range(2)] == ["still here"] * 2


def test_results_are_checked_against_the_output_schema_unless_they_are_errors() -> None:
    @tool(output={"n": {"type": "integer", "required": True}})
    def work() -> None: ...

    (capability,) = expand(work)
    for fine in (Result(structured={"n": 1}), Result(is_error=True), Result(structured={}, is_error=True)):
        check_output(capability, fine)
    refused = "Tool work returned a result that does not fit its output schema: "
    with pytest.raises(InvalidOutput, match=f"{refused}n: "):
        check_output(capability, Result(structured={"n": "one"}))
    for bare in (Result(), Result([Text("x")])):
        with pytest.raises(InvalidOutput, match=f"{refused}structured content is missing"):
            check_output(capability, bare)


@pytest.mark.parametrize("version", [V2025_11_25, V2026_07_28])
@pytest.mark.parametrize(("value", "problem"), [(None, "missing"), ("x", "missing"), (math.nan, ""), (-math.inf, "")])
def test_a_result_that_does_not_fit_the_return_annotation_is_an_error(version: str, value: Any, problem: str) -> None:
    hub = Hub("test", version="1")

    @hub.tool
    def measure() -> float:
        return value  # type: ignore[no-any-return]  # as if the user's type checker had missed it

    refused = call(hub, "measure", version)
    assert refused["isError"] is True
    assert "structuredContent" not in refused
    assert text(refused).startswith("Tool measure returned a result that does not fit its output schema: ")
    assert problem in text(refused)


def test_a_tool_returning_a_list_of_any_may_return_content_blocks(hub: Hub) -> None:
    @hub.tool
    def blocks() -> list[Any]:
        return [Text("x"), "y"]

    assert [block["text"] for block in call(hub, "blocks")["content"]] == ["x", "y"]
    assert "outputSchema" not in listed(hub)["blocks"]
