"""SQLite: one thread writes, in transactions shared by all writes that wait; others read."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from waypost.errors import StoreDamaged, StoreUnavailable
from waypost.stores import migrations, sqlite_files
from waypost.stores.database import Line, Point
from waypost.stores.sqlite_files import Synchronous
from waypost.stores.sqlite_reader import Readers
from waypost.stores.sqlite_writer import Writer
from waypost.stores.statements import Change, Query, Row

_BUSY: Final = 5.0


class SqliteDatabase:
    """A database in a file; without a path one in memory, which lives as long as this object."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        synchronous: Synchronous = "FULL",
        busy: float = _BUSY,
        at: Callable[[Point], None] = lambda _: None,
    ) -> None:
        self.path = path
        self.name = "The store in memory" if path is None else f"The store {path}"
        self._synchronous: Synchronous = synchronous
        self._busy = busy
        self._at = at
        self._line = Line(lambda: self._running().wake(), self.name)
        self._memory: sqlite3.Connection | None = None
        self._writer: Writer | None = None
        self._readers: Readers | None = None

    @property
    def lasts(self) -> bool:
        """Whether it is a file."""
        return self.path is not None

    @property
    def is_open(self) -> bool:
        """Whether its threads run."""
        return self._writer is not None

    @property
    def is_shared(self) -> bool:
        """A file belongs to one hub; others may look at it."""
        return False

    async def open(self) -> None:
        """Make sure it can be used."""
        await asyncio.shield(asyncio.wrap_future(self._running().opened))

    async def close(self) -> None:
        """Finish what waits, then end the threads."""
        writer, readers = self._writer, self._readers
        self._writer = self._readers = None
        if readers is not None:
            await asyncio.to_thread(readers.stop)
        if writer is not None:
            await asyncio.to_thread(writer.stop)

    def write(self, change: Change, *rows: Row) -> asyncio.Future[int]:
        """Change something durably, together with everybody else who waits."""
        return self._line.join(change, rows)

    async def read(self, query: Query, *given: Any) -> Sequence[Row]:
        """Rows as they were last committed; a file that cannot be written may still be read."""
        if self._readers is None or self._writer is None or self._writer.has_failed:
            try:
                await self.open()
            except StoreUnavailable:
                if not await self.step():  # there is nothing to read yet
                    raise
            self._readers = self._readers or self._reading()
        return await self._readers.read(query.sqlite, given)

    async def step(self) -> int:
        """How far its tables are, without changing them."""
        if self.path is None:
            return migrations.LATEST
        return await asyncio.to_thread(self._step) if self.path.exists() else 0

    def _step(self) -> int:
        try:
            with closing(self._connect(reading=True)) as connection:
                return sqlite_files.newest(connection)
        except sqlite3.Error as error:
            raise sqlite_files.explained(error, self.name) from error

    async def check(self) -> list[str]:
        """What SQLite finds when it looks at every page and every index."""
        try:
            found = await self.read(Query("PRAGMA integrity_check(100)"))
        except StoreDamaged as error:
            return [error.message]
        return [str(row[0]) for row in found if row[0] != "ok"]

    async def vacuum(self) -> None:
        """Write the file anew without the room of what was deleted."""
        await self.open()
        await asyncio.to_thread(self._execute, "VACUUM")
        await asyncio.to_thread(self._execute, "PRAGMA wal_checkpoint(TRUNCATE)")

    async def backup(self, target: Path) -> None:
        """Write a copy as of now, without changing anything here; it appears under its name when it is whole."""
        if self.path is None:
            await self.open()
        await asyncio.to_thread(self._back_up, target)

    def _back_up(self, target: Path) -> None:
        with sqlite_files.new_file(target) as fresh:
            self._execute("VACUUM INTO ?", str(fresh), reading=True)

    def _execute(self, statement: str, *given: Any, reading: bool = False) -> None:
        try:
            if self.path is None:
                with self._running().turn:
                    self._running().opened.result().execute(statement, given)
                return
            with closing(self._connect(reading)) as connection:
                connection.execute(statement, given)
        except sqlite3.Error as error:
            raise sqlite_files.explained(error, self.name) from error

    def _running(self) -> Writer:
        if self._writer is None or self._writer.has_failed:
            self._writer = Writer(self._open, self._line, self.name, self._at, lasting=self.path is None)
        return self._writer

    def _open(self) -> sqlite3.Connection:
        if self._memory is not None:
            return self._memory
        if self.path is not None:
            sqlite_files.make_room(self.path)
        connection = self._connect()
        try:
            sqlite_files.look_over(connection, self.name)
            sqlite_files.migrate(connection, self.name)
        except BaseException:
            connection.close()
            raise
        if self.path is None:
            self._memory = connection
        return connection

    def _connect(self, reading: bool = False) -> sqlite3.Connection:
        return sqlite_files.connect(self.path, synchronous=self._synchronous, busy=self._busy, reading=reading)

    def _reading(self) -> Readers:
        if self.path is None:
            writer = self._running()
            return Readers(writer.opened.result, self.name, turn=writer.turn)
        return Readers(partial(self._connect, reading=True), self.name)
