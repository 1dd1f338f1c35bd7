"""The section `store`: the database of a hub."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.configured.conftest import CONFIG, Folder
from waypost import Hub


async def open_and_stop(hub: Hub) -> None:
    """Open the store of a hub and stop the hub."""
    await hub.store.open()
    await hub.stop()


@pytest.mark.parametrize(
    ("section", "file"),
    [
        ("", ".waypost/waypost.db"),
        ("store: {url: 'sqlite:///other.db?synchronous=NORMAL'}", ".waypost/other.db"),
        ("store: {url: 'sqlite:///${NAME:-deep/er}.db'}", ".waypost/deep/er.db"),
    ],
    ids=["by default", "with options", "with a variable"],
)
def test_a_hub_from_a_file_has_its_store_next_to_the_file(
    section: str, file: str, folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.delenv("WAYPOST_DATA", raising=False)
    folder.write("waypost.yaml", CONFIG + section)
    monkeypatch.chdir(folder.path)
    hub = Hub.from_config(Path("waypost.yaml"))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert not (folder.path / ".waypost").exists()

    asyncio.run(open_and_stop(hub))

    assert (folder.path / file).exists()


def test_the_environment_decides_where_the_data_directory_is(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WAYPOST_DATA", str(tmp_path / "data"))

    asyncio.run(open_and_stop(folder.hub()))

    assert (tmp_path / "data" / "waypost.db").exists()
    assert not (folder.path / ".waypost").exists()


def test_a_store_in_memory_can_be_configured(folder: Folder) -> None:
    folder.write("waypost.yaml", CONFIG + "store: {url: 'sqlite://'}\n")

    assert not folder.hub().store.database.is_durable


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://db/waypost", "names no store"),
        ("waypost.db", "names no store"),
        ("sqlite://waypost.db", "has a host"),
        ("sqlite:///waypost.db?journal=off", "Unknown options"),
        ("sqlite:///waypost.db?synchronous=OFF", "Unknown options"),
    ],
)
def test_an_invalid_store_url_is_a_finding(url: str, said: str, folder: Folder) -> None:
    folder.write("waypost.yaml", f"{CONFIG}store:\n  url: '{url}'\n")

    (found,) = folder.findings()

    assert (found.file, found.line, found.key, found.code) == (str(folder.config), 6, "store.url", "CFG061")
    assert said in found.message


def test_an_invalid_store_in_a_reload_is_refused(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    hub = folder.hub()
    folder.write("waypost.yaml", f"{CONFIG}store: {{url: 'mysql://db'}}\n")

    assert asyncio.run(hub.reload()) is False
    assert "CFG061" in caplog.text
