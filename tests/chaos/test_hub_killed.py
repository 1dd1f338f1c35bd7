"""A hub is killed and started again on its data directory; its clients find what was theirs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.chaos import desk
from tests.chaos.visitor import Refused, Visitor, eventually, visiting
from tests.cli.shell import Serving, serving
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

DESK: Final = f"{desk.__file__}:hub"
DEADLINE: Final = 120.0
LOST: Final = "The server was stopped while the task was running."


@contextmanager
def desk_in(data: Path, **env: str) -> Iterator[Serving]:
    """The desk, served until the block ends or it is killed."""
    data.mkdir(exist_ok=True)
    with serving(DESK, "--port", "0", "--data", data, cwd=data, **env) as hub:
        assert hub.url
        yield hub


def kill(hub: Serving) -> None:
    """Kill a hub with SIGKILL."""
    hub.signal(signal.SIGKILL)
    assert hub.wait() == -signal.SIGKILL


def check(data: Path) -> list[str]:
    """Problems of the store that a hub left."""

    async def look() -> list[str]:
        store = Store(SqliteDatabase(data / "waypost.db"))
        try:
            return await store.check()
        finally:
            await store.close()

    return asyncio.run(look())


async def has_begun(folder: Path) -> None:
    """Wait until the endless tool runs."""

    async def look() -> bool | None:
        return (folder / "began").exists() or None

    await eventually(look, "it never began")


def test_tasks_and_sessions_of_a_killed_hub_are_there_after_its_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def before(url: str, visitor: Visitor) -> tuple[str, str]:
        done = await visitor.start_task(url, "quick", text="done before")
        await visitor.task_is(url, done, "completed")
        running = await visitor.start_task(url, "endless", folder=str(tmp_path))
        await has_begun(tmp_path)
        await visitor.initialize(url)
        assert await visitor.call(url, "remember", key="colour", value="green") == "green"
        await visitor.call(url, "remember", key="town", value="Ulm")
        return done, running

    async def after(url: str, visitor: Visitor, done: str, running: str) -> None:
        task = await visitor.task(url, done)
        assert task["status"] == "completed"
        assert task["result"]["content"][0]["text"] == "done before"
        lost = await visitor.task_is(url, running, "failed")
        assert lost["error"]["message"] == LOST
        assert lost["statusMessage"] == LOST
        assert await visitor.recall(url) == {"colour": "green", "town": "Ulm"}
        await visitor.call(url, "remember", key="colour", value="red")
        assert (await visitor.recall(url))["colour"] == "red"

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), visiting() as visitor:
            with desk_in(data) as hub:
                done, running = await before(hub.url, visitor)
                kill(hub)
            with desk_in(data) as hub:
                await after(hub.url, visitor, done, running)
                kill(hub)
            with desk_in(data) as hub:
                assert await visitor.recall(hub.url) == {"colour": "red", "town": "Ulm"}
                assert (await visitor.task(hub.url, running))["status"] == "failed"

    asyncio.run(scenario())
    assert check(data) == []


def test_a_task_of_a_session_is_found_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    wanted = {"name": "quick", "arguments": {"text": "kept"}, "task": {"ttl": 60_000}}

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), visiting() as visitor:
            with desk_in(data) as hub:
                await visitor.initialize(hub.url)
                created = await visitor.in_session(hub.url, "tools/call", wanted)
                about = {"taskId": created["task"]["taskId"]}
                result = await visitor.in_session(hub.url, "tasks/result", about)
                kill(hub)
            with desk_in(data) as hub:
                assert (await visitor.in_session(hub.url, "tasks/get", about))["status"] == "completed"
                assert await visitor.in_session(hub.url, "tasks/result", about) == result

    asyncio.run(scenario())


def test_a_reconnected_client_gets_missed_events_and_then_new_ones(tmp_path: Path) -> None:
    data, missed = tmp_path / "data", [f"missed {number}" for number in range(20)]

    async def stored(session: str, number: int) -> bool | None:
        """Whether another process sees so many messages in the store."""
        store = Store(SqliteDatabase(data / "waypost.db"))
        try:
            name = seen[0].rpartition("_")[0]
            return len(await store.events.after(session, name, 0)) >= number or None
        finally:
            await store.close()

    seen: list[str] = []

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), visiting() as visitor:
            with desk_in(data) as hub:
                session = await visitor.initialize(hub.url)
                async with visitor.stream(hub.url) as events:
                    await visitor.call(hub.url, "announce", text="heard")
                    event, message = await anext(events)
                    assert message["params"]["data"] == "heard" or "heard" in str(message)
                    seen.append(event)
                for text in missed:
                    await visitor.call(hub.url, "announce", text=text)
                await eventually(lambda: stored(session, 1 + len(missed)), "the messages are not in the store")
                kill(hub)
            with desk_in(data) as hub:
                async with visitor.stream(hub.url, last=seen[0]) as events:
                    acknowledged = [str((await anext(events))[1]) for _ in missed]
                    assert all(text in line for text, line in zip(missed, acknowledged, strict=True))
                    await visitor.call(hub.url, "announce", text="news")
                    newest, message = await anext(events)
                    assert "news" in str(message)
                    assert newest.rpartition("_")[0] != seen[0].rpartition("_")[0]
                async with visitor.stream(hub.url, last=newest) as events:
                    await visitor.call(hub.url, "announce", text="more")
                    assert "more" in str((await anext(events))[1])

    asyncio.run(scenario())


def test_a_session_that_was_ended_stays_ended(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), visiting() as visitor:
            with desk_in(data) as hub:
                await visitor.initialize(hub.url)
                await visitor.call(hub.url, "remember", key="colour", value="green")
                assert await visitor.leave(hub.url) == 204
                kill(hub)
            with desk_in(data) as hub:
                with pytest.raises(Refused) as refused:
                    await visitor.in_session(hub.url, "ping")
                assert refused.value.status == 404
                assert await visitor.leave(hub.url) == 404
                with pytest.raises(Refused) as refused:
                    async with visitor.stream(hub.url):
                        pass
                assert refused.value.status == 404

    asyncio.run(scenario())
