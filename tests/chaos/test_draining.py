"""A replica that is asked to stop finishes what runs, and its clients and their new work go to the other one."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.chaos.test_hub_killed import LOST, desk_in, has_begun
from tests.chaos.test_two_hubs import Pair, has_begun_at, is_taken_over
from tests.chaos.visitor import Refused, Visitor, eventually, visiting

DEADLINE: Final = 120.0


@contextmanager
def two_desks(folder: Path, store: str, drain_ms: int = 60_000) -> Iterator[Pair]:
    """Two replicas; the first has this drain timeout."""
    with (
        desk_in(folder / "b", DESK_STORE=store) as second,
        desk_in(folder / "a", DESK_STORE=store, DESK_DRAIN_MS=str(drain_ms)) as first,
    ):
        yield Pair(first, second, folder)


@asynccontextmanager
async def at_the_desk() -> AsyncIterator[Visitor]:
    """A visitor, under a deadline."""
    async with asyncio.timeout(DEADLINE), visiting() as visitor:
        yield visitor


def linger(visitor: Visitor, url: str, folder: Path) -> asyncio.Task[dict[str, Any]]:
    """A call that takes until there is a file `go`."""
    call = {"name": "linger", "arguments": {"folder": str(folder)}}
    return asyncio.create_task(visitor.stateless(url, "tools/call", call))


async def terminate(pair: Pair) -> None:
    """Ask the first replica to stop, and wait until it drains."""
    pair.first.signal(signal.SIGTERM)
    await asyncio.to_thread(pair.first.wait_for, "draining: ")


async def end(pair: Pair) -> int:
    """The exit code of the first replica."""
    return await asyncio.to_thread(pair.first.wait)


async def read(url: str, method: str = "GET", **more: Any) -> tuple[int, dict[str, str], bytes]:
    """The status, headers and body of one answer."""
    async with aiohttp.request(method, url, **more) as response:
        return response.status, dict(response.headers), await response.read()


async def replicas_are(pair: Pair, *statuses: str) -> None:
    """Wait until the second replica knows replicas with these statuses."""
    key = json.loads((pair.folder / "b" / "hub.json").read_text())["key"]
    url = pair.b.replace("/mcp", "/api/v1/replicas")

    async def look() -> bool | None:
        _, _, body = await read(url, headers={"Authorization": f"Bearer {key}"})
        return sorted(one["status"] for one in json.loads(body)["replicas"]) == [*statuses] or None

    await eventually(look, f"the replicas are not {statuses}")


def test_a_running_call_is_answered_and_new_work_goes_to_the_other_replica(tmp_path: Path, postgres_url: str) -> None:
    async def scenario(pair: Pair) -> None:
        async with at_the_desk() as visitor:
            await visitor.initialize(pair.a)
            running = linger(visitor, pair.a, tmp_path)
            await has_begun(tmp_path)
            await terminate(pair)

            status, _, body = await read(pair.a.replace("/mcp", "/health"))
            assert (status, json.loads(body)["status"]) == (503, "draining")
            await replicas_are(pair, "draining", "ready")
            call = {"name": "remember", "arguments": {"key": "a", "value": "b"}}
            for attempt in (
                visitor.in_session(pair.a, "tools/call", call),
                visitor.start_task(pair.a, "quick", text=""),
            ):
                with pytest.raises(Refused, match="another replica") as refused:
                    await attempt
                assert (refused.value.status, refused.value.error["code"]) == (503, -32000)
            status, headers, _ = await read(pair.a.replace("/mcp", "/api/v1/runs"), "POST", json={})
            assert (status, headers["Retry-After"]) == (503, "1")
            assert await visitor.call(pair.b, "remember", key="a", value="b") == "b"
            assert await visitor.in_session(pair.a, "ping") == {}
            assert not running.done()

            (tmp_path / "go").touch()
            assert (await running)["content"][0]["text"] == "done"
            assert await end(pair) == 0
            await replicas_are(pair, "ready")

    with two_desks(tmp_path, postgres_url) as pair:
        asyncio.run(scenario(pair))


def test_streams_end_with_the_time_to_connect_again_and_go_on_at_the_other_replica(
    tmp_path: Path, postgres_url: str
) -> None:
    async def scenario(pair: Pair) -> None:
        async with at_the_desk() as visitor:
            await visitor.initialize(pair.a)
            running = linger(visitor, pair.a, tmp_path)
            await has_begun(tmp_path)
            headers = {"Mcp-Session-Id": visitor.session, "Accept": "text/event-stream"}
            async with aiohttp.request("GET", pair.a, headers=headers) as stream:
                assert stream.status == 200
                await terminate(pair)
                assert await stream.content.read() == b"retry: 500\n\n"
            assert (await read(pair.a, headers=headers))[0] == 503
            async with visitor.stream(pair.b) as events:
                await visitor.call(pair.b, "announce", text="here")
                assert "here" in str(await anext(events))
            (tmp_path / "go").touch()
            await running
            assert await end(pair) == 0

    with two_desks(tmp_path, postgres_url) as pair:
        asyncio.run(scenario(pair))


def test_a_transition_that_runs_is_finished(tmp_path: Path, postgres_url: str) -> None:
    async def scenario(pair: Pair) -> None:
        async with at_the_desk() as visitor:
            start = {"definitionId": "patient", "input": {"folder": str(tmp_path)}}
            begun = await visitor.stateless(pair.a, "tools/call", {"name": "workflow.start", "arguments": start})
            instance = {"workflowId": begun["structuredContent"]["workflowId"]}
            submit = {**instance, "expectedVersion": 1, "transition": "wait", "arguments": {}}
            call = {"name": "workflow.submit", "arguments": submit}
            moving = asyncio.create_task(visitor.stateless(pair.a, "tools/call", call))
            await has_begun(tmp_path)
            await terminate(pair)
            (tmp_path / "go").touch()
            assert (await moving)["structuredContent"]["state"] == "b"
            assert await end(pair) == 0
            seen = await visitor.stateless(pair.b, "tools/call", {"name": "workflow.get", "arguments": instance})
            assert seen["structuredContent"]["state"] == "b"

    with two_desks(tmp_path, postgres_url) as pair:
        asyncio.run(scenario(pair))


def test_work_that_still_runs_after_the_drain_timeout_is_stopped(tmp_path: Path, postgres_url: str) -> None:
    async def scenario(pair: Pair) -> None:
        async with at_the_desk() as visitor:
            task = await visitor.start_task(pair.a, "endless", folder=str(tmp_path))
            await has_begun(tmp_path)
            (tmp_path / "began").unlink()
            running = linger(visitor, pair.a, tmp_path)
            await has_begun(tmp_path)
            await terminate(pair)
            with pytest.raises(Refused, match="The hub is stopping"):
                await running
            assert await end(pair) == 0
            assert (await visitor.task_is(pair.b, task, "failed"))["error"]["message"] == LOST
            pair.first.wait_for("what still ran after 0.3 s")

    with two_desks(tmp_path, postgres_url, drain_ms=300) as pair:
        asyncio.run(scenario(pair))


def test_a_task_that_may_be_run_again_goes_on_at_the_other_replica(tmp_path: Path, postgres_url: str) -> None:
    async def scenario(pair: Pair) -> None:
        async with at_the_desk() as visitor:
            task = await visitor.start_task(pair.a, "repeat", folder=str(tmp_path))
            await has_begun_at(pair.first, tmp_path)
            await terminate(pair)
            assert await end(pair) == 0
            await is_taken_over(pair, visitor, task)
            (tmp_path / "go").touch()
            done = await visitor.task_is(pair.b, task, "completed")
            assert done["result"]["content"][0]["text"] == "done"

    with two_desks(tmp_path, postgres_url, drain_ms=300) as pair:
        asyncio.run(scenario(pair))


def test_questions_that_are_open_at_the_end_of_a_drain(tmp_path: Path, postgres_url: str) -> None:
    async def scenario(pair: Pair) -> None:
        async with at_the_desk() as visitor:
            await visitor.initialize(pair.a, {"elicitation": {"form": {}}})
            tasks = [
                (await visitor.in_session(pair.a, "tools/call", {"name": tool, "arguments": {}, "task": {}}))["task"]
                for tool in ("ask", "ask_again")
            ]
            failed, goes_on = [{"taskId": task["taskId"]} for task in tasks]
            async with visitor.calling(pair.a, "greet") as events:
                _, question = await anext(events)
                assert question["method"] == "elicitation/create"
                await terminate(pair)
                _, response = await anext(events)
            (text,) = response["result"]["content"]
            assert text["text"] == "The hub was stopped before the client answered."
            assert await end(pair) == 0
            with pytest.raises(Refused, match=LOST):
                await visitor.in_session(pair.b, "tasks/result", failed)
            async with visitor.asking(pair.b, "tasks/result", goes_on) as events:
                _, question = await anext(events)
                assert await visitor.answer(pair.b, question, {"action": "accept", "content": {"name": "Ada"}}) == 202
                _, response = await anext(events)
            assert response["result"]["content"][0]["text"] == "Hello, Ada!"

    with two_desks(tmp_path, postgres_url, drain_ms=300) as pair:
        asyncio.run(scenario(pair))


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_drain(tmp_path: Path, postgres_url: str, second: signal.Signals) -> None:
    async def scenario(pair: Pair) -> None:
        async with at_the_desk() as visitor:
            running = linger(visitor, pair.a, tmp_path)
            await has_begun(tmp_path)
            await terminate(pair)
            pair.first.signal(second)
            with pytest.raises((Refused, aiohttp.ClientError)):
                await running
            assert await end(pair) == 0

    with two_desks(tmp_path, postgres_url) as pair:
        asyncio.run(scenario(pair))


def test_a_hub_without_other_replicas_stops_promptly(tmp_path: Path, postgres_url: str) -> None:
    with desk_in(tmp_path / "data", DESK_STORE=postgres_url, DESK_DRAIN_MS="60000") as hub:
        hub.signal(signal.SIGTERM)
        assert hub.wait() == 0
        assert not any("draining" in line for line in hub.lines)
