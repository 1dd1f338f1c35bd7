"""Upstream tools that only run as tasks are called like other tools, in every pair of eras."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.importers import Json, stdio, write
from tests.gateway.passers import downstream, started, transports, upstream
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from tests.upstreams.pools import listening
from tests.upstreams.programs import ROOT
from tests.upstreams.servers.curious import Dated
from tests.upstreams.servers.tasking import tasking
from waypost import Hub, RemoteError
from waypost.protocol import tasks
from waypost.testing import connect
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28


@pytest.fixture(autouse=True)
def short_poll_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the poll interval of the task server if it runs in this process."""
    monkeypatch.setattr(tasks, "_POLL_MS", 20)


@asynccontextmanager
async def importing(folder: Path, era: str, transport: str = "http", **more: Any) -> AsyncIterator[tuple[Hub, Dated]]:
    """A hub that imports the task server, and that server if it runs in this process."""
    far = tasking(era)
    wanted = [{"connection": "up", "trust": "off"}]
    if transport == "stdio":
        async with started(
            write(folder, {"up": stdio("tasking", era, env={"PYTHONPATH": str(ROOT)})}, wanted, **more)
        ) as hub:
            yield hub, far
        return
    async with (
        listening(far.asgi()) as url,
        started(write(folder, {"up": {"kind": "mcp", "url": url}}, wanted, **more)) as hub,
    ):
        yield hub, far
    await far.stop()


@downstream
@upstream
@transports
def test_the_result_of_a_task_is_the_result_of_the_call(tmp_path: Path, version: str, era: str, transport: str) -> None:
    @asynchronous
    async def called() -> None:
        async with importing(tmp_path, era, transport) as (hub, _), connect(hub, version) as client:
            packed, refused, summed = await asyncio.gather(
                client.call_tool("up.pack", {"files": 3}), client.call_tool("up.refuse"), client.call_tool("up.sum_up")
            )
            assert (packed["structuredContent"], packed.is_error) == ({"packed": 3}, False)
            assert not any(name.startswith("io.model") and "task" in name for name in packed.get("_meta") or {})
            assert (refused.text, refused.is_error) == ("Not today.", True)
            assert summed.text == "summed up"

    called()


@downstream
@upstream
def test_a_task_that_ends_with_a_protocol_error_is_an_error_result(tmp_path: Path, version: str, era: str) -> None:
    @asynchronous
    async def failed() -> None:
        async with importing(tmp_path, era) as (hub, _), connect(hub, version) as client:
            answer = await client.call_tool("up.misuse")
            assert answer.is_error
            assert "Wrong in itself." in answer.text

    failed()


@downstream
@upstream
@transports
def test_an_elicitation_of_a_task_reaches_the_caller(tmp_path: Path, version: str, era: str, transport: str) -> None:
    asked: list[str] = []

    def answer(params: Json) -> Json:
        asked.append(params["message"])
        return {"action": "accept", "content": {"colour": f"colour {len(asked)}"}}

    @asynchronous
    async def answered() -> None:
        async with (
            importing(tmp_path, era, transport) as (hub, far),
            connect(hub, version, elicitation=answer) as client,
        ):
            assert (await client.call_tool("up.paint", {"what": "door"})).text == "colour 1 colour 2"
            assert asked == ["Which colour for door?", "And the rim of door?"]
            assert transport == "stdio" or far.calls == ["paint"]

    answered()


@downstream
@upstream
@transports
def test_elicitations_of_concurrent_tasks_reach_their_own_callers(
    tmp_path: Path, version: str, era: str, transport: str
) -> None:
    """This works on a shared channel too, because a request names its task."""

    @asynchronous
    async def apart() -> None:
        async with importing(tmp_path, era, transport) as (hub, _):
            asked: dict[str, list[str]] = {"ada": [], "bob": []}

            def person(name: str) -> Any:
                def answer(params: Json) -> Json:
                    asked[name].append(params["message"])
                    return {"action": "accept", "content": {"colour": name}}

                return answer

            async with (
                connect(hub, version, elicitation=person("ada")) as ada,
                connect(hub, version, elicitation=person("bob")) as bob,
            ):
                painted = await asyncio.gather(
                    ada.call_tool("up.paint", {"what": "ada's"}), bob.call_tool("up.paint", {"what": "bob's"})
                )
            assert [answer.text for answer in painted] == ["ada ada", "bob bob"]
            assert all("ada's" in message for message in asked["ada"])
            assert all("bob's" in message for message in asked["bob"])

    apart()


@downstream
@upstream
def test_a_caller_without_elicitation_gets_an_error(tmp_path: Path, version: str, era: str) -> None:
    @asynchronous
    async def refused() -> None:
        async with importing(tmp_path, era) as (hub, far), connect(hub, version) as client:
            try:
                said = (await client.call_tool("up.paint", {"what": "door"})).text
            except RemoteError as error:
                assert (version, error.code) == (V2026_07_28, -32021)
                said = error.message
            assert "does not support elicitation.form" in said
            assert far.calls == ["paint"]

    refused()


@downstream
@upstream
def test_a_cancelled_call_cancels_the_task(tmp_path: Path, version: str, era: str) -> None:
    @asynchronous
    async def stopped() -> None:
        async with importing(tmp_path, era) as (hub, far), connect(hub, version) as client:
            hanging = asyncio.get_running_loop().create_task(client.call_tool("up.hang"))
            await until(lambda: far.calls == ["hang"])
            hanging.cancel()
            await until(lambda: far.calls == ["hang", "cancelled"])

    stopped()


@upstream
def test_a_deadline_cancels_the_task(tmp_path: Path, era: str) -> None:
    @asynchronous
    async def stopped() -> None:
        # The call has to reach the server within it.
        server = {"name": "desk", "version": "1.0.0", "surface": "full", "toolTimeoutMs": 2000}
        async with importing(tmp_path, era, server=server) as (hub, far), connect(hub) as client:
            answer = await client.call_tool("up.hang")
            assert (answer.text, answer.is_error) == ("Tool execution timed out", True)
            await until(lambda: far.calls == ["hang", "cancelled"])

    stopped()


TASKS: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


@pytest.mark.parametrize("version", [LATEST_LEGACY, V2026_07_28])
@upstream
def test_a_task_that_outlives_the_deadline_of_calls_is_fetched_from_the_task_of_the_hub(
    tmp_path: Path, version: str, era: str
) -> None:
    @asynchronous
    async def kept() -> None:
        server = {"name": "desk", "version": "1.0.0", "surface": "full", "toolTimeoutMs": 700, "taskAfterMs": 100}
        async with importing(tmp_path, era, server=server) as (hub, far):
            async with connect(hub, version, capabilities=TASKS) as client:
                call: Json = {"name": "up.wait_for_release", "arguments": {}}
                answer = await client.request("tools/call", call | ({"task": {}} if version == LATEST_LEGACY else {}))
                task = answer.get("task", answer)["taskId"]
                await until(lambda: far.calls == ["waiting"])
            async with connect(hub, version) as plain:  # its deadline is later than that of the previous call
                assert (await plain.call_tool("up.hang")).text == "Tool execution timed out"
                hub.core.pipeline.timeout = 60.0  # the next one has to succeed, also on a busy machine
                await plain.call_tool("up.release")
            async with connect(hub, version, capabilities=TASKS) as client:
                if version == LATEST_LEGACY:
                    result = await client.request("tasks/result", {"taskId": task})
                else:
                    found: Json = {"status": "working"}
                    while found["status"] == "working":
                        await asyncio.sleep(0.02)
                        found = await client.request("tasks/get", {"taskId": task})
                    result = found["result"]
            assert result["content"] == [{"type": "text", "text": "released"}]

    kept()


@upstream
def test_stopping_the_hub_cancels_its_tasks(tmp_path: Path, era: str) -> None:
    @asynchronous
    async def stopped() -> None:
        async with importing(tmp_path, era) as (hub, far), connect(hub) as client:
            hanging = asyncio.get_running_loop().create_task(client.call_tool("up.hang"))
            await until(lambda: far.calls == ["hang"])
            await hub.stop()
            await until(lambda: far.calls == ["hang", "cancelled"])
            hanging.cancel()

    stopped()


@upstream
def test_a_client_that_leaves_an_elicitation_unanswered_cancels_the_task_of_a_session(tmp_path: Path, era: str) -> None:
    """A task of a stateless server needs no waiting client and ends when it expires."""

    @asynchronous
    async def left() -> None:
        async with importing(tmp_path, era) as (hub, far):
            async with connect(hub, V2026_07_28, capabilities={"elicitation": {"form": {}}}) as client:
                asked = await client.request("tools/call", {"name": "up.paint", "arguments": {"what": "door"}})
                assert asked["resultType"] == "input_required"
            await hub.stop()
            if era == LATEST_LEGACY:
                await until(lambda: far.calls == ["paint", "cancelled"])
            else:
                assert far.calls == ["paint"]

    left()


@downstream
@upstream
def test_the_progress_of_a_task_reaches_the_caller(tmp_path: Path, version: str, era: str) -> None:
    @asynchronous
    async def scenario() -> None:
        async with importing(tmp_path, era) as (hub, _), connect(hub, version) as client:
            await client.call_with_progress("up.report")
            if era == LATEST_LEGACY:  # the newest era has no progress of tasks
                await client.assert_notification("progress", progress=1, total=2, message="half")

    scenario()


@asynchronous
async def test_a_workflow_calls_a_tool_that_only_runs_as_a_task(tmp_path: Path) -> None:
    executor = {"kind": "mcp", "connection": "up", "tool": "pack", "map": {"files": 4}}
    for era in (LATEST_LEGACY, V2026_07_28):
        folder = tmp_path / era
        folder.mkdir()
        exposed = {"name": "wrap", "description": "Wrap.", "inputSchema": {"type": "object"}, "executor": executor}
        far = tasking(era)
        async with listening(far.asgi()) as url:
            connections = {"up": {"kind": "mcp", "url": url}}
            file = write(folder, connections, [], proxy={"expose": [exposed]})
            hub = Hub.from_config(file)
            try:
                async with connect(hub) as client:
                    answer = await client.call_tool("wrap")
                    assert (era, answer["structuredContent"]) == (era, {"packed": 4})
            finally:
                await hub.stop()
        await far.stop()
