"""PostgreSQL through asyncpg: one connection writes for all callers, a pool reads.

A write costs a round trip and a flush on the server, so writes that wait are sent together: all writes of one kind are
one statement with an array per column, and a batch of a single kind is one round trip without BEGIN and COMMIT. A
connection that is lost before its commit was sent is replaced and the batch is sent again; after that the outcome is
unknown, and the error says so.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

import apsw
import asyncpg

from waypost.errors import StoreError, StoreUnavailable
from waypost.loops import running_task
from waypost.stores import schema, sqlite
from waypost.stores.database import (
    DEFAULT_TIMEOUT_S,
    Change,
    Outcome,
    Point,
    Query,
    Round,
    Row,
    Write,
    WriteQueue,
    deadline_of,
    number_placeholders,
    split_into_rounds,
)

T = TypeVar("T")

_CONNECT_TIMEOUT_S: Final = 5.0
_STATEMENT_TIMEOUT_S: Final = 30.0
"""For slow statements; callers wait less long for all others."""
_MIN_OPEN_S: Final = 10.0
"""How long a server is waited for that is only starting."""
_SUSPECT_S: Final = 0.5
"""After how long without an answer a new connection shows whether the server answers at all."""
_PROBE_TIMEOUT_S: Final = 2.0
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
# Not now(), which is the time at which the transaction began.
_CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::double precision"
_CLOCK_INTERVAL_S: Final = 60.0
"""How often the server's clock is measured while there are writes; clocks drift by milliseconds in that time."""
_TABLES: Final = Query("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")


def create_database(url: str, _data: Path, timeout: float = DEFAULT_TIMEOUT_S) -> PostgresDatabase:
    """The database of a `postgresql:` URL."""
    return PostgresDatabase(url, timeout=timeout)


class _Timeouts(NamedTuple):
    """How long a request, a slow statement and the opening of the database may take, in seconds."""

    request: float
    slow_statement: float
    opening: float


class PostgresDatabase:
    """A database on a server, by URL."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float = DEFAULT_TIMEOUT_S,
        statement_timeout: float = _STATEMENT_TIMEOUT_S,
        open_timeout: float = _MIN_OPEN_S,
        at: Callable[[Point], None] = lambda _: None,
    ) -> None:
        self.name, self._url, self._options = _parse_url(url)
        self._timeouts = _Timeouts(timeout, statement_timeout, max(timeout, open_timeout))
        self._at = at
        self._queue = WriteQueue(self._wake, self.name)
        self._woken = asyncio.Event()
        self._opening = asyncio.Lock()
        self._pool: asyncpg.Pool | None = None
        self._connection: asyncpg.Connection | None = None
        self._writer: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None
        """Runs from when the server seems not to answer until it does."""
        self._clock_offset: float | None = None
        """What to add to this machine's monotonic clock for the time of the server."""
        self._clock_measured_at = 0.0

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

    @property
    def bus_url(self) -> str:
        """The same server."""
        return self._url

    def now(self) -> float:
        """The time of the server, by the last measurement; before the first one, the time of this machine."""
        return time.time() if self._clock_offset is None else time.monotonic() + self._clock_offset

    @property
    def is_failing(self) -> bool:
        """Whether the last write failed because the database was not available."""
        return self._queue.is_failing

    @property
    def is_responding(self) -> bool:
        """Whether no request has waited for long, or a new connection was answered since."""
        return self._probe is None

    async def open(self) -> None:
        """Connect, and bring the tables up to date."""
        await self._retry(self._get_pool, time.monotonic() + self._timeouts.opening)

    async def close(self) -> None:
        """Finish queued writes, then close the connections."""
        writer, self._writer = self._writer, None
        if writer is not None:
            self._woken.set()
            await writer
        if self._probe is not None:
            self._probe.cancel()
        self._drop_connection()
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), _CONNECT_TIMEOUT_S)
            except _UNREACHABLE:
                pool.terminate()

    def write(self, change: Change, *rows: Row) -> asyncio.Future[int]:
        """Queue a change for the next transaction."""
        # A batch takes one statement per kind of change: to write a column that stays costs less than a round trip.
        return self._queue.put(change.general, *rows)

    async def read(self, query: Query, *given: Any) -> Sequence[Row]:
        """The rows of a query, as of the last commit."""
        until = time.monotonic() + (self._timeouts.slow_statement if query.is_slow else self._timeouts.request)

        async def ask() -> Sequence[Row]:
            pool = await self._get_pool()
            async with asyncio.timeout_at(until), pool.acquire() as connection:
                try:
                    rows: Sequence[Row] = await connection.fetch(query.postgres, *given)
                except asyncio.CancelledError:
                    # The pool would wait for the server to confirm that the statement was cancelled.
                    connection.terminate()
                    raise
                return rows

        return await self._retry(ask, until)

    async def schema_version(self) -> int:
        """The number of the last migration that was applied; nothing is created or changed. Measures the clock."""

        async def ask() -> int:
            connection = await self._connect()
            try:
                await self._measure_clock(connection)
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
            await self._get_pool()  # which makes the tables
            # A connection of its own: the setting would stay with one of the pool, which is never reset.
            connection = await self._connect()
            try:
                await connection.execute("SET statement_timeout = 0")
                for table in schema.TABLES:
                    await connection.execute(f"VACUUM (ANALYZE) {table.name}", timeout=3600)
            finally:
                await connection.close(timeout=_CONNECT_TIMEOUT_S)

        await self._retry(clean)

    async def backup(self, target: Path) -> None:
        """Write a consistent copy into a new SQLite file."""
        await self._retry(lambda: asyncio.to_thread(_copy_to, self._connect, target))

    def _wake(self) -> None:
        if self._writer is None or self._writer.done():
            # A new event: the old one belongs to the event loop of the writer before.
            self._woken = asyncio.Event()
            self._writer = asyncio.get_running_loop().create_task(self._serve(self._woken))
        self._woken.set()

    async def _serve(self, woken: asyncio.Event) -> None:
        """Write batches until the database is closed, or another task has replaced this one on a new event loop."""
        me = asyncio.current_task()
        while True:
            await woken.wait()
            # Before the queue is emptied: a write that is queued meanwhile sets it again.
            woken.clear()
            while batch := self._queue.take_batch():
                outcomes = await self._outcomes(batch)
                self._queue.note(batch, outcomes)
                for write, outcome in zip(batch, outcomes, strict=True):
                    write.resolve(outcome)
            connection = self._connection
            if connection is not None and time.monotonic() - self._clock_measured_at > _CLOCK_INTERVAL_S:
                with suppress(*_UNREACHABLE, asyncpg.PostgresError):
                    await self._measure_clock(connection)
            if self._writer is not me:
                return

    async def _outcomes(self, batch: Sequence[Write]) -> Sequence[Outcome]:
        """Run a batch in one transaction; if a write breaks it, each gets one of its own, and only that one fails."""
        try:
            until = deadline_of(batch, self._timeouts.request)
            if self._pool is None:  # which may have to migrate, however long that takes
                await self._retry(self._get_pool)
                until = time.monotonic() + self._timeouts.request
            return await self._retry(lambda: self._transaction(batch, until), until)
        except StoreUnavailable as error:
            return [error] * len(batch)
        except Exception as error:
            if len(batch) > 1:
                return [(await self._outcomes([write]))[0] for write in batch]
            return [
                error
                if isinstance(error, StoreError)
                else StoreError(f"{{where}} cannot hold that: {error}.", self.name)
            ]

    async def _transaction(self, batch: Sequence[Write], until: float) -> Sequence[Outcome]:
        """Write a batch: a single statement commits itself, several stand between BEGIN and COMMIT."""
        async with asyncio.timeout_at(until):
            connection = await self._get_writer()
        changed: dict[Write, int] = {}
        rounds, change = split_into_rounds(batch), batch[0].change
        # Outside of BEGIN and COMMIT a statement takes one round trip instead of three.
        if len(rounds) == 1 and len(rounds[0]) == 1 and not change.fence.alone and not (change.bulk and len(batch) > 1):
            self._at("written")
            await self._commit(_run(connection, rounds[0], changed), until)
        else:
            try:
                async with asyncio.timeout_at(until):
                    await connection.execute("BEGIN")
                    self._at("begun")
                    for one in rounds:
                        await _run(connection, one, changed)
                    self._at("written")
            except TimeoutError:
                # A ROLLBACK would wait behind the statement that is not answered; the server rolls back what a lost
                # connection left open.
                self._drop_connection()
                raise
            except BaseException:
                # This connection writes for all callers: the next batch must not find a transaction open.
                await self._roll_back(connection)
                raise
            await self._commit(connection.execute("COMMIT"), until)
        self._at("committed")
        return [changed[write] for write in batch]

    async def _commit(self, committing: Awaitable[Any], until: float) -> None:
        """Await the statement that commits; if the connection is lost meanwhile, the outcome is unknown."""
        try:
            async with asyncio.timeout_at(until):
                await committing
        except _UNREACHABLE as error:
            if isinstance(error, ValueError):  # asyncpg refused a value, and sent nothing
                raise
            self._drop_connection()
            # The server ended the idle connection and asyncpg has read that, but not closed it yet: its state machine
            # refuses to send, so nothing was sent and a retry is safe. asyncpg has no type of its own for that.
            if isinstance(error, asyncpg.InternalClientError) and "cannot switch to state" in str(error):
                raise ConnectionError("the connection ended before the statement was sent") from error
            if isinstance(error, TimeoutError):
                raise self._timeout_error("whether the change was written is unknown") from error
            # Not retried: if the first attempt was committed, the second would find its fence passed, and report a
            # conflict with a change of another.
            raise StoreUnavailable(
                "{where} was lost during a commit; whether it was committed is unknown{why}.",
                self.name,
                _describe(error),
            ) from error

    async def _roll_back(self, connection: asyncpg.Connection) -> None:
        try:
            await connection.execute("ROLLBACK")
        except BaseException:
            self._drop_connection()

    def _timeout_error(self, outcome: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"{{where}} did not answer within {self._timeouts.request:g} s; {outcome}. Try again later.",
            self.name,
        )

    async def _retry(self, attempt: Callable[[], Awaitable[T]], until: float | None = None) -> T:
        """Repeat `attempt`, with growing pauses, while the server is unreachable or transactions conflict."""
        suspicion = asyncio.get_running_loop().call_later(_SUSPECT_S, self._start_probe)
        try:
            return await self._repeat(attempt, until or time.monotonic() + self._timeouts.request)
        finally:
            suspicion.cancel()

    def _start_probe(self) -> None:
        if self._probe is None:
            self._probe = asyncio.get_running_loop().create_task(self._probe_server())

    async def _probe_server(self) -> None:
        """Connect until the server answers."""
        try:
            while True:
                with suppress(*_UNREACHABLE, asyncpg.PostgresError):
                    async with asyncio.timeout(_PROBE_TIMEOUT_S):
                        (await self._connect()).terminate()
                        return
                await asyncio.sleep(_MAX_PAUSE_S)
        finally:
            self._probe = None

    async def _repeat(self, attempt: Callable[[], Awaitable[T]], until: float) -> T:
        pause = _MIN_PAUSE_S
        while True:
            try:
                return await attempt()
            except (*_UNREACHABLE, *_CONFLICTS) as error:
                if running_task().cancelling():  # asyncpg may turn a cancellation into an error of its own
                    raise asyncio.CancelledError from error
                if isinstance(error, ValueError):  # asyncpg's InterfaceError for wrong values, not for a connection
                    raise self._to_store_error(error) from error
                if time.monotonic() + pause > until:
                    if isinstance(error, TimeoutError):
                        raise self._timeout_error("nothing was written") from error
                    raise StoreUnavailable("{where} cannot be reached{why}.", self.name, _describe(error)) from error
            except asyncpg.PostgresError as error:
                raise self._to_store_error(error) from error
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311  # so that replicas do not retry in step
            pause = min(2 * pause, _MAX_PAUSE_S)

    async def _connect(self) -> asyncpg.Connection:
        return await asyncpg.connect(self._url, timeout=_CONNECT_TIMEOUT_S, **self._settings())

    def _settings(self) -> dict[str, Any]:
        timeout = f"{round(self._timeouts.slow_statement * 1000)}"
        return {
            # The server's own timeout comes first, and leaves the connection usable; this is for a silent server.
            "command_timeout": self._timeouts.slow_statement + _CONNECT_TIMEOUT_S,
            "server_settings": {"application_name": "waypost", "statement_timeout": timeout},
            **self._options,
        }

    async def _get_pool(self) -> asyncpg.Pool:
        if self._pool is not None:
            return self._pool
        async with self._opening:
            if self._pool is None:  # asked again: another task may have opened it while this one waited
                connection = await self._connect()
                try:
                    await _migrate(connection, self.name)
                    await self._measure_clock(connection)
                finally:
                    with suppress(*_UNREACHABLE):
                        await connection.close(timeout=_CONNECT_TIMEOUT_S)
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=_MAX_READERS,
                    timeout=_CONNECT_TIMEOUT_S,
                    reset=_keep_session,
                    **self._settings(),
                )
            return self._pool

    async def _measure_clock(self, connection: asyncpg.Connection) -> None:
        """Learn the server's time; the monotonic clock keeps it, whatever happens to the clock of this machine."""
        began = time.monotonic()
        seconds: float = await connection.fetchval(_CLOCK)
        self._clock_measured_at = time.monotonic()
        # The server is taken to have read its clock halfway between question and answer.
        self._clock_offset = seconds - (began + self._clock_measured_at) / 2

    async def _get_writer(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def _to_store_error(self, error: Exception) -> StoreError:
        if isinstance(error, asyncpg.DiskFullError):
            return StoreUnavailable(
                "{where} is on a disk that is full; nothing was written. Make room, then try again.", self.name
            )
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            return StoreUnavailable("{where} is read-only; nothing was written.", self.name)
        if isinstance(error, asyncpg.QueryCanceledError):
            return StoreUnavailable(
                f"{{where}} took longer than {self._timeouts.slow_statement:g} s; nothing was written.",
                self.name,
            )
        if isinstance(error, _REFUSED):
            return StoreUnavailable("{where} refused the connection{why}.", self.name, _describe(error))
        return StoreError("{where} refused a statement{why}.", self.name, _describe(error))


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
                if changed[write]:
                    for statement, row in zip(change.statements[1:], write.rows[1:], strict=True):
                        await connection.execute(number_placeholders(statement.text), *row)
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
        # Nearly always every fence holds, and no keys have to be compared.
        hits = {change.key_of(row) for row in found} if len(found) < len(writes) else None
        for write in writes:
            changed[write] = 1 if hits is None else int(change.key_of(write.rows[0]) in hits)


async def _keep_session(_: asyncpg.Connection) -> None:
    """Reset nothing when a reader returns to the pool: it sets nothing, and a reset is a round trip for each read."""


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
            # Below the lock: two processes that create a table IF NOT EXISTS at once fail on its name in the catalog.
            await connection.execute(schema.CREATE_MIGRATIONS)
            # Read again: another process may have applied the migration while this one waited for the lock.
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
        # Without a WAL beside it, the backup is one file.
        file.execute("PRAGMA journal_mode = DELETE")


async def _copy(connect: Callable[[], Awaitable[asyncpg.Connection]], file: apsw.Connection) -> None:
    connection = await connect()
    try:
        # One snapshot for all tables: an instance and its history are copied as of the same commit.
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute("SET LOCAL statement_timeout = 0")
            file.execute("BEGIN")
            for table in schema.TABLES:
                columns, values = ", ".join(table.columns), ", ".join("?" * len(table.columns))
                query = f"SELECT {columns} FROM {table.name} ORDER BY {', '.join(table.key)}"  # noqa: S608
                # A table may be larger than the memory.
                rows = await connection.cursor(query)
                while some := await rows.fetch(_COPY_ROWS):
                    file.executemany(f"INSERT INTO {table.name} ({columns}) VALUES ({values})", some)  # noqa: S608
            file.execute("COMMIT")
    finally:
        await connection.close()
