"""PostgreSQL through asyncpg: one connection writes for all callers, a pool reads.

A write costs a round trip and a flush on the server, so writes that wait are sent together: all writes of one kind are
one statement with an array per column, and a batch of a single kind is one round trip without BEGIN and COMMIT. A
connection that is lost before its commit was sent is replaced and the batch is sent again; after that the outcome is
unknown, and the error says so.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

import apsw
import asyncpg

from waypost.errors import StoreError, StoreUnavailable
from waypost.loops import running_task
from waypost.stores import schema, sqlite
from waypost.stores.database import Outcome, Point, Round, Write, WriteQueue, split_into_rounds
from waypost.stores.statements import Change, Query, Row

T = TypeVar("T")

_CONNECT_TIMEOUT_S: Final = 5.0
_STATEMENT_TIMEOUT_S: Final = 30.0
_RETRY_S: Final = 10.0
_MIN_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 1.0
_MAX_READERS: Final = 8
_COPY_ROWS: Final = 1000
_MIGRATION_LOCK: Final = 0x77617970
"""The number of the advisory lock that keeps two processes from migrating at once."""

_UNREACHABLE: Final = (
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
_REFUSED: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ClientConfigurationError,
)
_CONFLICTS: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
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
        statement_timeout: float = _STATEMENT_TIMEOUT_S,
        patience: float = _RETRY_S,
        at: Callable[[Point], None] = lambda _: None,
    ) -> None:
        self.name, self._url, self._options = _parse_url(url)
        self._statement_timeout = statement_timeout
        self._patience = patience
        self._at = at
        self._queue = WriteQueue(self._wake, self.name)
        self._woken = asyncio.Event()
        self._opening = asyncio.Lock()
        self._pool: asyncpg.Pool | None = None
        self._connection: asyncpg.Connection | None = None
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_durable(self) -> bool:
        """True."""
        return True

    @property
    def is_open(self) -> bool:
        """Whether there is a connection pool."""
        return self._pool is not None

    @property
    def is_shared(self) -> bool:
        """True: other hubs may use the server too."""
        return True

    async def open(self) -> None:
        """Connect, and bring the tables up to date."""
        await self._retry(self._get_pool)

    async def close(self) -> None:
        """Finish queued writes, then close the connections."""
        writer, self._writer = self._writer, None
        if writer is not None:
            self._woken.set()
            await writer
        self._drop_connection()
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), _CONNECT_TIMEOUT_S)
            except _UNREACHABLE:
                pool.terminate()

    def write(self, change: Change, *rows: Row) -> asyncio.Future[int]:
        """Queue a change for the next transaction."""
        return self._queue.put(change, rows)

    async def read(self, query: Query, *given: Any) -> Sequence[Row]:
        """The rows of a query, as of the last commit."""

        async def ask() -> Sequence[Row]:
            rows: Sequence[Row] = await (await self._get_pool()).fetch(query.postgres, *given)
            return rows

        return await self._retry(ask)

    async def schema_version(self) -> int:
        """The number of the last migration that was applied; nothing is created or changed."""

        async def ask() -> int:
            connection = await self._connect()
            try:
                return await _read_version(connection)
            finally:
                await connection.close(timeout=_CONNECT_TIMEOUT_S)

        return await self._retry(ask)

    async def check(self) -> list[str]:
        """The tables that are missing; the server checks its files itself."""
        there = {row[0] for row in await self.read(_TABLES)}
        return [f"The table {table.name} is missing." for table in schema.TABLES if table.name not in there]

    async def vacuum(self) -> None:
        """Return the space of deleted rows and refresh the planner's statistics."""

        async def clean() -> None:
            async with (await self._get_pool()).acquire() as connection:
                await connection.execute("SET statement_timeout = 0")
                for table in schema.TABLES:
                    await connection.execute(f"VACUUM (ANALYZE) {table.name}", timeout=3600)

        await self._retry(clean)

    async def backup(self, target: Path) -> None:
        """Write a consistent copy into a new SQLite file."""
        await self._retry(lambda: asyncio.to_thread(_copy_to, self._connect, target))

    def _wake(self) -> None:
        if self._writer is None or self._writer.done():
            self._woken = asyncio.Event()
            self._writer = asyncio.get_running_loop().create_task(self._serve(self._woken))
        self._woken.set()

    async def _serve(self, woken: asyncio.Event) -> None:
        """Write batches until the database is closed, or another task has replaced this one on a new event loop."""
        me = asyncio.current_task()
        while True:
            await woken.wait()
            woken.clear()
            while batch := self._queue.take_batch():
                for write, outcome in zip(batch, await self._outcomes(batch), strict=True):
                    write.resolve(outcome)
            if self._writer is not me:
                return

    async def _outcomes(self, batch: Sequence[Write]) -> Sequence[Outcome]:
        """Run a batch in one transaction; if a write breaks it, each gets one of its own, and only that one fails."""
        try:
            return await self._retry(lambda: self._transaction(batch))
        except StoreUnavailable as error:
            return [error] * len(batch)
        except Exception as error:
            if len(batch) > 1:
                return [(await self._outcomes([write]))[0] for write in batch]
            return [error if isinstance(error, StoreError) else StoreError(f"{self.name} cannot hold that: {error}.")]

    async def _transaction(self, batch: Sequence[Write]) -> Sequence[Outcome]:
        """Write a batch: a single statement commits itself, several stand between BEGIN and COMMIT."""
        connection = await self._get_writer()
        changed: dict[Write, int] = {}
        rounds, change = split_into_rounds(batch), batch[0].change
        if len(rounds) == 1 and len(rounds[0]) == 1 and not change.fence.alone and not (change.bulk and len(batch) > 1):
            self._at("written")
            await self._commit(connection, _run(connection, rounds[0], changed))
        else:
            try:
                await connection.execute("BEGIN")
                self._at("begun")
                for one in rounds:
                    await _run(connection, one, changed)
                self._at("written")
            except BaseException:
                await self._roll_back(connection)
                raise
            await self._commit(connection, connection.execute("COMMIT"))
        self._at("committed")
        return [changed[write] for write in batch]

    async def _commit(self, connection: asyncpg.Connection, committing: Awaitable[Any]) -> None:
        """Await the statement that commits; if the connection is lost meanwhile, the outcome is unknown."""
        try:
            await committing
        except _UNREACHABLE as error:
            if isinstance(error, ValueError):
                raise
            self._drop_connection()
            # The server ended the idle connection and asyncpg has read that, but not closed it yet: its state machine
            # refuses to send, so nothing was sent and a retry is safe. asyncpg has no type of its own for that.
            if isinstance(error, asyncpg.InternalClientError) and "cannot switch to state" in str(error):
                raise ConnectionError("the connection ended before the statement was sent") from error
            raise StoreUnavailable(
                f"{self.name} was lost during a commit; whether it was committed is unknown: {_describe(error)}."
            ) from error

    async def _roll_back(self, connection: asyncpg.Connection) -> None:
        try:
            await connection.execute("ROLLBACK")
        except BaseException:
            self._drop_connection()

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt`, with growing pauses, while the server is unreachable or transactions conflict."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + self._patience, _MIN_PAUSE_S
        while True:
            try:
                return await attempt()
            except (*_UNREACHABLE, *_CONFLICTS) as error:
                if running_task().cancelling():  # asyncpg may turn a cancellation into an error of its own
                    raise asyncio.CancelledError from error
                if isinstance(error, ValueError):  # asyncpg's InterfaceError for wrong values, not for a connection
                    raise self._to_store_error(error) from error
                if loop.time() + pause > until:
                    raise StoreUnavailable(f"{self.name} cannot be reached: {_describe(error)}.") from error
            except asyncpg.PostgresError as error:
                raise self._to_store_error(error) from error
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311  # so that replicas do not retry in step
            pause = min(2 * pause, _MAX_PAUSE_S)

    async def _connect(self) -> asyncpg.Connection:
        return await asyncpg.connect(self._url, timeout=_CONNECT_TIMEOUT_S, **self._settings())

    def _settings(self) -> dict[str, Any]:
        timeout = f"{round(self._statement_timeout * 1000)}"
        return {
            "command_timeout": self._statement_timeout + _CONNECT_TIMEOUT_S,
            "server_settings": {"application_name": "waypost", "statement_timeout": timeout},
            **self._options,
        }

    async def _get_pool(self) -> asyncpg.Pool:
        if self._pool is not None:
            return self._pool
        async with self._opening:
            if self._pool is None:
                connection = await self._connect()
                try:
                    await _migrate(connection, self.name)
                finally:
                    with suppress(*_UNREACHABLE):
                        await connection.close(timeout=_CONNECT_TIMEOUT_S)
                self._pool = await asyncpg.create_pool(
                    self._url, min_size=0, max_size=_MAX_READERS, timeout=_CONNECT_TIMEOUT_S, **self._settings()
                )
            return self._pool

    async def _get_writer(self) -> asyncpg.Connection:
        await self._get_pool()
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def _to_store_error(self, error: Exception) -> StoreError:
        if isinstance(error, asyncpg.DiskFullError):
            return StoreUnavailable(f"The disk of {self.name} is full; nothing was written. Make room, then try again.")
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            return StoreUnavailable(f"{self.name} is read-only; nothing was written.")
        if isinstance(error, asyncpg.QueryCanceledError):
            return StoreUnavailable(f"{self.name} took longer than {self._statement_timeout:g} s; nothing was written.")
        if isinstance(error, _REFUSED):
            return StoreUnavailable(f"{self.name} refused the connection: {_describe(error)}.")
        return StoreError(f"{self.name} refused a statement: {_describe(error)}.")


def _parse_url(url: str) -> tuple[str, str, dict[str, Any]]:
    """The name for messages, the URL without options for asyncpg, and those options."""
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


async def _run(connection: asyncpg.Connection, round_: Round, changed: dict[Write, int]) -> None:
    """Run one round: each change is one statement for all its writes."""
    for change, writes in round_.items():
        if change.fence.alone:
            for write in writes:
                changed[write] = int((await connection.execute(change.postgres, *write.rows[0])).rpartition(" ")[2])
            continue
        if change.bulk:
            for write in writes:
                changed[write] = len(await connection.fetch(change.postgres, *_columns(write.rows)))
            continue
        if len(writes) > 1:
            # PostgreSQL locks rows in the order it updates them: replicas that lock in one order cannot deadlock.
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


async def _read_version(connection: asyncpg.Connection) -> int:
    """The number of the last migration that was applied."""
    known = await connection.fetchval("SELECT to_regclass('migrations') IS NOT NULL")
    return int(await connection.fetchval(schema.SELECT_VERSION)) if known else 0


async def _migrate(connection: asyncpg.Connection, name: str) -> None:
    """Apply the missing migrations, one transaction each; two processes at once wait for each other."""
    while schema.missing_migrations(await _read_version(connection), name):
        async with connection.transaction():
            await connection.execute("SET LOCAL statement_timeout = 0")
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK, timeout=600)
            await connection.execute("SET LOCAL client_min_messages = warning")
            await connection.execute(schema.CREATE_MIGRATIONS)
            missing = schema.missing_migrations(await connection.fetchval(schema.SELECT_VERSION), name)
            for statement in missing[0].statements(schema.POSTGRES_TYPES) if missing else ():
                await connection.execute(statement, timeout=3600)


def _describe(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().rstrip(".").replace("\n", " ")


def _copy_to(connect: Callable[[], Awaitable[asyncpg.Connection]], target: Path) -> None:
    """Copy the database into a new file, on an event loop of its own in this thread."""
    with sqlite.new_file(target) as fresh, closing(sqlite.connect(fresh, busy=1)) as file:
        sqlite.migrate(file, f"The backup {target}")
        asyncio.run(_copy(connect, file))
        file.execute("PRAGMA journal_mode = DELETE")


async def _copy(connect: Callable[[], Awaitable[asyncpg.Connection]], file: apsw.Connection) -> None:
    connection = await connect()
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute("SET LOCAL statement_timeout = 0")
            file.execute("BEGIN")
            for table in schema.TABLES:
                columns, values = ", ".join(table.columns), ", ".join("?" * len(table.columns))
                query = f"SELECT {columns} FROM {table.name} ORDER BY {', '.join(table.key)}"  # noqa: S608
                rows = await connection.cursor(query)
                while some := await rows.fetch(_COPY_ROWS):
                    file.executemany(f"INSERT INTO {table.name} ({columns}) VALUES ({values})", some)  # noqa: S608
            file.execute("COMMIT")
    finally:
        await connection.close()
