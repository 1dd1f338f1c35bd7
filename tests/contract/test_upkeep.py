"""The store as a whole: opening, closing, sweeping, checking, copying."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.contract.conftest import Place, asynchronous, on_store, opened
from tests.contract.samples import KEYS, NOW, VALUES, audited, event, head_of, instance, session, task
from tests.postgres import run_sql
from waypost.errors import StoreError
from waypost.stores import schema
from waypost.stores.database import Query
from waypost.stores.records import Documents
from waypost.stores.replicas import BudgetStore, Holding, Replica, ReplicaStore, WorkerRecord, WorkerStore
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord


async def fill(store: Store) -> None:
    """Put something into every table."""
    soon = time.time() + 3600
    await store.sessions.save(session())
    await store.tasks.save(task(expires_at=soon, result={"all": list(VALUES)}))
    await store.events.append([event(number, expires_at=soon) for number in range(5)])
    await store.tasks.keep_holder("hub-1", soon)
    await store.instances.start(instance(), NOW, 1, RequestRecord("s", "k", "d", list(VALUES)))
    await store.instances.commit(instance(state="paid", value=list(VALUES)), NOW, list(VALUES))
    await store.instances.settle(instance(version=2, value=list(VALUES)), NOW, list(VALUES))
    await store.audit.append(audited(), head=head_of)
    await store.jobs.add("q", "j", list(VALUES), NOW)
    await asyncio.gather(*(store.state.put("scope", key, key) for key in KEYS))
    policies = Documents(store.database, schema.POLICIES, lambda _kind, _id: None)
    kinds = (store.skills, store.prompts, store.executables, store.definitions, store.keys, policies)
    await asyncio.gather(*(documents.put("d", list(VALUES)) for documents in kinds))
    replica = Replica(
        id="a", address="", version="1", config_digest="d", started_at=NOW, last_seen_at=NOW, status="ready"
    )
    await ReplicaStore(store.database).register(replica)
    await WorkerStore(store.database).put(WorkerRecord("a", "w", 1, "{}"))
    budgets = BudgetStore(store.database)
    await budgets.replace(await budgets.load("b"), {"a": Holding(1, soon)})


async def content(store: Store) -> dict[str, list[Any]]:
    """Everything in the store."""
    found = {}
    for table in schema.TABLES:
        query = Query(f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {', '.join(table.key)}")
        found[table.name] = [tuple(row) for row in await store.database.read(query)]
    return found


@on_store
async def test_a_store_opens_when_it_is_first_used_and_may_be_opened_again(store: Store) -> None:
    assert not store.is_open

    await store.open()
    await store.open()

    assert store.is_open
    assert await store.health() == "ok"


@on_store
async def test_a_store_can_be_closed_twice(store: Store) -> None:
    await store.close()
    await store.skills.put("a", 1)
    await store.close()
    await store.close()

    assert not store.is_open


@on_store
async def test_a_reopened_store_has_its_records(store: Store) -> None:
    await fill(store)
    before = await content(store)
    await store.close()

    assert await content(store) == before
    assert all(before[table.name] for table in schema.TABLES)


@asynchronous
async def test_the_next_store_at_the_location_has_the_records(lasting_place: Place) -> None:
    async with opened(lasting_place.store()) as first:
        assert first.database.is_durable
        await fill(first)
        before = await content(first)
    async with opened(lasting_place.store()) as second:
        assert await content(second) == before
        assert await second.check() == []


@asynchronous
async def test_queued_writes_are_done_when_the_store_closes(place: Place) -> None:
    store = place.store()
    await store.open()
    waiting = [asyncio.ensure_future(store.skills.put(f"{number}", number)) for number in range(20)]
    await asyncio.sleep(0)
    await store.close()

    assert [done.version for done in await asyncio.gather(*waiting)] == [1] * 20
    assert len(await store.skills.page()) == 20
    await store.close()


@on_store
async def test_only_expired_records_are_swept_and_counted(store: Store) -> None:
    soon, over = time.time() + 3600, time.time() - 1
    await store.tasks.save(task(id="old", expires_at=over))
    await store.tasks.save(task(id="new", expires_at=soon))
    await store.events.append([event(number, expires_at=over) for number in range(1100)])
    await store.events.append([event(2000, expires_at=soon)])
    await store.requests.put(RequestRecord("s", "old", "d", 1, over))
    await store.requests.put(RequestRecord("s", "ever", "d", 1))
    await store.tasks.keep_holder("old", over)
    await store.tasks.keep_holder("new", soon)
    await store.sessions.save(session())
    await store.audit.append(audited(number=1, at=1.0), audited(number=2, at=time.time()), head=head_of)

    assert await store.sweep() == 1103
    assert await store.sweep() == 0
    left = {name: len(rows) for name, rows in (await content(store)).items() if rows}
    assert left == {"sessions": 1, "tasks": 1, "events": 1, "requests": 1, "holders": 1, "audit": 2, "state": 1}, (
        "the head of the audit is state; the hub sweeps the audit itself"
    )


@on_store
async def test_the_check_of_a_sound_store_finds_nothing(store: Store) -> None:
    assert await store.check() == []
    await fill(store)
    assert await store.check() == []


@asynchronous
async def test_a_history_with_a_gap_and_one_without_an_instance_are_found(lasting_place: Place) -> None:
    async with opened(lasting_place.store()) as store:
        for name in ("whole", "torn", "lost"):
            await store.instances.start(instance(id=name), NOW, 1)
            await store.instances.commit(instance(id=name), NOW, 2)
        _tamper(
            lasting_place,
            "DELETE FROM history WHERE instance = 'torn' AND version = 1",
            "DELETE FROM instances WHERE id = 'lost'",
        )

        found = await store.check()

    assert len(found) == 2
    assert "torn" in found[0]
    assert "lost" in found[1]


def _tamper(place: Place, *statements: str) -> None:
    if isinstance(place.where, str):
        run_sql(place.where, *statements)
        return
    assert place.where is not None
    with closing(apsw.Connection(str(place.where))) as connection:
        for statement in statements:
            connection.execute(statement)


@asynchronous
async def test_a_missing_table_is_found(postgres_url: str) -> None:
    async with opened(Place("postgres", postgres_url).store()) as store:
        await store.open()
        run_sql(postgres_url, "DROP TABLE skills")
        assert await store.check() == ["The table skills is missing."]


@on_store
async def test_a_backup_is_a_store_with_the_same_content(store: Store, tmp_path: Path) -> None:
    await fill(store)
    target = tmp_path / "backup.db"

    original = await content(store)
    await store.backup(target)
    await store.skills.put("later", 1)

    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [name for name in os.listdir(tmp_path) if "backup" in name] == ["backup.db"]
    async with opened(Store(SqliteDatabase(target))) as copy:
        assert await content(copy) == original
        assert await copy.check() == []
        await copy.skills.put("new", 1)


@on_store
async def test_a_backup_of_an_empty_store_is_an_empty_store(store: Store, tmp_path: Path) -> None:
    await store.open()
    await store.backup(tmp_path / "backup.db")

    async with opened(Store(SqliteDatabase(tmp_path / "backup.db"))) as copy:
        assert not any((await content(copy)).values())


@asynchronous
async def test_a_backup_of_a_missing_store_is_refused_and_does_not_create_it(
    lasting_place: Place, tmp_path: Path
) -> None:
    async with opened(lasting_place.store()) as store:
        with pytest.raises(StoreError):
            await store.backup(tmp_path / "backup.db")
        assert await store.database.schema_version() == 0
    assert os.listdir(tmp_path) == []


@on_store
async def test_reading_the_schema_version_does_not_migrate(store: Store) -> None:
    if store.database.is_durable:
        assert await store.database.schema_version() == 0
        assert await store.database.schema_version() == 0
    await store.open()

    assert await store.database.schema_version() == schema.LATEST


@on_store
async def test_instances_tasks_and_sessions_are_counted(store: Store) -> None:
    assert await store.counts() == {"instances": 0, "tasks": 0, "sessions": 0}
    await fill(store)
    await store.instances.start(instance(id="i2"), NOW, 1)
    assert await store.counts() == {"instances": 2, "tasks": 1, "sessions": 1}


@on_store
async def test_a_backup_does_not_overwrite_a_file(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    target.write_text("precious")

    with pytest.raises(StoreError, match=r"backup\.db.*already"):
        await store.backup(target)
    assert target.read_text() == "precious"
    assert await store.health() == "ok"


@on_store
async def test_a_backup_into_a_missing_directory_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        await store.backup(tmp_path / "none" / "backup.db")
    assert await store.health() == "ok"


@on_store
async def test_a_backup_is_one_moment_while_others_write(store: Store, tmp_path: Path) -> None:
    await store.instances.start(instance(), NOW, 1)

    async def move() -> None:
        for version in range(1, 60):
            await store.instances.commit(instance(version=version), NOW, version + 1)

    await asyncio.gather(move(), *(store.backup(tmp_path / f"backup-{number}.db") for number in range(2)))

    for number in range(2):
        async with opened(Store(SqliteDatabase(tmp_path / f"backup-{number}.db"))) as copy:
            assert await copy.check() == []


@on_store
async def test_vacuum_removes_expired_records_and_keeps_the_rest(store: Store) -> None:
    await fill(store)
    before = await content(store)
    await store.events.append([event(number, stream="old", expires_at=1.0) for number in range(50)])

    assert await store.vacuum() == 50
    assert await content(store) == before
    await store.skills.put("after", 1)


@asynchronous
async def test_vacuum_gives_room_back(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    async with opened(Store(SqliteDatabase(file))) as store:
        await store.skills.put("big", "x" * 3_000_000)
        await store.skills.remove("big", 1)
        await store.vacuum()
        assert file.stat().st_size < 1_000_000
