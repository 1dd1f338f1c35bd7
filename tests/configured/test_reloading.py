"""Reloading the file: settings that are replaced, kept, or applied at the next start."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

import pytest

from tests.configured.conftest import (
    BROKEN_KIT,
    CONFIG,
    ERAS,
    KIT,
    Folder,
    gate,
    held_kit,
    listening,
    more,
    names,
    using,
)
from waypost import RemoteError


@pytest.mark.parametrize("version", ERAS)
def test_a_reload_replaces_all_tools_with_one_notification(folder: Folder, version: str) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub, version) as client:
            assert names(await client.list_tools()) == ["speak"]
            async with listening(client):
                # A class with two new tools replaces one old tool: three rows change.
                folder.write("tools.py", KIT.replace("speak", "shout") + more("whisper"))
                assert await hub.reload()
                await client.assert_notification("tools/list_changed")
                await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["shout", "whisper"]
            with pytest.raises(RemoteError, match="Unknown tool: speak"):
                await client.call_tool("speak")

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_an_unchanged_file_causes_no_change_and_no_notification(folder: Folder, version: str) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub, version) as client, listening(client):
            folder.write("waypost.yaml", CONFIG)
            folder.write("tools.py", KIT)
            assert await hub.reload()
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["speak"]

    asyncio.run(scenario())


def test_new_code_with_the_same_definition_runs_without_a_notification(folder: Folder) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            folder.write("tools.py", KIT.replace('"one"', '"another"'))
            assert await hub.reload()
            assert (await client.call_tool("speak")).text == "another"
            await client.refute_notification("tools/list_changed")

    asyncio.run(scenario())


def test_two_edits_of_one_length_in_one_second_are_both_loaded(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    moment = 1_700_000_000
    os.utime(folder.tools, (moment, moment))
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            for word in ("two", "six"):
                folder.write("tools.py", KIT.replace('"one"', f'"{word}"'))
                os.utime(folder.tools, (moment, moment))
                assert await hub.reload()
                assert (await client.call_tool("speak")).text == word

    asyncio.run(scenario())


def test_prompts_are_reloaded(folder: Folder) -> None:
    folder.write("waypost.yaml", CONFIG + "prompts: {greet: {template: Hello.}}\n")
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            folder.write("waypost.yaml", CONFIG + "prompts: {greet: {template: Bye.}, part: {template: Go.}}\n")
            assert await hub.reload()
            await client.assert_notification("prompts/list_changed")
            await client.refute_notification("prompts/list_changed")
            await client.refute_notification("tools/list_changed")
            assert (await client.get_prompt("greet")).text == "Bye."
            assert names(await client.list_prompts()) == ["greet", "part"]

    asyncio.run(scenario())


def test_a_new_timeout_applies_after_a_reload(folder: Folder) -> None:
    folder.write("tools.py", "import asyncio\n" + KIT.replace('return "one"', "await asyncio.Event().wait()"))
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            folder.write("waypost.yaml", CONFIG + "mcp: {tool_timeout_ms: 50}\n")
            assert await hub.reload()
            assert (await client.call_tool("speak")).text == "Tool execution timed out"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("waypost.yaml", "toolkits: [./tools.py", "CFG004"),
        ("waypost.yaml", CONFIG + "servre: {}\n", "waypost.yaml:5: servre: "),
        ("waypost.yaml", CONFIG.replace("tools.py", "gone.py"), "gone.py"),
        ("waypost.yaml", CONFIG + "prompts: {x: {template: '{{ x'}}\n", "waypost.yaml:5"),
        ("tools.py", "def (:\n", "waypost.yaml:4: toolkits[0]: "),
        ("tools.py", "1 / 0\n", "ZeroDivisionError"),
        ("tools.py", KIT.replace("@tool(", "@tool(nmae='x', "), "nmae"),
        ("tools.py", BROKEN_KIT, "no disk"),
        ("tools.py", KIT + more("twin") + "\n@tool(name='twin')\ndef other(): ...\n", "`twin`"),
        ("tools.py", "raise SystemExit(3)\n", "SystemExit"),
    ],
    ids=[
        "yaml",
        "unknown key",
        "missing file",
        "template",
        "syntax",
        "raises",
        "definition",
        "constructor",
        "duplicate",
        "exits",
    ],
)
def test_an_invalid_file_keeps_the_old_configuration_and_is_logged(
    file: str, text: str, said: str, folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            folder.write(file, text)
            assert not await hub.reload()
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["speak"]
            assert (await client.call_tool("speak")).text == "one"
            folder.write("waypost.yaml", CONFIG)
            folder.write("tools.py", KIT.replace('"one"', '"healed"'))
            assert await hub.reload()
            assert (await client.call_tool("speak")).text == "healed"

    with caplog.at_level(logging.ERROR, "waypost"):
        asyncio.run(scenario())

    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "not reloaded" in record.getMessage()
    assert said in record.getMessage()


def test_a_file_that_disappears_keeps_the_old_configuration(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    hub = folder.hub()
    folder.config.unlink()

    assert asyncio.run(hub.reload()) is False
    assert [row.id for row in hub.expand()] == ["speak"]
    assert "CFG001" in caplog.text


def test_files_that_change_during_a_reload_keep_the_old_configuration(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    hub = folder.hub()
    folder.write("tools.py", f"from pathlib import Path\n\nPath({str(folder.config)!r}).touch()\n\n{KIT}")

    assert asyncio.run(hub.reload()) is False
    assert [row.id for row in hub.expand()] == ["speak"]
    assert "the files changed while they were read; they are read again [CFG035]" in caplog.text


def test_tools_added_in_python_keep_their_names(folder: Folder) -> None:
    hub = folder.hub()

    @hub.tool
    def mine() -> str:
        return "mine"

    async def scenario() -> None:
        folder.write("tools.py", KIT.replace("speak", "shout"))
        assert await hub.reload()
        assert [row.id for row in hub.expand()] == ["mine", "shout"]
        folder.write("tools.py", KIT.replace("speak", "mine"))
        assert not await hub.reload()
        assert [row.id for row in hub.expand()] == ["mine", "shout"]

    asyncio.run(scenario())


def test_running_calls_end_with_the_code_they_started_with(folder: Folder) -> None:
    folder.write("tools.py", held_kit("old"))
    hub = folder.hub()
    first = gate()

    async def scenario() -> None:
        async with using(hub) as client:
            call = asyncio.create_task(client.call_tool("speak"))
            await client.ping()
            folder.write("tools.py", KIT.replace('"one"', '"new"'))
            assert await hub.reload()
            assert (await client.call_tool("speak")).text == "new"
            first.set()
            assert (await call).text == "old"

    asyncio.run(scenario())


def test_a_change_of_the_server_section_applies_at_the_next_start(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    hub = folder.hub()
    folder.write("waypost.yaml", CONFIG.replace("name: desk", "name: office"))

    assert asyncio.run(hub.reload()) is True
    assert hub.info.name == "desk"
    assert "take effect at the next start" in caplog.text


def test_a_change_of_the_store_applies_at_the_next_start(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    hub = folder.hub()
    store = hub.store
    folder.write("waypost.yaml", CONFIG + "store: {url: 'sqlite:///other.db'}\n")

    assert asyncio.run(hub.reload()) is True
    assert hub.store is store
    assert "changes in the section store take effect at the next start" in caplog.text
