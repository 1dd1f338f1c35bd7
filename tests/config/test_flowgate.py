from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.conftest import Folder
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.urls import create_database


@pytest.mark.parametrize("version", ["1", "1.0", "1.0.0", "1.12.3"])
def test_every_spelling_of_the_first_version_is_accepted(folder: Folder, version: str) -> None:
    assert folder.load(f'version: "{version}"\n').config.version == "1"


@pytest.mark.parametrize("version", ["1", "1.0", "1.5"])
def test_the_first_version_needs_no_quotes(folder: Folder, version: str) -> None:
    assert folder.load(f"version: {version}\n").config.version == "1"


@pytest.mark.parametrize("version", ["2.0.0", "1.", "1.x", "10.0", "0.1.0"])
def test_another_version_is_refused(folder: Folder, version: str) -> None:
    assert folder.only(f'version: "{version}"\n').code == "CFG013"


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("{kind: memory}", "sqlite://"),
        ("{kind: sqlite, path: flow.db}", "sqlite:///flow.db"),
        ("{kind: sqlite, path: /srv/flow gate.db}", "sqlite:////srv/flow%20gate.db"),
        ("{kind: sqlite, path: '~/flow.db'}", "sqlite:////home/ann/flow.db"),
        ("{kind: sqlite, url: 'sqlite:///other.db'}", "sqlite:///other.db"),
        ("{kind: postgres, url: '${DATABASE}'}", "postgresql://me@host/flow"),
        ("{kind: postgres, path: 'postgres://me@host/flow'}", "postgres://me@host/flow"),
    ],
)
def test_a_store_with_a_kind_is_converted_to_a_url(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, written: str, url: str
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    loaded = folder.load(f"store: {written}\n", DATABASE="postgresql://me@host/flow")
    assert (loaded.config.store.url, loaded.warnings) == (url, ())


def test_a_store_with_a_path_is_opened_at_that_path(folder: Folder) -> None:
    url = folder.load(f"store: {{kind: sqlite, path: '{folder.path}/a b%41.db'}}\n").config.store.url
    opened = create_database(url, Path("elsewhere"))
    assert isinstance(opened, SqliteDatabase)
    assert opened.path == folder.path / "a b%41.db"


@pytest.mark.parametrize(
    ("written", "key", "code"),
    [
        ("{kind: redis}", "store.kind", "CFG013"),
        ("{kind: [sqlite]}", "store.kind", "CFG013"),
        ("{kind: sqlite}", "store.path", "CFG014"),
        ("{kind: postgres}", "store.url", "CFG014"),
        ("{kind: sqlite, path: 5}", "store.url", "CFG012"),
        ("{kind: sqlite, path: x.db, mode: wal}", "store.mode", "CFG010"),
        ("{path: x.db}", "store.path", "CFG010"),
    ],
)
def test_an_invalid_store_is_an_error(folder: Folder, written: str, key: str, code: str) -> None:
    found = folder.only(f"store: {written}\n")
    assert (found.key, found.code, found.severity) == (key, code, "error")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("discovery: {index: memory, include: [proxy]}", "discovery"),
        ("audit: {sink: memory}", "audit.sink"),
        ("audit: {sink: file, path: log}", "audit.path"),
        ("store: {kind: file, path: log}", "store.kind"),
        ("workflows: {a: {blackboard: [x], states: {}}}", "workflows.a.blackboard"),
        ("workflows: {a: {onTimeout: {target: b, executor: {kind: noop}}}}", "workflows.a.onTimeout.executor"),
    ],
)
def test_a_setting_without_effect_is_a_warning_at_its_line(folder: Folder, text: str, key: str) -> None:
    found = folder.only(f"\n{text}\n")
    assert (found.line, found.key, found.code, found.severity) == (2, key, "CFG064", "warning")


def test_a_store_of_an_included_file_is_replaced_by_the_including_one(folder: Folder) -> None:
    folder.write("base.yaml", "store: {kind: sqlite, path: base.db}\naudit: {sink: stdout}\n")
    config = folder.load("include: [base.yaml]\nstore: {kind: memory}\n").config
    assert (config.store.url, config.audit.sink) == ("sqlite://", "stderr")
