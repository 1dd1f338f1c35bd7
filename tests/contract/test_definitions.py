"""Detection of persisted definitions and content in a store."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.contract.conftest import Place, asynchronous, opened
from tests.contract.test_documents import of_kind
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Persisted, Store, detect_persisted

NOTHING = Persisted(workflows=False, content=False, hidden=False)


@pytest.mark.parametrize(
    ("kind", "document_id", "left"),
    [
        ("definitions", "workflow:a", Persisted(workflows=True, content=False, hidden=False)),
        ("definitions", "workflow:\U0010ffff", Persisted(workflows=True, content=False, hidden=False)),
        ("definitions", "workflow", NOTHING),
        ("definitions", "workflow;", NOTHING),
        ("definitions", "0123456789abcdef", NOTHING),
        ("definitions", "zzz", NOTHING),
        ("skills", "a", Persisted(workflows=False, content=True, hidden=False)),
        ("prompts", "a", Persisted(workflows=False, content=True, hidden=False)),
        ("executables", "a", NOTHING),
    ],
)
@asynchronous
async def test_persisted_workflows_and_published_content_are_detected(
    lasting_place: Place, kind: str, document_id: str, left: Persisted
) -> None:
    async with opened(lasting_place.store()) as store:
        await of_kind(store, kind).put(document_id, {})
        assert await detect_persisted(store) == left


@asynchronous
async def test_workflows_and_content_are_detected_together(lasting_place: Place) -> None:
    async with opened(lasting_place.store()) as store:
        assert await detect_persisted(store) == NOTHING
        await store.definitions.put("workflow:a", {})
        await store.prompts.put("a", {})
        assert await detect_persisted(store) == Persisted(workflows=True, content=True, hidden=False)


@asynchronous
async def test_detection_does_not_create_a_missing_store(lasting_place: Place) -> None:
    async with opened(lasting_place.store()) as store:
        assert await detect_persisted(store) == NOTHING
        assert await store.database.schema_version() == 0


@asynchronous
async def test_a_store_in_memory_is_not_even_opened() -> None:
    store = Store(SqliteDatabase())

    assert await detect_persisted(store) == NOTHING
    assert not store.is_open


@asynchronous
async def test_a_store_that_cannot_be_read_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "store.db"
    file.write_bytes(b"this is no database" * 100)
    with caplog.at_level(logging.WARNING, "waypost.stores.store"):
        async with opened(Store(SqliteDatabase(file))) as store:
            assert await detect_persisted(store) == NOTHING

    assert [one.message.startswith("reading persisted definitions failed: ") for one in caplog.records] == [True]
