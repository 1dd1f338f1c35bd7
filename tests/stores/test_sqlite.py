"""Errors of SQLite files are one sentence, and several processes may use one file."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.contract.conftest import asynchronous, opened
from tests.contract.samples import NOW, instance
from tests.locks import hold_lock
from waypost.errors import StaleVersion, StoreDamaged, StoreError, StoreUnavailable
from waypost.stores.instances import _DUE
from waypost.stores.sqlite import SqliteDatabase, read_file_version, to_store_error
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord


def connection_of(database: SqliteDatabase) -> apsw.Connection:
    """The connection that writes."""
    assert database._writer is not None
    return database._writer.opened.result()


def wait_for_refusal(database: SqliteDatabase) -> None:
    """Wait until the writer that could not open the file has refused all writes, so that the next one starts afresh."""
    assert database._writer is not None
    database._writer._thread.join()


def written(file: Path, **values: Any) -> None:
    """A file with documents in it."""

    async def write() -> None:
        async with opened(Store(SqliteDatabase(file))) as store:
            await asyncio.gather(*(store.skills.put(name, value) for name, value in values.items()))

    asyncio.run(write())


@asynchronous
async def test_a_missing_directory_is_made_and_the_file_is_its_users_alone(tmp_path: Path) -> None:
    file = tmp_path / "not" / "there" / "store.db"
    async with opened(Store(SqliteDatabase(file))) as store:
        await store.skills.put("a", 1)

        modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(file.parent)}
    assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}


@asynchronous
async def test_a_full_disk_refuses_writes_while_reads_go_on_until_there_is_room(file: Path) -> None:
    database = SqliteDatabase(file)
    async with opened(Store(database)) as store:
        await store.instances.start(instance(), NOW, 1)
        pages = connection_of(database).execute("PRAGMA page_count").get
        connection_of(database).execute(f"PRAGMA max_page_count = {pages}")

        with pytest.raises(StoreUnavailable, match=r"store\.db is on a disk that is full; nothing was written"):
            await store.instances.commit(instance(state="big", value="x" * 100_000), NOW, 2)
        outcomes = await asyncio.gather(
            *(store.skills.put(f"s{n}", "x" * 100_000) for n in range(20)), return_exceptions=True
        )
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
        assert await store.instances.get("i1") == instance()
        assert await store.skills.page() == []
        assert await store.check() == []
        assert await store.health() == "unavailable"

        connection_of(database).execute(f"PRAGMA max_page_count = {pages + 10_000}")
        assert await store.health() == "ok"
        assert await store.instances.commit(instance(value="x" * 100_000), NOW, 2) == 2
        assert await store.check() == []


@asynchronous
@pytest.mark.parametrize("request_id", [None, "r1"])
async def test_a_transition_writes_no_index_of_unchanged_columns(file: Path, request_id: str | None) -> None:
    async with opened(Store(SqliteDatabase(file))) as store:
        await store.instances.start(instance(), NOW, 1)
        wal = file.with_name("store.db-wal")
        written = list[int]()
        version, state, status = 1, instance().state, instance().status
        for moved in [(state, status), (state, status), ("next", status), ("last", "completed")]:
            size = wal.stat().st_size
            after = instance(version=version, state=moved[0], status=moved[1])
            request = request_id and RequestRecord("i1", f"{request_id}{version}", "", {}, NOW + version)
            version = await store.instances.commit(after, NOW, 2, "", request or None, (state, status))
            state, status = moved
            written.append(wal.stat().st_size - size)
            kept = await store.instances.get("i1")
            assert kept is not None and (kept.version, kept.state, kept.status) == (version, *moved)

        with pytest.raises(StaleVersion):
            await store.instances.commit(instance(version=1, state=state), NOW, 2, "", None, (state, status))
        page = 4096 + 24
        assert [more - written[0] for more in written] == [0, 0, page, 3 * page]


@asynchronous
async def test_a_query_of_an_indexed_column_is_planned_once_for_all_values(file: Path) -> None:
    database = SqliteDatabase(file)
    async with opened(Store(database)):
        await database.open()
        with closing(database._connect(reading=True)) as connection:
            planned = list[float]()
            now = 0.0

            def note(*_: Any) -> int:
                planned.append(now)
                return apsw.SQLITE_OK

            connection.authorizer = note  # which SQLite asks whenever it plans a statement
            for now in (1.0, 2.0, 3.0):
                connection.execute(_DUE.sqlite, (now, 100)).fetchall()
    assert set(planned) == {1.0}


@asynchronous
async def test_writes_that_fit_on_a_full_disk_succeed(file: Path) -> None:
    database = SqliteDatabase(file)
    async with opened(Store(database)) as store:
        await store.skills.put("a", 1)
        pages = connection_of(database).execute("PRAGMA page_count").get
        connection_of(database).execute(f"PRAGMA max_page_count = {pages}")

        values = {"big": "x" * 100_000, "small": "x"}
        outcomes = await asyncio.gather(
            *(store.skills.put(name, value) for name, value in values.items()), return_exceptions=True
        )

        assert [isinstance(outcome, StoreUnavailable) for outcome in outcomes] == [True, False]
        assert [found.id for found in await store.skills.page()] == ["a", "small"]


@asynchronous
async def test_a_disk_that_has_room_for_small_rows_only_is_not_healthy(file: Path) -> None:
    database = SqliteDatabase(file)
    async with opened(Store(database)) as store:
        await store.skills.put("a", 1)
        pages = connection_of(database).execute("PRAGMA page_count").get
        connection_of(database).execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreUnavailable, match="full"):
            await store.skills.put("big", "x" * 100_000)
        await store.skills.put("small", "x")

        assert await store.health() == "unavailable"
        assert await store.health() == "unavailable"
        connection_of(database).execute("PRAGMA max_page_count = 1000000")
        assert await store.health() == "ok"
        await store.skills.put("big", "x" * 100_000)


@asynchronous
async def test_a_file_locked_too_long_by_another_process_refuses_writes_until_it_is_free(file: Path) -> None:
    async with opened(Store(SqliteDatabase(file, busy=0.1))) as store:
        await store.skills.put("a", 1)
        with hold_lock(file):
            with pytest.raises(StoreUnavailable, match=r"locked by another process.*nothing was written"):
                await store.skills.put("b", 1)
            assert [found.id for found in await store.skills.page()] == ["a"]
        await store.skills.put("b", 1)
        assert [found.id for found in await store.skills.page()] == ["a", "b"]


@asynchronous
async def test_writes_behind_one_that_waits_for_a_lock_do_not_wait_for_their_own_timeout_too(file: Path) -> None:
    async with opened(Store(SqliteDatabase(file, busy=6.0))) as store:
        await store.skills.put("a", 1)
        with hold_lock(file):
            began = time.monotonic()
            first = asyncio.ensure_future(store.skills.put("b", 1))
            await asyncio.sleep(0.1)  # the writer waits for the lock by now, the second write is another transaction
            second = asyncio.ensure_future(store.skills.put("c", 1))
            outcomes = await asyncio.gather(first, second, return_exceptions=True)
            assert [isinstance(outcome, StoreUnavailable) for outcome in outcomes] == [True, True]
            assert time.monotonic() - began < 11  # twice the timeout is 12 s
        await store.skills.put("b", 1)


@asynchronous
async def test_a_file_that_is_locked_when_it_is_opened_opens_when_it_is_free(file: Path) -> None:
    database = SqliteDatabase(file, busy=0.1)
    async with opened(Store(database)) as store:
        with hold_lock(file, "EXCLUSIVE"):
            with pytest.raises(StoreUnavailable, match="locked by another process"):
                await store.open()
            with pytest.raises(StoreUnavailable, match="locked by another process"):
                await store.skills.put("a", 1)
            assert await store.health() == "unavailable"
            wait_for_refusal(database)
        await store.skills.put("a", 1)
        assert await store.health() == "ok"


@asynchronous
async def test_a_new_file_that_another_process_is_just_making_is_waited_for(file: Path) -> None:
    database = SqliteDatabase(file, busy=10)
    async with opened(Store(database)) as store:
        other = apsw.Connection(str(file))
        other.execute("BEGIN EXCLUSIVE")
        threading.Timer(0.2, other.close).start()
        assert await store.skills.page() == []


@asynchronous
async def test_a_new_file_that_stays_locked_is_unavailable_to_readers_too(file: Path) -> None:
    async with opened(Store(SqliteDatabase(file, busy=0.1))) as store:
        with hold_lock(file, "EXCLUSIVE"), pytest.raises(StoreUnavailable, match="locked by another process"):
            await store.skills.page()


def _overwrite(file: Path, start: int, content: bytes) -> None:
    with file.open("r+b") as opened_file:
        opened_file.seek(start)
        opened_file.write(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "header": lambda file: _overwrite(file, 0, b"\xff" * 100),
    "middle": lambda file: _overwrite(file, 3 * 4096, b"\xff" * 4 * 4096),
    "first page": lambda file: _overwrite(file, 100, b"\xff" * 3996),
    "text": lambda file: file.write_text("Dear diary,\n" * 1000),
    "truncated": lambda file: os.truncate(file, 6 * 4096),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_and_works_again_once_it_is_replaced(file: Path, damage: str) -> None:
    written(file, **{f"s{n}": "x" * 3000 for n in range(20)})
    backup = file.with_suffix(".backup")
    shutil.copy(file, backup)
    DAMAGES[damage](file)
    damaged = file.read_bytes()

    def replace() -> None:
        assert file.read_bytes() == damaged
        shutil.copy(backup, file)

    async def use() -> None:
        database = SqliteDatabase(file)
        async with opened(Store(database)) as store:
            with pytest.raises(StoreDamaged, match=r"store\.db is (damaged|not a SQLite database).*restore a backup"):
                await store.open()
            with pytest.raises(StoreDamaged, match="restore a backup"):
                await store.skills.put("new", 1)
            assert await store.health() == "unavailable"
            wait_for_refusal(database)
            replace()
            await store.skills.put("new", 1)
            assert len(await store.skills.page()) == 21
            assert await store.check() == []

    asyncio.run(use())


@asynchronous
async def test_damage_done_while_the_file_is_open_is_found_by_a_check(file: Path) -> None:
    async with opened(Store(SqliteDatabase(file))) as store:
        await asyncio.gather(*(store.skills.put(f"s{n}", "x" * 3000) for n in range(20)))
        await store.vacuum()
        await store.close()
        await store.open()
        _overwrite(file, 3 * 4096, b"\xff" * 4 * 4096)

        found = await store.check()

        assert found
        assert all("\n" not in sentence for sentence in found)


def test_an_empty_file_becomes_a_store(file: Path) -> None:
    file.touch()
    written(file, a=1)


@asynchronous
async def test_a_directory_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    async with opened(Store(SqliteDatabase(tmp_path))) as store:
        with pytest.raises(StoreUnavailable, match="cannot be opened"):
            await store.open()
        assert await store.health() == "unavailable"


@asynchronous
async def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    async with opened(Store(SqliteDatabase(tmp_path / "data" / "store.db"))) as store:
        with pytest.raises(StoreUnavailable, match="cannot be created"):
            await store.open()


READ_ONLY = """
import asyncio, json, os, sys
import concurrent.futures.thread
from pathlib import Path
from waypost.errors import StoreError
from waypost.stores.sqlite import SqliteDatabase, read_file_version, to_store_error
from waypost.stores.store import Store

if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
directory = Path(sys.argv[1])

def protected():
    files = list(directory.glob("store.db*"))
    return {"file": files, "directory": [directory], "both": [*files, directory]}[sys.argv[2]]

async def said(doing):
    try:
        await doing
    except StoreError as error:
        return [type(error).__name__, str(error)]
    return "ok"

async def main():
    store = Store(SqliteDatabase(directory / "store.db"))
    before = [await said(store.skills.put("a", 1))]
    await store.close()
    for path in protected():
        path.chmod(0o555 if path.is_dir() else 0o400)
    refused = [await said(store.skills.put("b", 1))]
    await store.close()
    for path in protected():
        path.chmod(0o755 if path.is_dir() else 0o600)
    after = [await said(store.skills.put("c", 1))]
    kept = [found.id for found in await store.skills.page()]
    await store.close()
    print(json.dumps([before, refused, after, kept]))

asyncio.run(main())
"""


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory of an unprivileged user; those of pytest are closed to others."""
    directory = Path(tempfile.mkdtemp(prefix="waypost-"))
    directory.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(directory, 65534, 65534)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize("what", ["file", "directory", "both"])
def test_a_read_only_store_refuses_writes_until_it_is_writable(open_directory: Path, what: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(open_directory), what], capture_output=True, check=False, text=True
    )

    assert ran.returncode == 0, ran.stderr
    before, refused, after, kept = json.loads(ran.stdout)
    assert before == after == ["ok"]
    assert kept == ["a", "c"]
    ((name, sentence),) = refused
    assert name == "StoreUnavailable"
    assert "store.db" in sentence
    assert "read-only" in sentence or "cannot be opened" in sentence


def test_several_loops_may_use_one_store(file: Path) -> None:
    store = Store(SqliteDatabase(file))

    async def write(loop: int) -> None:
        for some in range(5):
            await asyncio.gather(*(store.skills.put(f"{loop}-{some}-{n}", n) for n in range(10)))
            assert await store.health() == "ok"

    threads = [threading.Thread(target=lambda loop=loop: asyncio.run(write(loop))) for loop in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def count() -> int:
        async with opened(store):
            return len(await store.skills.page())

    assert asyncio.run(count()) == 200


def test_a_loop_that_ends_while_its_writes_wait_does_not_hold_up_the_next(file: Path) -> None:
    store = Store(SqliteDatabase(file))

    async def leave() -> None:
        await store.open()
        waiting = [asyncio.ensure_future(store.skills.put(f"left {n}", n)) for n in range(5)]
        await asyncio.sleep(0)
        assert not any(future.done() for future in waiting)

    async def come() -> None:
        async with opened(store):
            await store.skills.put("a", 1)
            assert await store.skills.get("a") is not None

    asyncio.run(leave())
    asyncio.run(come())


AFFECTED = (3_040_001).to_bytes(4, "big")


def test_a_file_of_an_affected_sqlite_is_checked_completely_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(file, a=1)
    assert read_file_version(file) == apsw.SQLITE_VERSION_NUMBER
    for name, version in (("b", AFFECTED), ("c", bytes(4))):
        _overwrite(file, 96, version)
        written(file, **{name: 1})
        assert read_file_version(file) == apsw.SQLITE_VERSION_NUMBER
        written(file, **{f"{name} again": 1})
    checks = [record.getMessage() for record in caplog.records if "checked once" in record.getMessage()]
    assert [text.partition("last written by ")[2].partition(",")[0] for text in checks] == [
        "SQLite 3.40.1",
        "SQLite 0.0.0",
    ]


def test_a_file_of_an_affected_sqlite_that_fails_its_check_is_refused_each_time(file: Path) -> None:
    written(file, a=1)
    with closing(apsw.Connection(str(file))) as connection:
        # Only a complete check compares an index with its table.
        connection.execute("INSERT INTO holders VALUES ('h', 1.0)")
        connection.execute("CREATE INDEX wrong ON holders (expires_at)")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = 'CREATE INDEX wrong ON holders (id)' WHERE name = 'wrong'")
    with closing(apsw.Connection(str(file))) as connection:
        assert connection.execute("PRAGMA quick_check(1)").get == "ok"

    async def refused() -> None:
        async with opened(Store(SqliteDatabase(file))) as store:
            with pytest.raises(StoreDamaged, match=r"store\.db is damaged.*restore a backup"):
                await store.open()

    _overwrite(file, 96, AFFECTED)
    asyncio.run(refused())
    asyncio.run(refused())
    assert read_file_version(file) == 3_040_001


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (apsw.BusyError, StoreUnavailable, "locked by another process"),
        (apsw.FullError, StoreUnavailable, "is full"),
        (apsw.ReadOnlyError, StoreUnavailable, "read-only"),
        (apsw.CorruptError, StoreDamaged, "is damaged"),
        (apsw.NotADBError, StoreDamaged, "is not a SQLite database"),
        (apsw.SQLError, StoreError, "refused a statement"),
    ],
)
def test_the_error_of_a_store_goes_by_the_class_of_the_error_not_its_text(
    raised: type[apsw.Error], kind: type[StoreError], text: str
) -> None:
    error = to_store_error(raised("some words"), "The store")
    assert type(error) is kind
    assert text in error.message


@pytest.mark.parametrize(
    "raised", [apsw.BusyError, apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.IOError, apsw.CantOpenError]
)
def test_errors_for_callers_do_not_name_the_store(raised: type[apsw.Error]) -> None:
    error = to_store_error(raised("some words"), "The store /srv/data/waypost.db")

    assert "/srv" not in error.message
    assert error.message.startswith("The store ")
    assert str(error) == error.message.replace("The store", "The store /srv/data/waypost.db")


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (apsw.SQLITE_READONLY_DBMOVED, StoreUnavailable, "moved or replaced"),
        (apsw.SQLITE_IOERR_CORRUPTFS, StoreDamaged, "is damaged"),
        (apsw.SQLITE_IOERR_WRITE, StoreUnavailable, "SQLITE_IOERR_WRITE"),
    ],
)
def test_extended_result_codes_decide_the_kind_of_error(code: int, kind: type[StoreError], text: str) -> None:
    raised = apsw.exception_for(code)
    assert isinstance(raised, apsw.Error)
    error = to_store_error(raised, "The store")
    assert type(error) is kind
    assert text in error.message


@asynchronous
async def test_a_file_that_cannot_be_written_is_unhealthy_until_it_can(file: Path) -> None:
    async with opened(Store(SqliteDatabase(file, busy=0.05))) as store:
        await store.tasks.keep_holder("hub", NOW)
        with hold_lock(file):
            with pytest.raises(StoreUnavailable):
                await store.tasks.keep_holder("hub", NOW + 1)
            for _ in range(2):
                assert await store.health() == "unavailable"
        for _ in range(2):
            assert await store.health() == "ok"
