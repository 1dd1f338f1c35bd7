"""Which store a URL names."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from waypost.errors import StoreError
from waypost.stores import urls
from waypost.stores.directory import data_directory
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.sqlite import SqliteDatabase


def opened_files(url: str, data: Path) -> list[Path]:
    """The databases that are there once a store was used."""

    async def use() -> None:
        database = urls.create_database(url, data)
        await database.open()
        await database.close()

    asyncio.run(use())
    return sorted(data.parent.rglob("*.db"))


def test_a_relative_file_is_in_the_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"

    assert opened_files(urls.DEFAULT, data) == [data / "waypost.db"]
    assert opened_files("sqlite:///deep/er/my%20own.db", data) == [data / "deep/er/my own.db", data / "waypost.db"]


def test_an_absolute_file_is_at_its_path(tmp_path: Path) -> None:
    assert opened_files(f"sqlite:///{tmp_path}/other/x.db", tmp_path / "data") == [tmp_path / "other" / "x.db"]


@pytest.mark.parametrize("url", [urls.MEMORY, "sqlite:///:memory:", "SQLITE://"])
def test_a_store_in_memory_leaves_no_file(url: str, tmp_path: Path) -> None:
    found = urls.create_database(url, tmp_path)

    assert isinstance(found, SqliteDatabase)
    assert not found.is_durable
    assert opened_files(url, tmp_path / "data") == []


@pytest.mark.parametrize("option", ["synchronous=FULL", "synchronous=normal"])
def test_the_durability_of_a_file_can_be_configured(option: str, tmp_path: Path) -> None:
    found = urls.create_database(f"sqlite:///x.db?{option}", tmp_path)

    assert found.is_durable
    assert not found.is_shared


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_server_is_shared(scheme: str, tmp_path: Path) -> None:
    found = urls.create_database(f"{scheme}://ada:secret@example.org:5433/waypost", tmp_path)

    assert isinstance(found, PostgresDatabase)
    assert found.is_shared
    assert found.is_durable
    assert "example.org" in found.name
    assert "secret" not in found.name


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "names no store"),
        ("waypost.db", "names no store"),
        ("mysql://host/db", "names no store"),
        ("sqlite://waypost.db", "has a host"),
        ("sqlite:///x.db?synchronous=OFF", "options"),
        ("sqlite:///x.db?journal=wal", "options"),
        ("sqlite:///x.db?synchronous=", "options"),
    ],
)
def test_a_url_that_names_no_store_is_refused(url: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=words):
        urls.create_database(url, tmp_path)


def test_a_password_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as refused:
        urls.create_database("mysql://ada:hunter2@host/db", tmp_path)
    assert "hunter2" not in refused.value.message


def test_the_error_for_a_missing_driver_names_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "waypost.stores.postgres")
    monkeypatch.setitem(sys.modules, "asyncpg", None)

    with pytest.raises(StoreError, match=r"waypost\[postgres\]"):
        urls.create_database("postgresql://host/db", tmp_path)


def test_the_data_directory_is_named_or_beside_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYPOST_DATA", raising=False)
    assert data_directory(tmp_path / "hub.py") == tmp_path / ".waypost"

    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "main.py"), raising=False)
    assert data_directory() == tmp_path / ".waypost"

    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    assert data_directory() == Path(".waypost")

    monkeypatch.setenv("WAYPOST_DATA", "/srv/waypost")
    assert data_directory(tmp_path / "hub.py") == Path("/srv/waypost")
