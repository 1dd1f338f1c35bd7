from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.config.conftest import Folder
from waypost.config import changes
from waypost.config.files import watch_folders

DEADLINE = 120


async def following(stream: AsyncIterator[frozenset[Path]]) -> frozenset[Path]:
    async with asyncio.timeout(DEADLINE):
        return await anext(stream)


async def ended(stream: AsyncIterator[frozenset[Path]]) -> bool:
    async with asyncio.timeout(DEADLINE):
        return await anext(stream, None) is None


def test_each_burst_of_changes_is_reported_once(folder: Folder) -> None:
    first, second = folder.write("a.yaml", "a"), folder.write("b.yaml", "b")

    async def scenario() -> None:
        stop = asyncio.Event()
        stream = changes(lambda: [first, second], stop)
        folder.write("a.yaml", "changed")
        folder.write("b.yaml", "changed")
        assert await following(stream) == {first, second}
        folder.write("b.yaml", "changed again")
        assert await following(stream) == {second}
        stop.set()
        assert await ended(stream)

    asyncio.run(scenario())


def test_a_file_replaced_by_a_rename_is_reported_each_time(folder: Folder) -> None:
    path = folder.write("waypost.yaml", "a")

    async def scenario() -> None:
        stream = changes(lambda: [path], asyncio.Event())
        for text in ("b", "c"):
            os.replace(folder.write(".waypost.yaml.swp", text), path)
            assert await following(stream) == {path}

    asyncio.run(scenario())


def test_a_removed_file_is_noticed(folder: Folder) -> None:
    path = folder.write("waypost.yaml", "a")

    async def scenario() -> None:
        stream = changes(lambda: [path], asyncio.Event())
        path.unlink()
        assert await following(stream) == {path}

    asyncio.run(scenario())


def test_a_new_yaml_file_in_a_watched_folder_is_reported(folder: Folder) -> None:
    path = folder.write("waypost.yaml", "a")
    (folder.path / "team").mkdir()

    async def scenario() -> None:
        stream = changes(lambda: [path, folder.path / "team"], asyncio.Event())
        new = folder.write("team/new.yml", "x")
        assert await following(stream) == {new}

    asyncio.run(scenario())


def test_changes_of_toolkits_are_reported_but_not_of_other_files(folder: Folder) -> None:
    path, tools = folder.write("waypost.yaml", "a"), folder.write("tools.py", "a")

    async def scenario() -> None:
        stream = changes(lambda: [path, tools], asyncio.Event())
        folder.write("waypost.db", "x")
        folder.write("other.py", "x")
        folder.write("tools.py", "changed")
        assert await following(stream) == {tools}

    asyncio.run(scenario())


def test_the_list_of_files_is_read_again_after_each_burst(folder: Folder) -> None:
    path = folder.write("waypost.yaml", "a")
    elsewhere = folder.write("elsewhere/tools.py", "a")
    files = [path]

    async def scenario() -> None:
        stream = changes(lambda: files, asyncio.Event())
        folder.write("waypost.yaml", "changed")
        assert await following(stream) == {path}
        files.append(elsewhere)
        waiting = asyncio.create_task(following(stream))
        folder.write("elsewhere/tools.py", "changed")
        assert await waiting == {elsewhere}

    asyncio.run(scenario())


def test_a_file_that_existed_before_it_was_watched_is_not_a_change(folder: Folder) -> None:
    path = folder.write("waypost.yaml", "a")
    elsewhere = folder.write("elsewhere/more.yaml", "a")
    files = [path]

    async def scenario() -> None:
        stream = changes(lambda: files, asyncio.Event())
        folder.write("waypost.yaml", "changed")
        assert await following(stream) == {path}
        files[:] = [elsewhere]
        waiting = asyncio.create_task(following(stream))
        third = folder.path / "elsewhere/third.yaml"
        await asyncio.to_thread(third.write_text, "new")
        assert await waiting == {third}

    asyncio.run(scenario())


def test_a_file_in_a_folder_that_does_not_exist_yet_is_watched(folder: Folder) -> None:
    path = folder.path / "later" / "waypost.yaml"

    async def scenario() -> None:
        stream = changes(lambda: [path], asyncio.Event())
        folder.write("later/waypost.yaml", "a")
        assert await following(stream) == {path}

    asyncio.run(scenario())


def test_a_cancelled_watch_does_not_set_the_stop_event(folder: Folder) -> None:
    path = folder.write("waypost.yaml", "a")

    async def scenario() -> None:
        stop = asyncio.Event()
        stream = changes(lambda: [path], stop)
        folder.write("waypost.yaml", "changed")
        assert await following(stream) == {path}
        waiting = asyncio.create_task(following(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert not stop.is_set()

    asyncio.run(scenario())


def test_a_stopped_watch_reports_nothing(folder: Folder) -> None:
    path = folder.write("waypost.yaml", "a")

    async def scenario() -> None:
        stop = asyncio.Event()
        stop.set()
        assert await ended(changes(lambda: [path], stop))

    asyncio.run(scenario())


def test_a_change_in_one_of_several_folders_is_reported_before_the_next_poll(folder: Folder) -> None:
    places = [folder.path / "one", folder.path / "two"]
    for place in places:
        place.mkdir()

    async def scenario() -> None:
        async with aclosing(watch_folders(places, asyncio.Event(), poll_interval_ms=2_000 * DEADLINE)) as stream:
            waiting = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)  # the folders are watched from here
            folder.write("two/new", "x")
            async with asyncio.timeout(DEADLINE):
                await waiting

    asyncio.run(scenario())


def test_without_changes_folders_are_polled_until_the_watch_is_stopped(folder: Folder) -> None:
    async def scenario() -> None:
        stop = asyncio.Event()
        stream = watch_folders([folder.path], stop, poll_interval_ms=10)
        async with asyncio.timeout(DEADLINE):
            await anext(stream)
            await anext(stream)
            stop.set()
            assert [one async for one in stream] == []

    asyncio.run(scenario())


def test_a_missing_folder_cannot_be_watched(folder: Folder) -> None:
    async def scenario() -> None:
        with pytest.raises(FileNotFoundError):
            await anext(watch_folders([folder.path / "gone"], asyncio.Event(), poll_interval_ms=10))

    asyncio.run(scenario())
