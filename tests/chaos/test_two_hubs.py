"""Two hubs on one PostgreSQL are one to their clients, and one of them survives the other."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.chaos.test_hub_killed import LOST, desk_in, has_begun, kill
from tests.chaos.visitor import Refused, Visitor, eventually, visiting
from tests.cli.shell import Serving

DEADLINE: Final = 120.0


@dataclass(frozen=True)
class Pair:
    """Two hubs and their URLs."""

    first: Serving
    second: Serving
    folder: Path

    @property
    def a(self) -> str:
        """The URL of the first hub."""
        return self.first.url

    @property
    def b(self) -> str:
        """The URL of the second hub."""
        return self.second.url


@contextmanager
def two_hubs(folder: Path, store: str) -> Iterator[Pair]:
    """Two hub processes that share only the store."""
    with desk_in(folder / "a", DESK_STORE=store) as first, desk_in(folder / "b", DESK_STORE=store) as second:
        yield Pair(first, second, folder)


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[Pair]:
    """Two hubs, gone after the test."""
    with two_hubs(tmp_path, postgres_url) as hubs:
        yield hubs


def visited(test: Callable[[Pair, Visitor], Coroutine[Any, Any, None]]) -> Callable[[Pair], None]:
    """A test that visits two hubs, under a deadline."""

    def run(pair: Pair) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(DEADLINE), visiting() as visitor:
                await test(pair, visitor)

        asyncio.run(bounded())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def is_stopped(folder: Path) -> None:
    """Wait until the endless tool was stopped."""

    async def look() -> bool | None:
        return (folder / "stopped").exists() or None

    await eventually(look, "the handler still runs")


@visited
async def test_a_session_lives_at_both_hubs(pair: Pair, visitor: Visitor) -> None:
    await visitor.initialize(pair.a)
    await visitor.call(pair.a, "remember", key="one", value="from a")
    assert await visitor.recall(pair.b) == {"one": "from a"}
    await visitor.call(pair.b, "remember", key="two", value="from b")
    assert await visitor.recall(pair.a) == {"one": "from a", "two": "from b"}
    await visitor.call(pair.a, "remember", key="two", value="from a again")
    assert await visitor.recall(pair.b) == {"one": "from a", "two": "from a again"}


@visited
async def test_values_kept_at_both_hubs_at_once_are_all_kept(pair: Pair, visitor: Visitor) -> None:
    await visitor.initialize(pair.a)
    await visitor.recall(pair.b)
    puts = [((pair.a, pair.b)[number % 2], f"key-{number:02}") for number in range(20)]
    await asyncio.gather(*(visitor.call(url, "remember", key=key, value=key) for url, key in puts))
    expected = {key: key for _, key in puts}
    assert await visitor.recall(pair.a) == expected
    assert await visitor.recall(pair.b) == expected


@visited
async def test_a_session_ended_at_one_hub_is_over_at_the_other(pair: Pair, visitor: Visitor) -> None:
    await visitor.initialize(pair.a)
    assert await visitor.recall(pair.b) == {}
    assert await visitor.leave(pair.b) == 204
    for url in (pair.a, pair.b):
        with pytest.raises(Refused) as refused:
            await visitor.in_session(url, "ping")
        assert refused.value.status == 404


@visited
async def test_a_task_is_seen_at_the_other_hub_and_cancelled_from_there(pair: Pair, visitor: Visitor) -> None:
    task = await visitor.start_task(pair.a, "endless", folder=str(pair.folder))
    await has_begun(pair.folder)
    assert (await visitor.task(pair.b, task))["status"] == "working"
    await visitor.stateless(pair.b, "tasks/cancel", {"taskId": task})
    assert (await visitor.task(pair.b, task))["status"] == "cancelled"
    await is_stopped(pair.folder)
    await visitor.task_is(pair.a, task, "cancelled")


@visited
async def test_a_task_that_asks_is_answered_from_the_other_hub(pair: Pair, visitor: Visitor) -> None:
    task = await visitor.start_task(pair.a, "ask")
    asking = await visitor.task_is(pair.b, task, "input_required")
    (key,) = asking["inputRequests"]
    answer = {key: {"action": "accept", "content": {"name": "Ada"}}}
    await visitor.stateless(pair.b, "tasks/update", {"taskId": task, "inputResponses": answer})
    done = await visitor.task_is(pair.b, task, "completed")
    assert done["result"]["content"][0]["text"] == "Hello, Ada!"
    assert (await visitor.task(pair.a, task))["result"] == done["result"]


@visited
async def test_the_result_of_a_task_is_waited_for_at_the_other_hub(pair: Pair, visitor: Visitor) -> None:
    await visitor.initialize(pair.a)
    wanted = {"name": "endless", "arguments": {"folder": str(pair.folder)}, "task": {"ttl": 60_000}}
    about = {"taskId": (await visitor.in_session(pair.a, "tools/call", wanted))["task"]["taskId"]}
    waiting = asyncio.create_task(visitor.in_session(pair.b, "tasks/result", about))
    await has_begun(pair.folder)
    assert not waiting.done()
    await visitor.in_session(pair.a, "tasks/cancel", about)
    with pytest.raises(Refused, match="cancelled"):
        await waiting


@visited
async def test_one_hub_survives_the_other_and_reports_its_lost_task(pair: Pair, visitor: Visitor) -> None:
    await visitor.initialize(pair.a)
    await visitor.call(pair.a, "remember", key="one", value="from a")
    task = await visitor.start_task(pair.a, "endless", folder=str(pair.folder))
    done = await visitor.start_task(pair.a, "quick", text="in time")
    await has_begun(pair.folder)
    await visitor.task_is(pair.b, done, "completed")
    kill(pair.first)
    lost = await visitor.task_is(pair.b, task, "failed")
    assert lost["error"]["message"] == LOST
    assert await visitor.recall(pair.b) == {"one": "from a"}
    assert (await visitor.task(pair.b, done))["result"]["content"][0]["text"] == "in time"


async def has_begun_at(hub: Serving, folder: Path) -> None:
    """Wait until the tool that may be repeated runs at a hub."""

    async def look() -> bool | None:
        return (folder / f"began-{hub.process.pid}").exists() or None

    await eventually(look, "it never began")


async def is_taken_over(pair: Pair, visitor: Visitor, task: str) -> None:
    """Ask the second hub for a task until it runs there."""

    async def look() -> bool | None:
        assert (await visitor.task(pair.b, task))["status"] == "working"
        return (pair.folder / f"began-{pair.second.process.pid}").exists() or None

    await eventually(look, "the other hub does not run it")


@visited
async def test_a_task_of_an_idempotent_tool_is_run_again_by_the_other_hub(pair: Pair, visitor: Visitor) -> None:
    task = await visitor.start_task(pair.a, "repeat", folder=str(pair.folder))
    await has_begun_at(pair.first, pair.folder)
    kill(pair.first)
    await is_taken_over(pair, visitor, task)
    (pair.folder / "go").touch()
    done = await visitor.task_is(pair.b, task, "completed")
    assert done["result"]["content"][0]["text"] == "done"


@visited
async def test_a_task_of_a_session_is_run_again_by_the_other_hub(pair: Pair, visitor: Visitor) -> None:
    await visitor.initialize(pair.a)
    call = {"name": "repeat", "arguments": {"folder": str(pair.folder)}, "task": {}}
    about = {"taskId": (await visitor.in_session(pair.a, "tools/call", call))["task"]["taskId"]}
    await has_begun_at(pair.first, pair.folder)
    kill(pair.first)
    waiting = asyncio.create_task(visitor.in_session(pair.b, "tasks/result", about))
    await has_begun_at(pair.second, pair.folder)
    (pair.folder / "go").touch()
    assert (await waiting)["content"][0]["text"] == "done"


@visited
async def test_a_hub_that_was_stopped_for_long_leaves_its_task_to_the_other(pair: Pair, visitor: Visitor) -> None:
    task = await visitor.start_task(pair.a, "repeat", folder=str(pair.folder))
    await has_begun_at(pair.first, pair.folder)
    pair.first.signal(signal.SIGSTOP)
    try:
        await is_taken_over(pair, visitor, task)
    finally:
        pair.first.signal(signal.SIGCONT)
    (pair.folder / "go").touch()
    for url in (pair.b, pair.a):
        done = await visitor.task_is(url, task, "completed")
        assert done["result"]["content"][0]["text"] == "done"


async def resume_after_kill(visitor: Visitor, hub: Serving, other: Callable[[], str]) -> Any:
    """Start a call at a hub, kill the hub, resume the stream elsewhere, and return the response."""
    async with visitor.calling(hub.url, "stall") as events:
        last, message = await anext(events)
        assert "waiting" in str(message)
        kill(hub)
    async with visitor.stream(other(), last=last) as events:
        _, response = await anext(events)
    return response


@visited
async def test_a_call_whose_hub_was_killed_is_answered_at_the_other(pair: Pair, visitor: Visitor) -> None:
    await visitor.initialize(pair.a)
    response = await resume_after_kill(visitor, pair.first, lambda: pair.b)
    assert response["error"]["message"] == "The hub was stopped before this was answered."


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_call_whose_hub_was_killed_is_answered_by_the_restarted_one(
    tmp_path: Path, request: pytest.FixtureRequest, engine: str
) -> None:
    env = {} if engine == "sqlite" else {"DESK_STORE": request.getfixturevalue("postgres_url")}

    async def scenario() -> None:
        with ExitStack() as hubs:
            async with asyncio.timeout(DEADLINE), visiting() as visitor:
                first = hubs.enter_context(desk_in(tmp_path / "data", **env))
                await visitor.initialize(first.url)
                response = await resume_after_kill(
                    visitor, first, lambda: hubs.enter_context(desk_in(tmp_path / "data", **env)).url
                )
                assert response["error"]["message"] == "The hub was stopped before this was answered."

    asyncio.run(scenario())


@visited
async def test_a_hub_that_stood_still_too_long_gives_up_the_task_it_lost(pair: Pair, visitor: Visitor) -> None:
    task = await visitor.start_task(pair.a, "endless", folder=str(pair.folder))
    await has_begun(pair.folder)
    pair.first.signal(signal.SIGSTOP)
    try:
        lost = await visitor.task_is(pair.b, task, "failed")
    finally:
        pair.first.signal(signal.SIGCONT)
    await is_stopped(pair.folder)
    for url in (pair.a, pair.b):
        assert (await visitor.task_is(url, task, "failed"))["error"] == lost["error"]


@pytest.mark.parametrize("skew", [60.0, -60.0])
def test_hubs_with_different_clocks_agree_on_running_tasks_and_moves(
    tmp_path: Path, postgres_url: str, skew: float
) -> None:
    async def visit(a: str, b: str) -> None:
        async with visiting() as visitor:
            for first, second in ((a, b), (b, a)):
                folder = tmp_path / str(first == a)
                folder.mkdir()
                task = await visitor.start_task(first, "endless", folder=str(folder))
                await has_begun(folder)
                given = {"definitionId": "patient", "input": {"folder": str(folder)}}
                started = await visitor.stateless(first, "tools/call", {"name": "workflow.start", "arguments": given})
                run = {"workflowId": started["structuredContent"]["workflowId"]}
                submitted = {**run, "expectedVersion": 1, "transition": "wait", "arguments": {}}
                (folder / "began").unlink()
                call = {"name": "workflow.submit", "arguments": submitted}
                moving = asyncio.create_task(visitor.stateless(first, "tools/call", call))
                await has_begun(folder)
                asked = {"name": "workflow.get", "arguments": run}
                until = time.monotonic() + 2.5  # time for some heartbeats, and for maintenance at the other hub
                while time.monotonic() < until:
                    assert (await visitor.task(second, task))["status"] == "working"
                    seen = await visitor.stateless(second, "tools/call", asked)
                    assert seen["structuredContent"]["status"] == "executing"
                    await asyncio.sleep(0.1)
                (folder / "go").touch()
                assert (await moving)["structuredContent"]["state"] == "b"

    with (
        desk_in(tmp_path / "a", DESK_STORE=postgres_url) as first,
        desk_in(tmp_path / "b", DESK_STORE=postgres_url, DESK_SKEW=str(skew)) as second,
    ):
        asyncio.run(asyncio.wait_for(visit(first.url, second.url), DEADLINE))
