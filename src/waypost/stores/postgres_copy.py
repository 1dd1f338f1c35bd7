"""A copy of a PostgreSQL store in a SQLite file, as of one moment."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import asyncpg

from waypost.stores import sqlite_files, tables
from waypost.stores.statements import Table

_AT_ONCE: Final = 1000


def copy(connect: Callable[[], Awaitable[asyncpg.Connection]], target: Path) -> None:
    """Write the copy; it takes a thread of its own, and appears under its name when it is whole."""
    with sqlite_files.new_file(target) as fresh, closing(sqlite_files.connect(fresh, busy=1)) as file:
        sqlite_files.migrate(file, f"The backup {target}")
        asyncio.run(_copy(connect, file))
        file.execute("PRAGMA journal_mode = DELETE")


async def _copy(connect: Callable[[], Awaitable[asyncpg.Connection]], file: sqlite3.Connection) -> None:
    connection = await connect()
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute("SET LOCAL statement_timeout = 0")
            file.execute("BEGIN")
            for table in tables.ALL:
                await _copy_table(connection, table, file)
            file.execute("COMMIT")
    finally:
        await connection.close()


async def _copy_table(connection: asyncpg.Connection, table: Table, file: sqlite3.Connection) -> None:
    columns = ", ".join(table.columns)
    values = ", ".join("?" * len(table.columns))
    rows = await connection.cursor(f"SELECT {columns} FROM {table.name} ORDER BY {', '.join(table.key)}")  # noqa: S608
    while some := await rows.fetch(_AT_ONCE):
        file.executemany(f"INSERT INTO {table.name} ({columns}) VALUES ({values})", some)  # noqa: S608
