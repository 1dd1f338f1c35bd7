"""The last release and this version on one PostgreSQL: `release_0_1_0.json` has its tables and its statements."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest

from tests.contract.conftest import asynchronous, opened
from tests.postgres import run_sql
from waypost.errors import StaleVersion
from waypost.stores import schema
from waypost.stores.instances import Reservation
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.store import Store

RELEASE: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("release_0_1_0.json").read_text())
SQL: Final[dict[str, str]] = RELEASE["statements"]
RELEASED_MIGRATIONS: Final = 2
EXPANDS: Final = re.compile(r"CREATE (TABLE|INDEX) |ALTER TABLE \w+ ADD COLUMN .* DEFAULT |INSERT INTO migrations ")


class ReleasedHub:
    """A hub of the last release, which sends that release's statements."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def write(self, name: str, *rows: tuple[Any, ...], keys: int = 1) -> int:
        """Write one row with each statement of a change; those that follow get the key of the first one's row too."""
        values = list(rows[0])
        for row in rows[1:]:
            values += [*row, *rows[0][:keys]]
        return len(await self._connection.fetch(SQL[name], *([value] for value in values)))

    async def read(self, name: str, *given: Any) -> list[Any]:
        """The rows of a query."""
        return list(await self._connection.fetch(SQL[name], *given))


@asynccontextmanager
async def released_hub(url: str) -> AsyncIterator[ReleasedHub]:
    """A hub of the last release on the tables that are there."""
    connection = await asyncpg.connect(url)
    try:
        yield ReleasedHub(connection)
    finally:
        await connection.close()


@pytest.fixture
def released_url(postgres_url: str) -> str:
    """A database as the last release made it."""
    run_sql(postgres_url, *RELEASE["schema"])
    return postgres_url


@asynchronous
async def test_each_statement_of_the_last_release_is_understood_by_todays_tables(released_url: str) -> None:
    async with opened(Store(PostgresDatabase(released_url))) as store:
        await store.open()
        assert await store.database.schema_version() == schema.LATEST
    connection = await asyncpg.connect(released_url)
    try:
        for name, statement in SQL.items():
            try:
                await connection.prepare(statement)
            except asyncpg.PostgresError as error:
                pytest.fail(f"{name}: {error}")
    finally:
        await connection.close()


def instance(version: int = 1, token: str = "") -> tuple[Any, ...]:
    """The fence of a move of the last release."""
    return ("wf_1", version, token, "b", "waiting_for_action", 0.0, "{}")


@asynchronous
async def test_the_last_release_and_this_version_move_one_instance_and_fence_each_other(released_url: str) -> None:
    async with released_hub(released_url) as old, opened(Store(PostgresDatabase(released_url))) as store:
        row = ("wf_1", 1, "", 0.0, "", "d", "ada", "a", "waiting_for_action", 0.0, "{}")
        assert await old.write("instances._START", row, ("wf_1", 1, 0.0, "{}")) == 1
        found = await store.instances.get("wf_1")
        assert found is not None
        assert await store.instances.commit(found, 1.0, {}) == 2
        assert await old.write("instances._COMMIT", instance(1), ("wf_1", 2, 0.0, "{}")) == 0
        reserved = ("wf_1", 2, "", "token", 9e9, '{"kind":"executing"}')
        assert await old.write("instances._RESERVE", reserved) == 1
        assert not await store.instances.reserve("wf_1", 2, Reservation("mine", 9e9))
        assert await old.write("instances._COMMIT", instance(2, "token"), ("wf_1", 3, 0.0, "{}")) == 1
        with pytest.raises(StaleVersion):
            await store.instances.commit(found, 1.0, {})
        assert [entry.version for entry in await store.instances.history("wf_1")] == [1, 2, 3]
        assert [row["version"] for row in await old.read("instances._HISTORY", "wf_1", 0, 9)] == [1, 2, 3]
        assert await store.check() == []


@asynchronous
async def test_a_job_of_one_version_is_done_by_the_other_once(released_url: str) -> None:
    async with released_hub(released_url) as old, opened(Store(PostgresDatabase(released_url))) as store:
        assert await old.write("jobs._ADD", ("q", "1", 1, "waiting", 0.0, 0, "", "{}"), keys=2) == 1
        (leased,) = await store.jobs.lease("q", 1.0, 60.0, 9)
        assert await old.write("jobs._REMOVE", ("q", "1", 1), keys=2) == 0
        await store.jobs.remove(leased)
        assert await store.jobs.add("q", "2", {}, 0.0)
        (due,) = await old.read("jobs._DUE", "q", "waiting", 1.0, 9)
        assert await old.write("jobs._LEASE", ("q", "2", due["version"], 60.0, 1), keys=2) == 1
        assert await store.jobs.lease("q", 1.0, 60.0, 9) == []


@asynchronous
async def test_both_versions_may_migrate_and_write_at_once(released_url: str) -> None:
    """A hub that still runs writes on while another one migrates."""
    async with released_hub(released_url) as old:
        done = asyncio.Event()

        async def write() -> int:
            written = 0
            while not done.is_set():
                written += await old.write("state._CREATE", ("s", f"k{written}", 1, "0"), keys=2)
            return written

        writing = asyncio.create_task(write())
        async with opened(Store(PostgresDatabase(released_url))) as store:
            await store.open()
            done.set()
            written = await writing
            assert written
            assert len(await store.state.page("s", limit=written + 1)) == written


@pytest.mark.parametrize("migration", schema.MIGRATIONS[RELEASED_MIGRATIONS:], ids=lambda one: one.name)
def test_a_migration_since_the_last_release_only_adds(migration: schema.Migration) -> None:
    """Hubs of the last release run on while a rollout lasts: nothing that they use may go or change."""
    for statement in migration.statements(schema.POSTGRES_TYPES):
        assert EXPANDS.match(" ".join(statement.split())), statement
