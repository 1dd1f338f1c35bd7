"""Migrations from an empty database to the current tables, with any interruptions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import apsw
import asyncpg
import pytest

from tests.postgres import run_sql
from waypost.errors import StoreDamaged
from waypost.stores import postgres, schema, sqlite
from waypost.stores.database import INTEGER, REAL, TEXT
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

Columns = dict[str, list[tuple[str, str, bool]]]
"""The columns of each table in their order: name, type, and whether it is part of the key."""

SQLITE_TYPES = {"TEXT": TEXT, "INTEGER": INTEGER, "REAL": REAL}
EXPECTED: Columns = {
    table.name: [(name, type_, name in table.key) for name, type_ in table.columns.items()] for table in schema.TABLES
}
FIFTH: Columns = {name: columns for name, columns in EXPECTED.items() if name != schema.BUDGETS.name}
THIRD: Columns = {name: columns for name, columns in FIFTH.items() if name != schema.WORKERS.name}
SECOND: Columns = {name: columns for name, columns in THIRD.items() if name != schema.REPLICAS.name}
FIRST: Columns = {name: columns for name, columns in SECOND.items() if name != schema.REVISIONS.name}
"""After the first step."""
COLUMNS = """
SELECT c.table_name, c.column_name, c.data_type, c.is_nullable, c.collation_name, k.column_name IS NOT NULL AS is_key
FROM information_schema.columns c LEFT JOIN information_schema.key_column_usage k
ON (k.table_schema, k.table_name, k.column_name) = (c.table_schema, c.table_name, c.column_name)
WHERE c.table_schema = current_schema() AND c.table_name <> 'migrations' ORDER BY c.table_name, c.ordinal_position
"""
INDEXES = "SELECT indexname AS name FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1"


class Interrupted(Exception):
    """The process ends here."""


class Interrupting:
    """A connection to SQLite that ends at its n-th statement."""

    def __init__(self, connection: apsw.Connection, last: int) -> None:
        self._connection = connection
        self._left = last

    @property
    def in_transaction(self) -> bool:
        return False  # a process that is gone does not roll back

    def execute(self, *given: Any) -> apsw.Cursor:
        self._left -= 1
        if self._left <= 0:
            raise Interrupted
        return self._connection.execute(*given)


@contextmanager
def file(path: Path) -> Iterator[apsw.Connection]:
    with closing(sqlite.connect(path, busy=5, synchronous="NORMAL")) as connection:
        yield connection


def in_sqlite(path: Path) -> tuple[Columns, list[str]]:
    """The columns and indexes of a file."""
    with file(path) as connection:
        names = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns: Columns = {}
        for name in sorted(set(names) - {"migrations"}):
            rows: list[Any] = connection.execute(f"PRAGMA table_info({name})").fetchall()
            columns[name] = [(row[1], SQLITE_TYPES[row[2]], row[5] > 0) for row in rows]
        indexes = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index' ORDER BY name").fetchall()
        return columns, [str(row[0]) for row in indexes]


def in_postgres(url: str) -> tuple[Columns, list[str]]:
    """The columns and indexes of a schema."""
    columns: Columns = {}
    for row in run_sql(url, COLUMNS):
        assert row["is_nullable"] == "NO"
        assert row["collation_name"] == ("C" if row["data_type"] == TEXT else None)
        columns.setdefault(row["table_name"], []).append((row["column_name"], row["data_type"], row["is_key"]))
    return columns, [row["name"] for row in run_sql(url, INDEXES)]


def migrated(path: Path) -> tuple[Columns, list[str]]:
    with file(path) as connection:
        sqlite.migrate(connection, "The store")
        assert connection.execute(schema.SELECT_VERSION).get == schema.LATEST
    return in_sqlite(path)


async def migrate_server(url: str) -> None:
    database = PostgresDatabase(url)
    await database.open()
    await database.close()


def test_the_steps_are_numbered_without_gaps() -> None:
    numbers = [step.number for step in schema.MIGRATIONS]

    assert numbers == list(range(1, schema.LATEST + 1))
    assert schema.missing_migrations(0, "x") == schema.MIGRATIONS
    assert schema.missing_migrations(schema.LATEST, "x") == ()


def test_a_file_gets_the_tables_the_statements_are_written_for(tmp_path: Path) -> None:
    assert migrated(tmp_path / "store.db")[0] == EXPECTED


def test_a_server_gets_the_tables_the_statements_are_written_for(postgres_url: str) -> None:
    asyncio.run(migrate_server(postgres_url))

    assert in_postgres(postgres_url)[0] == EXPECTED


def test_a_file_that_was_interrupted_at_any_statement_is_finished_the_next_time(tmp_path: Path) -> None:
    whole, statement, interrupted = migrated(tmp_path / "whole.db"), 0, True
    while interrupted:
        statement += 1
        path = tmp_path / f"{statement}.db"
        with file(path) as connection:
            try:
                sqlite.migrate(cast(apsw.Connection, Interrupting(connection, statement)), "The store")
                interrupted = False
            except Interrupted:
                interrupted = True
        assert in_sqlite(path)[0] in (({}, FIRST, SECOND, THIRD, FIFTH, EXPECTED) if interrupted else (whole[0],))
        assert migrated(path) == whole
    assert statement > len(schema.MIGRATIONS[0].statements(schema.SQLITE_TYPES))


def test_a_file_of_the_first_migration_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with file(path) as connection:
        for statement in (schema.CREATE_MIGRATIONS, *schema.MIGRATIONS[0].statements(schema.SQLITE_TYPES)):
            connection.execute(statement)
        connection.execute("INSERT INTO skills (id, version, body) VALUES ('a', 3, '1')")

    async def use() -> None:
        store = Store(SqliteDatabase(path))
        assert await store.revisions() == {}
        await store.skills.put("a", 2, 3)
        assert await store.revisions() == {"skills": 1}
        await store.close()

    asyncio.run(use())
    assert in_sqlite(path)[0] == EXPECTED


KILLED = """
import os, signal, sys
from pathlib import Path
from waypost.stores import sqlite

connection = sqlite.connect(Path(sys.argv[1]), busy=5)
left = int(sys.argv[2])

class Deadly:
    in_transaction = False
    def execute(self, *given):
        global left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return connection.execute(*given)

sqlite.migrate(Deadly(), "The store")
"""


@pytest.mark.parametrize("statement", [4, 20, 33])
def test_a_migration_whose_process_was_killed_is_finished_the_next_time(tmp_path: Path, statement: int) -> None:
    path = tmp_path / "store.db"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path), str(statement)], check=False)

    assert killed.returncode == -9
    assert in_sqlite(path)[0] == {}
    assert migrated(path)[0] == EXPECTED


class Losing:
    """A connection to a server that is lost at its n-th statement."""

    def __init__(self, connection: Any, last: int) -> None:
        self._connection = connection
        self._left = last

    def transaction(self) -> Any:
        return self._connection.transaction()

    async def execute(self, *given: Any, **options: Any) -> Any:
        self._count()
        return await self._connection.execute(*given, **options)

    async def fetchval(self, *given: Any) -> Any:
        self._count()
        return await self._connection.fetchval(*given)

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._connection.terminate()
            raise Interrupted


async def interrupted_at(url: str, statement: int) -> bool:
    connection = await asyncpg.connect(url)
    losing = Losing(connection, statement)
    try:
        await postgres._migrate(losing, "The store")
    except (Interrupted, asyncpg.InterfaceError):
        return True
    finally:
        with suppress(asyncpg.InterfaceError):
            await connection.close()
    return False


def test_a_server_that_was_lost_at_any_statement_is_finished_the_next_time(postgres_url: str) -> None:
    asyncio.run(migrate_server(postgres_url))
    whole = in_postgres(postgres_url)
    namespace = run_sql(postgres_url, "SELECT current_schema() AS name")[0]["name"]
    statement, interrupted = 0, True
    while interrupted:
        statement += 1
        run_sql(postgres_url, f"DROP SCHEMA {namespace} CASCADE", f"CREATE SCHEMA {namespace}")
        interrupted = asyncio.run(interrupted_at(postgres_url, statement))
        assert in_postgres(postgres_url)[0] in (
            ({}, FIRST, SECOND, THIRD, FIFTH, EXPECTED) if interrupted else (EXPECTED,)
        )
        if statement % 8 == 0:
            asyncio.run(migrate_server(postgres_url))
            assert in_postgres(postgres_url) == whole
    assert statement > len(schema.MIGRATIONS[0].statements(schema.POSTGRES_TYPES))
    assert in_postgres(postgres_url) == whole


def test_a_file_may_be_migrated_concurrently(tmp_path: Path) -> None:
    path, together, failures = tmp_path / "store.db", threading.Barrier(6), []

    def migrate() -> None:
        with file(path) as connection:
            together.wait()
            try:
                sqlite.migrate(connection, "The store")
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert in_sqlite(path)[0] == EXPECTED


OPENED = """
import asyncio, sys
from pathlib import Path
from waypost.stores.sqlite import SqliteDatabase

async def use():
    database = SqliteDatabase(Path(sys.argv[1]))
    sys.stdin.read(1)
    await database.open()
    await database.close()

asyncio.run(use())
"""


def test_processes_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    command = [sys.executable, "-c", OPENED, str(path)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()

    assert [process.communicate()[1] for process in processes] == [b""] * 3
    assert in_sqlite(path)[0] == EXPECTED


def test_a_server_may_be_migrated_concurrently(postgres_url: str) -> None:
    async def together() -> None:
        await asyncio.gather(*(migrate_server(postgres_url) for _ in range(6)))

    asyncio.run(together())

    assert in_postgres(postgres_url)[0] == EXPECTED


NEWER = "INSERT INTO migrations (number, name) VALUES (999, 'from the future')"


def test_a_file_of_a_newer_waypost_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    before = migrated(path)
    with file(path) as connection:
        connection.execute(NEWER)

    with pytest.raises(StoreDamaged, match=r"newer Waypost.*999.*use that version"):
        asyncio.run(SqliteDatabase(path).open())
    assert in_sqlite(path) == before


def test_a_server_of_a_newer_waypost_is_refused_and_left_alone(postgres_url: str) -> None:
    asyncio.run(migrate_server(postgres_url))
    run_sql(postgres_url, NEWER)

    with pytest.raises(StoreDamaged, match=r"newer Waypost.*999.*use that version"):
        asyncio.run(migrate_server(postgres_url))
