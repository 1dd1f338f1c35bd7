"""Toolkits of a configuration file: configured, opened with the hub, and replaced by a reload."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.protocol.conftest import asynchronous
from waypost import ConfigError, Hub
from waypost.testing import connect

KIT = """
from pathlib import Path
from waypost import Toolkit, tool


class Db(Toolkit):
    def __init__(self, path: str = "", size: int = 1):
        self.path, self.size = path, size

    def note(self, event: str) -> None:
        with open(Path(__file__).parent / "events", "a") as file:
            file.write(event + "\\n")

    async def open(self) -> None:
        self.note(f"open {self.path} {self.size}")

    def close(self) -> None:
        self.note(f"close {self.path}")

    @tool
    def where(self) -> str:
        \"\"\"Say where the data is.\"\"\"
        return f"{self.path}:{self.size}"
"""


def write(folder: Path, config: str) -> Path:
    (folder / "db.py").write_text(KIT)
    file = folder / "waypost.yaml"
    file.write_text("server: {surface: full}\ntoolkits: [{use: ./db.py:Db, config: " + config + "}]\n")
    return file


def events(folder: Path) -> list[str]:
    return (folder / "events").read_text().splitlines()


@asynchronous
async def test_a_toolkit_gets_its_config_and_is_opened_and_closed(tmp_path: Path) -> None:
    hub = Hub.from_config(write(tmp_path, "{path: here, size: 3}"))
    async with connect(hub) as client:
        assert (await client.call_tool("where")).text == "here:3"
    await hub.stop()

    assert events(tmp_path) == ["open here 3", "close here"]


@asynchronous
async def test_a_reload_opens_the_new_toolkit_before_it_closes_the_old_one(tmp_path: Path) -> None:
    file = write(tmp_path, "{path: old}")
    hub = Hub.from_config(file)
    async with connect(hub) as client:
        write(tmp_path, "{path: new}")
        assert await hub.reload()
        assert (await client.call_tool("where")).text == "new:1"
    await hub.stop()

    assert events(tmp_path) == ["open old 1", "open new 1", "close old", "close new"]


@asynchronous
async def test_a_reload_of_unchanged_files_leaves_the_toolkit_open(tmp_path: Path) -> None:
    hub = Hub.from_config(write(tmp_path, "{path: here}"))
    await hub.start()
    assert await hub.reload()
    await hub.stop()

    assert events(tmp_path) == ["open here 1", "close here"]


@asynchronous
async def test_a_reload_reads_unchanged_files_again_when_the_environment_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHERE_TO", "old")
    hub = Hub.from_config(write(tmp_path, "{path: '${WHERE_TO}'}"))
    async with connect(hub) as client:
        monkeypatch.setenv("WHERE_TO", "new")
        assert await hub.reload()
        assert (await client.call_tool("where")).text == "new:1"
    await hub.stop()


@pytest.mark.parametrize(
    ("config", "reason"),
    [("{paht: x}", "Db does not take this config: got an unexpected keyword argument 'paht'")],
)
def test_config_that_does_not_fit_is_a_finding(tmp_path: Path, config: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Hub.from_config(write(tmp_path, config))
