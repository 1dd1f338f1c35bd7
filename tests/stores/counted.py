"""Databases that count how often each table is read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from waypost.stores.database import Query, Row
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.sqlite import SqliteDatabase


class Reads(Counter[str]):
    """How often each table was read, with a way to wait for the next read."""

    def __init__(self) -> None:
        super().__init__()
        self._again = asyncio.Event()

    def note(self, query: Query) -> None:
        """Count a query."""
        self[query.sqlite.split(" FROM ", 1)[-1].split()[0]] += 1
        self._again.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until enough was read."""
        while not is_so():
            self._again.clear()
            await self._again.wait()

    async def after(self, change: Awaitable[Any]) -> None:
        """Make a change and wait until all skills were read because of it."""
        skills = self["skills"]
        await change
        await self.until(lambda: self["skills"] > skills)
        looks = self["revisions"]
        await self.until(lambda: self["revisions"] > looks)


class CountedPostgres(PostgresDatabase):
    """A PostgreSQL database that counts its reads."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.reads = Reads()

    async def read(self, query: Query, *given: Any) -> Sequence[Row]:
        self.reads.note(query)
        return await super().read(query, *given)


class CountedSqlite(SqliteDatabase):
    """A SQLite database that counts its reads."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reads = Reads()

    async def read(self, query: Query, *given: Any) -> Sequence[Row]:
        self.reads.note(query)
        return await super().read(query, *given)
