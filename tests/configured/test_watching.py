"""Reloading when a file changes or the process gets a signal."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.cli.shell import serving
from tests.configured.conftest import BROKEN_KIT, CONFIG, DEADLINE, ERAS, KIT, Folder, listening, more, names, using
from tests.upstreams.conftest import until
from waypost import Hub
from waypost.config import Loaded


def loaded_of(hub: Hub) -> Loaded:
    assert hub.runtime.configuration is not None
    return hub.runtime.configuration.loaded


@pytest.mark.parametrize("version", ERAS)
def test_a_changed_file_is_reloaded(folder: Folder, version: str) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub, version) as client, listening(client):
            folder.write("tools.py", KIT + more("whisper"))
            await client.assert_notification("tools/list_changed", within=DEADLINE)
            assert names(await client.list_tools()) == ["speak", "whisper"]
            await client.refute_notification("tools/list_changed")

    asyncio.run(scenario())


def test_watching_continues_after_an_invalid_file(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            folder.write("tools.py", BROKEN_KIT)
            await until(lambda: "no disk" in caplog.text, DEADLINE)
            folder.write("tools.py", KIT.replace("speak", "shout"))
            await client.assert_notification("tools/list_changed", within=DEADLINE)

    asyncio.run(scenario())


def test_an_unrelated_file_does_not_cause_a_reload(folder: Folder) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client, listening(client):
            before = loaded_of(hub)
            folder.write("notes.yaml", "mine: own")
            folder.write("waypost.yaml", CONFIG)
            folder.write("tools.py", KIT + more("whisper"))
            await client.assert_notification("tools/list_changed", within=DEADLINE)
            loaded = loaded_of(hub)
            assert loaded is not before
            folder.write("notes.yaml", "mine: still")
            await asyncio.sleep(1.5)  # as long as a change takes to be noticed, and more
            assert loaded_of(hub) is loaded

    asyncio.run(scenario())


def test_a_missing_file_is_loaded_when_it_is_created(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            folder.write("waypost.yaml", CONFIG + "include: [more.yaml]\n")
            await until(lambda: "not reloaded" in caplog.text, DEADLINE)
            folder.write("more.yaml", "prompts: {hello: {template: Hello}}\n")
            await client.assert_notification("prompts/list_changed", within=DEADLINE)

    asyncio.run(scenario())


def test_a_file_that_changed_before_the_start_is_read_again(folder: Folder) -> None:
    hub = folder.hub()
    folder.write("tools.py", KIT.replace("speak", "shout"))

    async def scenario() -> None:
        async with using(hub) as client:
            await until(lambda: [row.id for row in hub.expand()] == ["shout"], DEADLINE)
            assert names(await client.list_tools()) == ["shout"]

    asyncio.run(scenario())


def test_a_file_that_is_saved_in_pieces_is_loaded_once(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub):
            with folder.config.open("w") as file:
                for piece in ("", CONFIG, "prompts:\n", "  hello: {template: Hello.}\n"):
                    file.write(piece)
                    file.flush()
                    await asyncio.sleep(0.15)
            await until(lambda: "was reloaded" in caplog.text, DEADLINE)
            assert list(loaded_of(hub).config.prompts) == ["hello"]
            await asyncio.sleep(1.5)  # as long as a change takes to be noticed, and more

    with caplog.at_level("INFO", "waypost.runtime.configuration"):
        asyncio.run(scenario())
    assert caplog.text.count("reloaded") == 1


def test_a_hub_that_is_started_again_watches_again(folder: Folder) -> None:
    hub = folder.hub()

    async def scenario(name: str) -> None:
        async with using(hub) as client:
            folder.write("tools.py", KIT.replace("speak", name))
            await client.assert_notification("tools/list_changed", within=DEADLINE)

    asyncio.run(scenario("first"))
    asyncio.run(scenario("second"))


def test_a_hangup_reloads_a_running_process(folder: Folder) -> None:
    folder.write("waypost.yaml", CONFIG.replace("server: {", "server: {port: 0, "))

    with serving("waypost.yaml", cwd=folder.path) as hub:
        assert hub.url
        hub.signal(signal.SIGHUP)
        assert "reloaded" in hub.wait_for("the configuration was reloaded")
        folder.write("waypost.yaml", "toolkits: [")
        hub.signal(signal.SIGHUP)
        assert "CFG004" in hub.wait_for("the configuration was not reloaded")
        assert hub.process.poll() is None
