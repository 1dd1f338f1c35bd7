"""PostgreSQL through asyncpg: one connection writes for all who wait, a pool reads.

What is lost with a connection before its commit was sent is tried again on the next one; what is lost after that may
have happened, and the error says so.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

import asyncpg

from waypost.errors import StoreError, StoreUnavailable
from waypost.loops import running_task
from waypost.stores import schema, sqlite
from waypost.stores.database import Outcome, Point, Round, Write, WriteQueue, split_into_rounds
from waypost.stores.statements import Change, Query, Row, Table

T = TypeVar("T")

_CONNECT_WITHIN: Final = 5.0
_STATEMENT_WITHIN: Final = 30.0
_PATIENCE: Final = 10.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_READERS: Final = 8
_LOCK: Final = 0x77617970
"""The advisory lock that keeps two processes from migrating at once."""

_GONE: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
)
_SHUT_OUT: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ClientConfigurationError,
)
_AGAIN: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_TABLES: Final = Query("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")


def create_database(url: str, _data: Path) -> PostgresDatabase:
    """The database of a `postgresql:` URL."""
    return PostgresDatabase(url)


class PostgresDatabase:
    """A database on a server, by URL."""

    def __init__(
        self,
        url: str,
        *,
        statement_timeout: float = _STATEMENT_WITHIN,
        patience: float = _PATIENCE,
        at: Callable[[Point], None] = lambda _: None,
    ) -> None:
        self.name, self._url, self._options = _parsed(url)
        self._statement_timeout = statement_timeout
        self._patience = patience
        self._at = at
        self._line = WriteQueue(self._wake, self.name)
        self._called = asyncio.Event()
        self._opening = asyncio.Lock()
        self._pool: asyncpg.Pool | None = None
        self._connection: asyncpg.Connection | None = None
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_durable(self) -> bool:
        """A server keeps what it was given."""
        return True

    @property
    def is_open(self) -> bool:
        """Whether there are connections."""
        return self._pool is not None

    @property
    def is_shared(self) -> bool:
        """A server is there for many."""
        return True

    async def open(self) -> None:
        """Reach the server and bring its tables up to date."""
        await self._persistently(self._reading)

    async def close(self) -> None:
        """Finish what waits, then let the connections go."""
        writer, self._writer = self._writer, None
        if writer is not None:
            self._called.set()
            await writer
        self._drop_connection()
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), _CONNECT_WITHIN)
            except _GONE:
                pool.terminate()

    def write(self, change: Change, *rows: Row) -> asyncio.Future[int]:
        """Change something durably, together with everybody else who waits."""
        return self._line.join(change, rows)

    async def read(self, query: Query, *given: Any) -> Sequence[Row]:
        """Rows as they were last committed."""

        async def ask() -> Sequence[Row]:
            rows: Sequence[Row] = await (await self._reading()).fetch(query.postgres, *given)
            return rows

        return await self._persistently(ask)

    async def schema_version(self) -> int:
        """How far its tables are, without changing them."""

        async def ask() -> int:
            connection = await self._connect()
            try:
                return await _newest(connection)
            finally:
                await connection.close(timeout=_CONNECT_WITHIN)

        return await self._persistently(ask)

    async def check(self) -> list[str]:
        """What is wrong with the tables; the server looks after its files itself."""
        there = {row[0] for row in await self.read(_TABLES)}
        return [f"The table {table.name} is missing." for table in schema.TABLES if table.name not in there]

    async def vacuum(self) -> None:
        """Give room back and count anew for the planner."""

        async def clean() -> None:
            async with (await self._reading()).acquire() as connection:
                await connection.execute("SET statement_timeout = 0")
                for table in schema.TABLES:
                    await connection.execute(f"VACUUM (ANALYZE) {table.name}", timeout=3600)

        await self._persistently(clean)

    async def backup(self, target: Path) -> None:
        """Copy everything, as it is at one moment, into a new SQLite file."""
        await self._persistently(lambda: asyncio.to_thread(copy, self._connect, target))

    def _wake(self) -> None:
        if self._writer is None or self._writer.done():
            self._called = asyncio.Event()
            self._writer = asyncio.get_running_loop().create_task(self._serve(self._called))
        self._called.set()

    async def _serve(self, called: asyncio.Event) -> None:
        me = asyncio.current_task()
        while True:
            await called.wait()
            called.clear()
            while batch := self._line.take():
                for write, outcome in zip(batch, await self._outcomes(batch), strict=True):
                    write.settle(outcome)
            if self._writer is not me:
                return

    async def _outcomes(self, batch: Sequence[Write]) -> Sequence[Outcome]:
        """What came of each: all together if they fit, else each by itself."""
        try:
            return await self._persistently(lambda: self._transaction(batch))
        except StoreUnavailable as error:
            return [error] * len(batch)
        except Exception as error:
            if len(batch) > 1:
                return [(await self._outcomes([write]))[0] for write in batch]
            return [error if isinstance(error, StoreError) else StoreError(f"{self.name} cannot hold that: {error}.")]

    async def _transaction(self, batch: Sequence[Write]) -> Sequence[Outcome]:
        """Write a batch: as one statement if it is one, else as many as it takes between BEGIN and COMMIT."""
        connection = await self._writing()
        changed: dict[Write, int] = {}
        turns = split_into_rounds(batch)
        if len(turns) == 1 and len(turns[0]) == 1 and _is_one_statement(batch):
            self._at("written")
            await self._surely(connection, _run(connection, turns[0], changed))
        else:
            try:
                await connection.execute("BEGIN")
                self._at("begun")
                for turn in turns:
                    await _run(connection, turn, changed)
                self._at("written")
            except BaseException:
                await self._roll_back(connection)
                raise
            await self._surely(connection, connection.execute("COMMIT"))
        self._at("committed")
        return [changed[write] for write in batch]

    async def _surely(self, connection: asyncpg.Connection, committing: Awaitable[Any]) -> None:
        """Await what commits; when the connection is lost meanwhile, nobody can know."""
        try:
            await committing
        except _GONE as error:
            if isinstance(error, ValueError):
                raise
            self._drop_connection()
            if isinstance(error, asyncpg.InternalClientError) and "cannot switch to state" in str(error):
                raise ConnectionError("the connection had ended before anything was sent") from error
            raise StoreUnavailable(
                f"{self.name} was lost while it was writing; whether that happened is not known: {_told(error)}."
            ) from error

    async def _roll_back(self, connection: asyncpg.Connection) -> None:
        try:
            await connection.execute("ROLLBACK")
        except BaseException:
            self._drop_connection()

    async def _persistently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try, and while the server is out of reach or others are in the way try again, with growing pauses."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + self._patience, _FIRST_PAUSE
        while True:
            try:
                return await attempt()
            except (*_GONE, *_AGAIN) as error:
                if running_task().cancelling():  # asyncpg may answer a cancellation with an error of its own
                    raise asyncio.CancelledError from error
                if isinstance(error, ValueError):  # what was asked or given is wrong, not the connection
                    raise self._explained(error) from error
                if loop.time() + pause > until:
                    raise StoreUnavailable(f"{self.name} cannot be reached: {_told(error)}.") from error
            except asyncpg.PostgresError as error:
                raise self._explained(error) from error
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311  # so that replicas do not march in step
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _connect(self) -> asyncpg.Connection:
        return await asyncpg.connect(self._url, timeout=_CONNECT_WITHIN, **self._settings())

    def _settings(self) -> dict[str, Any]:
        timeout = f"{round(self._statement_timeout * 1000)}"
        return {
            "command_timeout": self._statement_timeout + _CONNECT_WITHIN,
            "server_settings": {"application_name": "waypost", "statement_timeout": timeout},
            **self._options,
        }

    async def _reading(self) -> asyncpg.Pool:
        if self._pool is not None:
            return self._pool
        async with self._opening:
            if self._pool is None:
                connection = await self._connect()
                try:
                    await _migrate(connection, self.name)
                finally:
                    with suppress(*_GONE):
                        await connection.close(timeout=_CONNECT_WITHIN)
                self._pool = await asyncpg.create_pool(
                    self._url, min_size=0, max_size=_READERS, timeout=_CONNECT_WITHIN, **self._settings()
                )
            return self._pool

    async def _writing(self) -> asyncpg.Connection:
        await self._reading()
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def _explained(self, error: Exception) -> StoreError:
        if isinstance(error, asyncpg.DiskFullError):
            return StoreUnavailable(f"The disk of {self.name} is full; nothing was written. Make room, then try again.")
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            return StoreUnavailable(f"{self.name} is read-only; nothing was written.")
        if isinstance(error, asyncpg.QueryCanceledError):
            return StoreUnavailable(f"{self.name} took longer than {self._statement_timeout:g} s; nothing was written.")
        if isinstance(error, _SHUT_OUT):
            return StoreUnavailable(f"{self.name} does not let the hub in: {_told(error)}.")
        return StoreError(f"{self.name} refused a statement: {_told(error)}.")


def _parsed(url: str) -> tuple[str, str, dict[str, Any]]:
    """The store's name in sentences, the URL without what is for asyncpg itself, and that."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        query = parse_qs(parts.query, keep_blank_values=True)
        cached = query.pop("statement_cache_size", None)
        options = {} if cached is None else {"statement_cache_size": int(cached[-1])}
    except ValueError as error:
        raise StoreError(f"The URL of the PostgreSQL store cannot be read: {error}.") from None
    name = f"The store on {parts.hostname or 'a local socket'}{port}{parts.path}"
    return name, parts._replace(query=urlencode(query, doseq=True)).geturl(), options


def _is_one_statement(batch: Sequence[Write]) -> bool:
    change = batch[0].change
    return not change.fence.alone and not (change.bulk and len(batch) > 1)


async def _run(connection: asyncpg.Connection, turn: Round, changed: dict[Write, int]) -> None:
    """Run one round: each change once, for all its writes."""
    for change, writes in turn.items():
        if change.fence.alone:
            for write in writes:
                changed[write] = int((await connection.execute(change.postgres, *write.rows[0])).rpartition(" ")[2])
            continue
        if change.bulk:
            for write in writes:
                changed[write] = len(await connection.fetch(change.postgres, *_columns(write.rows)))
            continue
        if len(writes) > 1:  # so that replicas take locks in one order
            writes.sort(key=lambda write: change.key_of(write.rows[0]))
        fences = _columns([write.rows[0] for write in writes])
        columns = list(fences)
        for place in range(1, len(change.statements)):
            columns += _columns([write.rows[place] for write in writes])
            columns += fences[: change.keys]
        found = await connection.fetch(change.postgres, *columns)
        hits = {change.key_of(row) for row in found} if len(found) < len(writes) else None
        for write in writes:
            changed[write] = 1 if hits is None else int(change.key_of(write.rows[0]) in hits)


def _columns(rows: Sequence[Row]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def _newest(connection: asyncpg.Connection) -> int:
    """The last step that was taken."""
    known = await connection.fetchval("SELECT to_regclass('migrations') IS NOT NULL")
    return int(await connection.fetchval(schema.SELECT_VERSION)) if known else 0


async def _migrate(connection: asyncpg.Connection, name: str) -> None:
    """Take the steps that are missing, one transaction each, while others wait."""
    while schema.missing_migrations(await _newest(connection), name):
        async with connection.transaction():
            await connection.execute("SET LOCAL statement_timeout = 0")
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK, timeout=600)
            await connection.execute("SET LOCAL client_min_messages = warning")
            await connection.execute(schema.CREATE_MIGRATIONS)
            missing = schema.missing_migrations(await connection.fetchval(schema.SELECT_VERSION), name)
            for statement in missing[0].statements(schema.POSTGRES_TYPES) if missing else ():
                await connection.execute(statement, timeout=3600)


def _told(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().rstrip(".").replace("\n", " ")


_AT_ONCE: Final = 1000


def copy(connect: Callable[[], Awaitable[asyncpg.Connection]], target: Path) -> None:
    """Write the copy; it takes a thread of its own, and appears under its name when it is whole."""
    with sqlite.new_file(target) as fresh, closing(sqlite.connect(fresh, busy=1)) as file:
        sqlite.migrate(file, f"The backup {target}")
        asyncio.run(_copy(connect, file))
        file.execute("PRAGMA journal_mode = DELETE")


async def _copy(connect: Callable[[], Awaitable[asyncpg.Connection]], file: sqlite3.Connection) -> None:
    connection = await connect()
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute("SET LOCAL statement_timeout = 0")
            file.execute("BEGIN")
            for table in schema.TABLES:
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
