"""Errors of a server are one sentence, and the store recovers without a restart."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from tests.contract.conftest import asynchronous, opened
from tests.contract.samples import NOW, instance
from tests.postgres import SECRETIVE, run_sql
from waypost.errors import StaleVersion, StoreError, StoreUnavailable
from waypost.stores.database import Query
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.store import Store

ACTIVE = "SELECT count(*) AS waiting FROM pg_stat_activity WHERE datname = '{name}' AND wait_event_type = 'Lock'"
TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"


class Server:
    """A database of its own on the server, whose connections a test may end without harm to others."""

    def __init__(self, server_url: str) -> None:
        self.name = f"test_{secrets.token_hex(6)}"
        self.url = changed(server_url, path=f"/{self.name}")
        self._server_url = server_url

    def run(self, *statements: str) -> list[Any]:
        """Run statements from outside of the database."""
        return run_sql(self._server_url, *(statement.format(name=self.name) for statement in statements))

    def end_connections(self) -> int:
        """End every connection to the database and return how many there were."""
        return len(self.run(TERMINATE))

    async def until_a_lock_is_awaited(self) -> None:
        """Return when a connection waits for a lock."""
        while not (await asyncio.to_thread(self.run, ACTIVE))[0]["waiting"]:
            pass


def changed(url: str, *, user: str | None = None, password: str = "", path: str | None = None, **options: str) -> str:
    """A URL with another user, database or more options."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    query = "&".join([parts.query, *(f"{name}={value}" for name, value in options.items())]).strip("&")
    netloc = parts.netloc if user is None else f"{user}:{password}@{host}"
    return urlunsplit((parts.scheme, netloc, parts.path if path is None else path, query, ""))


@pytest.fixture
def server(postgres_server: str) -> Iterator[Server]:
    found = Server(postgres_server)
    found.run("CREATE DATABASE {name}")
    yield found
    found.run("DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def transaction(url: str) -> AsyncIterator[Any]:
    """A transaction of another client, which is rolled back."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("BEGIN")
        yield connection
        await connection.execute("ROLLBACK")
    finally:
        connection.terminate()


async def surely(write: Callable[[], Awaitable[Any]]) -> Any:
    """The result of a write that is repeated while its outcome is unknown."""
    for _ in range(5):
        try:
            return await write()
        except StoreUnavailable as error:
            if "is unknown" not in error.message:
                raise
    raise AssertionError("the server was not found again")


@asynchronous
async def test_reads_and_writes_go_on_after_all_connections_were_ended(server: Server) -> None:
    async with opened(Store(PostgresDatabase(server.url))) as store:
        await store.skills.put("a", 1)
        assert await store.skills.get("a") is not None

        assert server.end_connections() >= 2
        assert await store.skills.get("a") is not None
        await surely(lambda: store.prompts.put("b", 1))

        server.end_connections()
        assert await store.health() == "ok"
        await surely(lambda: store.prompts.put("c", 1))
        assert await store.check() == []


@asynchronous
async def test_writes_in_flight_when_connections_end_are_done_or_of_unknown_outcome(server: Server) -> None:
    async with opened(Store(PostgresDatabase(server.url))) as store:
        await asyncio.gather(*(store.instances.start(instance(id=f"{n}"), NOW, 1) for n in range(40)))
        async with transaction(server.url) as other:
            await other.execute("LOCK TABLE instances IN EXCLUSIVE MODE")
            moves = [
                asyncio.ensure_future(store.instances.commit(instance(id=f"{n}", state="moved"), NOW, 2))
                for n in range(40)
            ]
            await server.until_a_lock_is_awaited()
            server.run(TERMINATE + " AND application_name = 'waypost'")
            outcomes = await asyncio.gather(*moves, return_exceptions=True)

        for number, outcome in enumerate(outcomes):
            found = await store.instances.get(f"{number}")
            assert found is not None
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, StoreUnavailable)
                assert "is unknown" in outcome.message
            else:
                assert found.version == 2
        assert any(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
        assert await store.check() == []


@asynchronous
async def test_a_write_lost_before_its_commit_is_repeated_and_done_once(server: Server) -> None:
    async with opened(Store(PostgresDatabase(server.url))) as store:
        await store.skills.put("a", 1)
        await store.prompts.put("a", 1)
        async with transaction(server.url) as other:
            await other.execute("LOCK TABLE prompts IN EXCLUSIVE MODE")
            both = asyncio.gather(store.skills.put("a", 2, 1), store.prompts.put("a", 2, 1))
            await server.until_a_lock_is_awaited()
            server.run(TERMINATE + " AND application_name = 'waypost'")
        assert [done.version for done in await both] == [2, 2]
        assert [done.version for done in await store.skills.page()] == [2]


@asynchronous
async def test_a_statement_that_takes_too_long_is_given_up(server: Server) -> None:
    # Statements that are not locked must end within it on a busy machine, among them asyncpg's own about types.
    async with opened(Store(PostgresDatabase(server.url, statement_timeout=3))) as store:
        await store.skills.put("a", 1)
        async with transaction(server.url) as other:
            await other.execute("LOCK TABLE skills IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreUnavailable, match=r"longer than 3 s.*nothing was written"):
                await store.skills.put("b", 1)
            with pytest.raises(StoreUnavailable, match=r"longer than 3 s"):
                await store.skills.page()
            await store.prompts.put("b", 1)
        await store.skills.put("b", 1)
        assert [found.id for found in await store.skills.page()] == ["a", "b"]


def _secretive(url: str) -> str:
    run_sql(
        url,
        f"""DO $$ BEGIN CREATE ROLE {SECRETIVE} LOGIN PASSWORD 'right';
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$""",
    )
    return changed(url, user=SECRETIVE, password="hunter2")


WRONG: dict[str, Callable[[str], str]] = {
    "password": _secretive,
    "user": lambda url: changed(url, user="nobody_at_all"),
    "database": lambda url: changed(url, path="/nothing_there"),
    "port": lambda _: "postgresql://postgres@127.0.0.1:1/postgres",
    "socket": lambda _: "postgresql://postgres@/postgres?host=/nowhere",
    "host": lambda _: "postgresql://postgres@host.invalid/postgres",
    "option": lambda url: changed(url, no_such_setting="1"),
}


@asynchronous
@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_address_is_one_sentence_within_seconds(postgres_server: str, what: str) -> None:
    url = await asyncio.to_thread(WRONG[what], postgres_server)
    began = time.monotonic()
    async with opened(Store(PostgresDatabase(url, timeout=0.3, open_timeout=0.3))) as store:
        for use in (store.open(), store.skills.put("a", 1), store.skills.get("a")):
            with pytest.raises(StoreError, match="The store on") as refused:
                await use
            assert "\n" not in refused.value.message
            assert refused.value.message.endswith(".")
            assert "hunter2" not in str(refused.value)
            # Callers learn nothing about the server; operators read all of it in the log.
            assert refused.value.message.startswith("The store ")
            private = ("The store on", "127.0.0.1", "nobody_at_all", "nothing_there", "nowhere", "invalid", "no_such")
            assert [word for word in private if word in refused.value.message] == []
        assert await store.health() == "unavailable"
    assert time.monotonic() - began < 30


@asynchronous
async def test_a_server_that_cannot_be_reached_is_unavailable(postgres_server: str) -> None:
    for url in (WRONG["port"](postgres_server), await asyncio.to_thread(_secretive, postgres_server)):
        async with opened(Store(PostgresDatabase(url, timeout=0.2, open_timeout=0.2))) as store:
            with pytest.raises(StoreUnavailable):
                await store.open()


@asynchronous
async def test_a_database_that_appears_is_used_without_a_restart(server: Server) -> None:
    server.run("DROP DATABASE {name}")
    async with opened(Store(PostgresDatabase(server.url))) as store:
        with pytest.raises(StoreUnavailable, match="does not exist"):
            await store.skills.put("a", 1)
        server.run("CREATE DATABASE {name}")
        await store.skills.put("a", 1)


@asynchronous
async def test_a_deadlock_is_tried_again(server: Server) -> None:
    points: list[str] = []
    url = changed(server.url, deadlock_timeout="300ms")
    async with opened(Store(PostgresDatabase(url, at=points.append))) as store:
        await asyncio.gather(store.skills.put("a", 1), store.prompts.put("a", 1))
        async with transaction(server.url) as other:
            await other.execute("UPDATE prompts SET body = body WHERE id = 'a'")
            both = asyncio.gather(store.skills.put("a", 2, 1), store.prompts.put("a", 2, 1))
            await server.until_a_lock_is_awaited()
            await other.execute("UPDATE skills SET body = body WHERE id = 'a'")

        assert [done.version for done in await both] == [2, 2]
        assert (points.count("begun"), points.count("committed")) == (3, 2)


@asynchronous
async def test_stores_that_change_the_same_rows_in_every_order_never_fail(server: Server) -> None:
    url = changed(server.url, deadlock_timeout="5ms")
    async with opened(Store(PostgresDatabase(url))) as one, opened(Store(PostgresDatabase(url))) as other:
        await one.open()

        async def change(store: Store, backwards: bool) -> None:
            for version in range(20):
                writes = [
                    documents.put(f"{n}", version, version)
                    for documents in (store.skills, store.keys)
                    for n in range(8)
                ]
                if backwards:
                    writes.reverse()
                for outcome in await asyncio.gather(*writes, return_exceptions=True):
                    assert not isinstance(outcome, BaseException) or isinstance(outcome, StaleVersion)

        await asyncio.gather(change(one, False), change(other, True))

        assert [found.version for found in await one.skills.page()] == [20] * 8
        assert [found.version for found in await other.keys.page()] == [20] * 8


@asynchronous
async def test_a_server_that_became_read_only_refuses_writes_until_it_is_not(server: Server) -> None:
    async with opened(Store(PostgresDatabase(server.url))) as store:
        await store.skills.put("a", 1)

        server.run("ALTER DATABASE {name} SET default_transaction_read_only = on", TERMINATE)
        with pytest.raises(StoreUnavailable, match="read-only; nothing was written"):
            await surely(lambda: store.skills.put("b", 1))
        assert [found.id for found in await store.skills.page()] == ["a"]

        server.run("ALTER DATABASE {name} RESET default_transaction_read_only", TERMINATE)
        await surely(lambda: store.skills.put("b", 1))


@asynchronous
async def test_a_server_that_is_read_only_from_the_start_is_refused(postgres_url: str) -> None:
    async with opened(Store(PostgresDatabase(changed(postgres_url, default_transaction_read_only="on")))) as store:
        with pytest.raises(StoreUnavailable, match="read-only"):
            await store.skills.put("a", 1)


@asynchronous
async def test_writes_that_wait_share_a_transaction(postgres_url: str) -> None:
    points: list[str] = []
    async with opened(Store(PostgresDatabase(postgres_url, at=points.append))) as store:
        await store.open()
        await asyncio.gather(*(store.skills.put(f"{n}", n) for n in range(64)))
        assert points.count("committed") == 1
        await asyncio.gather(*(documents.put("x", 1) for documents in (store.keys, store.prompts)))
        assert points.count("committed") == 2


@asynchronous
async def test_many_more_reads_than_connections_are_answered(postgres_url: str) -> None:
    async with opened(Store(PostgresDatabase(postgres_url))) as store:
        await store.skills.put("a", 1)
        found = await asyncio.gather(*(store.skills.get("a") for _ in range(200)))
        assert all(one is not None and one.value == 1 for one in found)


@asynchronous
async def test_a_read_is_the_last_statement_of_its_connection(server: Server) -> None:
    """The pool would otherwise reset each connection after each read, which costs as much as the read."""
    async with opened(Store(PostgresDatabase(server.url))) as store:
        await store.skills.get("a")
        sent = "SELECT query FROM pg_stat_activity WHERE datname = '{name}' AND application_name = 'waypost'"
        queries = [row["query"] for row in await asyncio.to_thread(server.run, sent)]
        assert any("FROM skills" in query for query in queries)
        await store.database.vacuum()
        (limit,) = await store.database.read(Query("SHOW statement_timeout"))
        assert limit[0] == "30s"
