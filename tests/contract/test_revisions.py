"""The revision of a kind of documents: a number that every change of any store increments."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.contract.conftest import Place, asynchronous, on_store, opened
from waypost.errors import StaleVersion
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store


@on_store
async def test_every_change_of_a_document_moves_the_revision_of_its_kind(store: Store) -> None:
    assert await store.revisions() == {}

    await store.skills.put("a", 1)
    assert await store.revisions() == {"skills": 1}
    await store.skills.put("a", 2, 1)
    await store.skills.remove("a", 2)
    assert await store.revisions() == {"skills": 3}
    await store.skills.put("a", 1)
    await store.prompts.put("a", 1)
    assert await store.revisions() == {"skills": 4, "prompts": 1}


@on_store
async def test_a_value_that_is_counted_moves_the_revision_of_its_scope(store: Store) -> None:
    await store.state.put("plain", "a", 1)
    await store.state.put("pins", "a", 1, counted=True)
    await asyncio.gather(*(store.state.put("pins", key, 1, counted=True) for key in "bc"))
    await store.state.put("pins", "a", 2, 1, counted=True)
    with pytest.raises(StaleVersion):
        await store.state.put("pins", "a", 3, 1, counted=True)
    assert await store.revisions() == {"pins": 4}


@on_store
async def test_a_refused_write_does_not_change_the_revision(store: Store) -> None:
    await store.skills.put("a", 1)
    for version in (0, 2):
        with pytest.raises(StaleVersion):
            await store.skills.put("a", 2, version)
    with pytest.raises(StaleVersion):
        await store.skills.remove("a", 2)

    assert await store.revisions() == {"skills": 1}


@on_store
async def test_a_read_does_not_change_the_revision(store: Store) -> None:
    await store.skills.put("a", 1)
    await store.skills.get("a")
    await store.skills.page()
    await store.sweep()

    assert await store.revisions() == {"skills": 1}


@on_store
async def test_changes_that_are_written_together_are_all_counted(store: Store) -> None:
    async def use(name: str) -> None:
        kind = store.skills if name < "m" else store.prompts
        await kind.put(name, 1)
        await kind.put(name, 2, 1)
        with pytest.raises(StaleVersion):
            await kind.put(name, 3, 1)
        await kind.remove(name, 2)

    await asyncio.gather(*(use(f"{letter}{number}") for letter in "ax" for number in range(40)))

    assert await store.revisions() == {"skills": 120, "prompts": 120}


@asynchronous
async def test_a_change_and_its_revision_are_seen_together_by_others(lasting_place: Place) -> None:
    async with opened(lasting_place.store()) as first, opened(lasting_place.store()) as second:
        await first.open()
        for number in range(1, 4):
            await first.skills.put(f"{number}", number)
            assert await second.revisions() == {"skills": number}
            assert len(await second.skills.page()) == number


@asynchronous
async def test_no_change_is_lost_when_several_stores_write_at_once(lasting_place: Place) -> None:
    async def write(store: Store, name: str) -> None:
        await asyncio.gather(*(store.skills.put(f"{name}{number}", number) for number in range(30)))

    async with opened(lasting_place.store()) as first, opened(lasting_place.store()) as second:
        await first.open()
        await asyncio.gather(write(first, "a"), write(second, "b"))

        assert await first.revisions() == await second.revisions() == {"skills": 60}


@asynchronous
async def test_revisions_are_in_a_backup(place: Place, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    async with opened(place.store()) as store:
        await store.skills.put("a", 1)
        await store.backup(target)
    async with opened(Store(SqliteDatabase(target))) as copy:
        await copy.skills.put("b", 1)

        assert await copy.revisions() == {"skills": 2}
