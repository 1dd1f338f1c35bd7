"""SQLite: one thread writes, in transactions shared by all writes that wait; other threads read.

SQLite allows one writer at a time. One writer thread, instead of a lock that coroutines compete for, never waits for
itself, keeps the disk flush of a commit off the event loop, and collects the next batch while the last one is flushed.
In WAL mode readers are not blocked by it. Locks are taken in one order: the writer's `turn`, which matters only for a
database in memory because its single connection is shared with the readers, then SQLite's own lock on the file.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import partial
from itertools import chain
from math import ceil
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Literal, cast, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

import apsw

from waypost.errors import Busy, StoreDamaged, StoreError, StoreUnavailable
from waypost.loops import running_loop
from waypost.stores import schema
from waypost.stores.database import (
    DEFAULT_TIMEOUT_S,
    Outcome,
    Point,
    Query,
    Row,
    Statement,
    Write,
    WriteQueue,
    deadline_of,
    split_into_rounds,
)

Synchronous = Literal["FULL", "NORMAL"]
LIBRARY_VERSION: Final = apsw.sqlite_lib_version()
FIRST_SAFE_VERSION: Final = 3_051_003
"""SQLite 3.7.0 to 3.51.2 can corrupt a file in WAL mode when two connections write and checkpoint at the same time."""
_MAGIC: Final = b"SQLite format 3\0"
QUICK_CHECK_TIMEOUT_S: Final = 2.0
"""For the check on opening; `waypost store check` takes as long as it needs."""
_CACHE_KIB: Final = 16 * 1024
_CACHED_STATEMENTS: Final = 512
CHECKPOINT_PAGES: Final = 8000
_PROGRESS_STEPS: Final = 100_000
_WAL_RETRY_S: Final = 0.01
_UNAVAILABLE: Final = {
    apsw.FullError: "{where} is on a disk that is full; nothing was written. Make room, then try again.",
    apsw.ReadOnlyError: "{where} is read-only; nothing was written. Make the file and its directory writable.",
    apsw.BusyError: "{where} is locked by another process; nothing was written.",
    apsw.LockedError: "{where} is locked by another process; nothing was written.",
    apsw.CantOpenError: "{where} cannot be opened: its directory is missing, read-only or closed to this user.",
    apsw.IOError: "{where} cannot be read or written: {error} ({code}).",
}
_MOVED: Final = "{where} was moved or replaced while it was open; nothing was written. Restart the hub."
_DAMAGED_CODES: Final = (apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_DATA)
"""Errors that are reported as I/O errors although the content of the file is what is wrong."""
_MAX_STATEMENT_ROWS: Final = 256
_SINGLE_ROWS: Final = 8
"""Rows that are written one by one before the time they take is looked at."""
_CONTENDED_S: Final = 1.0
"""How long wide statements are used after the interpreter's lock was found contended."""
_STATEMENT_S: Final = 0.0005
_ROW_S: Final = 0.00002
"""Generous upper bounds for a statement and each row of it while no other thread holds the lock."""
_FILE_ERRORS: Final = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.IOError,
    apsw.CorruptError,
    apsw.NotADBError,
)
"""Errors of the whole file: other writes of the batch would fail alike and are not tried one by one."""
_READER_THREADS: Final = 2
_MAX_QUEUED_READS: Final = 10_000
_Read = tuple[str, Sequence[Any], asyncio.Future[Sequence[Row]]]
_log: Final = logging.getLogger(__name__)


def create_database(url: str, data: Path, timeout: float = DEFAULT_TIMEOUT_S) -> SqliteDatabase:
    """The database of a `sqlite:` URL: a file in the data directory, a file elsewhere, or one in memory."""
    parts = urlsplit(url)
    if parts.netloc:
        host = parts.netloc.rpartition("@")[2]
        raise StoreError(f"The SQLite URL has a host, {host}; write sqlite:///name.db or sqlite:////path/name.db.")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    synchronous = options.pop("synchronous", "FULL").upper()
    if options or synchronous not in get_args(Synchronous):
        raise StoreError(f"Unknown options in {url}; there is synchronous=FULL and synchronous=NORMAL.")
    name = unquote(parts.path.removeprefix("/"))
    if name in ("", ":memory:"):
        return SqliteDatabase()
    return SqliteDatabase(data / name, synchronous=cast("Synchronous", synchronous), busy=timeout)


class SqliteDatabase:
    """A database in a file; without a path one in memory, which lives as long as this object."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        synchronous: Synchronous = "FULL",
        busy: float = DEFAULT_TIMEOUT_S,
        at: Callable[[Point], None] = lambda _: None,
    ) -> None:
        self.path = path
        self.name = "The store in memory" if path is None else f"The store {path}"
        self._synchronous: Synchronous = synchronous
        self._busy = busy
        self._at = at
        self._queue = WriteQueue(lambda: self._start_writer().wake_ups.put(True), self.name)
        self.write = self._queue.put
        self.now = time.time
        """The time of this machine, whose processes alone use the file."""
        self._memory: apsw.Connection | None = None
        self._writer: Writer | None = None
        self._readers: Readers | None = None

    @property
    def is_durable(self) -> bool:
        """Whether it is in a file."""
        return self.path is not None

    @property
    def is_open(self) -> bool:
        """Whether its threads are running."""
        return self._writer is not None

    @property
    def is_shared(self) -> bool:
        """False: a file belongs to one hub; others only read it."""
        return False

    @property
    def bus_url(self) -> str:
        """Within the process: there are no replicas."""
        return "local"

    @property
    def is_failing(self) -> bool:
        """Whether the last write failed because the database was not available."""
        return self._queue.is_failing

    @property
    def is_responding(self) -> bool:
        """True: it is in this process."""
        return True

    async def open(self) -> None:
        """Start the writer thread and wait until it has opened the database."""
        # Several callers wait for one writer: one that is cancelled must not cancel the opening for the others.
        await asyncio.shield(asyncio.wrap_future(self._start_writer().opened))

    async def close(self) -> None:
        """Finish queued reads and writes, then end the threads."""
        writer, readers = self._writer, self._readers
        self._writer = self._readers = None
        if readers is not None:
            await asyncio.to_thread(readers.stop)
        if writer is not None:
            await asyncio.to_thread(writer.stop)

    async def read(self, query: Query, *given: Any) -> Sequence[Row]:
        """The rows of a query, as of the last commit; a file that cannot be written may still be read."""
        if self._readers is None or self._writer is None or self._writer.has_failed:
            try:
                await self.open()
            except StoreUnavailable:
                if not await self.schema_version():  # there are no tables to read
                    raise
            self._readers = self._readers or self._start_readers()
        return await self._readers.read(query.sqlite, given)

    async def schema_version(self) -> int:
        """The number of the last migration that was applied; nothing is created or changed."""
        if self.path is None:
            return schema.LATEST
        return await asyncio.to_thread(self._read_version) if self.path.exists() else 0

    def _read_version(self) -> int:
        try:
            with closing(self._connect(reading=True)) as connection:
                return read_version(connection)
        except apsw.Error as error:
            raise to_store_error(error, self.name) from error

    async def check(self) -> list[str]:
        """What SQLite finds when it checks every page and every index."""
        try:
            found = await self.read(Query("PRAGMA integrity_check(100)"))
        except StoreDamaged as error:
            return [error.message]
        return [str(row[0]) for row in found if row[0] != "ok"]

    async def vacuum(self) -> None:
        """Rewrite the file without the space of deleted rows."""
        await self.open()
        await asyncio.to_thread(self._execute, "VACUUM")
        await asyncio.to_thread(self._execute, "PRAGMA wal_checkpoint(TRUNCATE)")

    async def backup(self, target: Path) -> None:
        """Write a consistent copy, which gets its name only when it is complete."""
        if self.path is None:
            await self.open()
        await asyncio.to_thread(self._back_up, target)

    def _back_up(self, target: Path) -> None:
        with new_file(target) as fresh:
            self._execute("VACUUM INTO ?", str(fresh), reading=True)

    def _execute(self, statement: str, *given: Any, reading: bool = False) -> None:
        try:
            if self.path is None:
                with self._start_writer().turn:
                    self._start_writer().opened.result().execute(statement, given)
                return
            with closing(self._connect(reading)) as connection:
                connection.execute(statement, given)
        except apsw.Error as error:
            raise to_store_error(error, self.name) from error

    def _start_writer(self) -> Writer:
        if self._writer is None or self._writer.has_failed:
            if self._writer is not None:  # it still refuses what is queued, and must not refuse it for the next one
                self._writer.stop()
            self._writer = Writer(self._open, self._queue, self.name, self._busy, self._at, keep_open=self.path is None)
        return self._writer

    def _open(self) -> apsw.Connection:
        if self._memory is not None:
            return self._memory
        if self.path is not None:
            create_file(self.path)
        connection = self._connect()
        try:
            written_by = None if self.path is None else read_file_version(self.path)
            if written_by is not None and written_by < FIRST_SAFE_VERSION:
                check_once(connection, self.name, written_by)
            else:
                quick_check(connection, self.name)
            migrate(connection, self.name)
        except BaseException:
            connection.close()
            raise
        if self.path is None:
            self._memory = connection
        return connection

    def _connect(self, reading: bool = False) -> apsw.Connection:
        return connect(self.path, synchronous=self._synchronous, busy=self._busy, reading=reading)

    def _start_readers(self) -> Readers:
        if self.path is None:
            writer = self._start_writer()
            return Readers(writer.opened.result, self.name, turn=writer.turn)
        return Readers(partial(self._connect, reading=True), self.name)


class Writer:
    """The thread that writes: it opens the database, then serves the queue until it is stopped."""

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        queue: WriteQueue,
        name: str,
        busy: float,
        at: Callable[[Point], None],
        *,
        keep_open: bool,
    ) -> None:
        self.opened: Future[apsw.Connection] = Future()
        self.turn = threading.Lock()
        """Held during a transaction; users of the same connection take it too."""
        self._connect = connect
        self._queue = queue
        self._name = name
        self._busy = busy
        self._wait_fifths = 5
        """How much of that time the connection waits for a lock at the moment."""
        self._at = at
        self._keep_open = keep_open
        self._batches = _BatchRunner()
        self.has_failed = False
        """Whether the database could not be opened."""
        self.wake_ups: SimpleQueue[bool] = SimpleQueue()
        """True has the thread look at the queue of writes, false also ends it."""
        self._thread = threading.Thread(target=self._run, name="waypost-store-writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the queued writes and end the thread."""
        self.wake_ups.put(False)
        self._thread.join()

    def _run(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:
            refusal = self._to_store_error(error)
            self.has_failed = True
            self.opened.set_exception(refusal)
            while batch := self._queue.take_batch():
                deliver(batch, [refusal] * len(batch))
            return
        self.opened.set_result(connection)
        while self.wake_ups.get():
            self._serve(connection)
        self._serve(connection)
        if not self._keep_open:
            connection.close()

    def _serve(self, connection: apsw.Connection) -> None:
        while batch := self._queue.take_batch():
            with self.turn:
                self._limit_wait(connection, batch)
                outcomes = self._outcomes(connection, batch)
            self._queue.note(batch, outcomes)
            deliver(batch, outcomes)

    def _limit_wait(self, connection: apsw.Connection, batch: list[Write]) -> None:
        """Have the batch wait for a lock of another process only as long as its callers wait, in fifths of that."""
        left = deadline_of(batch, self._busy) - time.monotonic()
        fifths = min(ceil(5 * left / self._busy), 5)
        if fifths != self._wait_fifths:
            connection.set_busy_timeout(round(self._busy * fifths * 200))
            self._wait_fifths = fifths

    def _outcomes(self, connection: apsw.Connection, batch: list[Write]) -> Sequence[Outcome]:
        """Run a batch in one transaction; the outcome of each write.

        Statements for many rows cannot say which row's fence failed, so then the batch is repeated write by write,
        still in one transaction. If a write breaks the transaction, each gets one of its own, and only that one fails.
        """
        try:
            try:
                return self._transaction(connection, batch, self._batches.run)
            except _FenceFailed:
                return self._transaction(connection, batch, lambda one, writes: [_run_change(one, w) for w in writes])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, _FILE_ERRORS):
                return [self._outcomes(connection, [write])[0] for write in batch]
            return [self._to_store_error(error, connection)] * len(batch)

    def _transaction(
        self,
        connection: apsw.Connection,
        batch: Sequence[Write],
        apply: Callable[[apsw.Connection, Sequence[Write]], Sequence[Outcome]],
    ) -> Sequence[Outcome]:
        try:
            # The lock for writing at once: asked for later, it is refused where another process has written meanwhile.
            connection.execute("BEGIN IMMEDIATE")
            self._at("begun")
            outcomes = apply(connection, batch)
            self._at("written")
            connection.execute("COMMIT")
            self._at("committed")
        except BaseException:
            roll_back(connection)
            raise
        return outcomes

    def _to_store_error(self, error: Exception, connection: apsw.Connection | None = None) -> Exception:
        if isinstance(error, apsw.IOError) and connection is not None and connection.system_errno == errno.EROFS:
            return StoreUnavailable(_UNAVAILABLE[apsw.ReadOnlyError], self._name)
        if isinstance(error, apsw.Error):
            return to_store_error(error, self._name)
        if isinstance(error, StoreError):
            return error
        return StoreError(f"{self._name} cannot hold that: {error}.")


def _run_change(connection: apsw.Connection, write: Write) -> int:
    fence, *then = write.change.statements
    if write.change.bulk:
        before = connection.total_changes()
        connection.executemany(fence.single, write.rows)
        return connection.total_changes() - before
    connection.execute(fence.single, write.rows[0])
    changed = connection.changes()
    if changed:
        for statement, row in zip(then, write.rows[1:], strict=True):
            connection.execute(statement.single, row)
    return changed


class _FenceFailed(Exception):
    """The fence of some write in the batch did not hold."""


class _BatchRunner:
    """Runs the statements of a batch, row by row or many rows at once, whichever is faster at the moment.

    Every statement releases the interpreter's lock and has to win it back. While the event loop is idle that costs
    nothing, and row by row is fastest. While it is busy that takes milliseconds each time, and few statements with many
    rows are faster: 64 rows one by one took seconds. A statement that takes far longer than SQLite needs shows that the
    lock is contended.
    """

    def __init__(self) -> None:
        self._contended_until = 0.0

    def run(self, connection: apsw.Connection, batch: Sequence[Write]) -> Sequence[Outcome]:
        """Run a batch; `_FenceFailed` when the fence of a write does not hold."""
        changed: dict[Write, int] = {}
        for turn in split_into_rounds(batch):
            for change, writes in turn.items():
                if change.fence.alone:
                    for write in writes:
                        changed[write] = _run_change(connection, write)
                    continue
                if change.bulk:
                    for write in writes:
                        changed[write] = self._run(connection, change.fence, write.rows)
                    continue
                for position, statement in enumerate(change.statements):
                    if self._run(connection, statement, [write.rows[position] for write in writes]) != len(writes):
                        raise _FenceFailed
        return [changed.get(write, 1) for write in batch] if changed else [1] * len(batch)

    def _run(self, connection: apsw.Connection, statement: Statement, rows: Sequence[Row]) -> int:
        start, before = 0, connection.total_changes()
        while start < len(rows):
            began, left = time.perf_counter(), len(rows) - start
            if began < self._contended_until:  # powers of two keep the number of texts to prepare small
                some = rows[start : start + min(1 << left.bit_length() - 1, _MAX_STATEMENT_ROWS)]
                connection.execute(statement.wide(len(some)), list(chain.from_iterable(some)))
            else:
                some = rows[start : start + _SINGLE_ROWS]
                connection.executemany(statement.single, some)
            start += len(some)
            ended = time.perf_counter()
            if ended - began > _STATEMENT_S + len(some) * _ROW_S:
                self._contended_until = ended + _CONTENDED_S
        return connection.total_changes() - before


def deliver(batch: Iterable[Write], outcomes: Iterable[Outcome]) -> None:
    """Set the results on the event loops that the writes came from, one call per loop; closed loops are skipped."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[tuple[Write, Outcome]]] = defaultdict(list)
    for pair in zip(batch, outcomes, strict=True):
        by_loop[pair[0].future.get_loop()].append(pair)
    for loop, some in by_loop.items():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, some)


def _resolve(results: Iterable[tuple[Write, Outcome]]) -> None:
    for write, outcome in results:
        write.resolve(outcome)


class Readers:
    """Threads that read, each on its own connection; with a `turn`, one thread on the writer's connection."""

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        name: str,
        turn: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._connect = connect
        self._name = name
        self._owned = turn is None
        self._turn = turn or nullcontext()
        self._reads: SimpleQueue[_Read | None] = SimpleQueue()
        count = _READER_THREADS if self._owned else 1
        self._threads = [
            threading.Thread(target=self._run, name=f"waypost-store-reader-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def read(self, text: str, given: Sequence[Any]) -> asyncio.Future[Sequence[Row]]:
        """Queue a query; the rows arrive on the event loop that called this."""
        if self._reads.qsize() >= _MAX_QUEUED_READS:
            raise Busy(f"{_MAX_QUEUED_READS} reads are waiting for {self._name} already; try again later.")
        future: asyncio.Future[Sequence[Row]] = running_loop().create_future()
        self._reads.put((text, given, future))
        return future

    def stop(self) -> None:
        """Finish the queued reads and end the threads."""
        for _ in self._threads:
            self._reads.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        while (queued := self._reads.get()) is not None:
            text, given, future = queued
            try:
                connection = connection or self._connect()
                with self._turn:
                    result: Sequence[Row] | Exception = connection.execute(text, given).fetchall()
            except apsw.Error as error:
                result = to_store_error(error, self._name)
            except Exception as error:
                result = StoreError(f"{self._name} cannot run that query: {error}.")
            with suppress(RuntimeError):  # the event loop is closed: no caller waits any longer
                future.get_loop().call_soon_threadsafe(_deliver, future, result)
        if connection is not None and self._owned:
            connection.close()


def _deliver(future: asyncio.Future[Sequence[Row]], result: Sequence[Row] | Exception) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def create_file(path: Path) -> None:
    """Create the directory and an empty file that only this user can read."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        raise StoreUnavailable(f"{{where}} cannot be created: {error.strerror}.", f"The store {path}") from None


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A file to write to, which gets its name only when it is complete; an existing target is refused."""
    fresh = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    try:
        if target.exists():
            raise FileExistsError(errno.EEXIST, "the file exists already")
        os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield fresh
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        os.link(fresh, target)
    except OSError as error:
        raise StoreError(f"The backup {target} cannot be written: {error.strerror}.") from None
    finally:
        fresh.unlink(missing_ok=True)


def connect(
    path: Path | None, *, busy: float, synchronous: Synchronous = "FULL", reading: bool = False
) -> apsw.Connection:
    """Open a file, or a database in memory, in autocommit mode: callers begin and end transactions themselves."""
    connection = apsw.Connection(
        ":memory:" if path is None else str(path.absolute()),
        flags=apsw.SQLITE_OPEN_READONLY if reading else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE,
        statementcachesize=_CACHED_STATEMENTS,
    )
    connection.set_busy_timeout(round(busy * 1000))
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else each value of a parameter makes it plan again
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    if path is not None and not reading:
        _enable_wal(connection, busy)
        connection.execute(f"PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {2 * 4096 * CHECKPOINT_PAGES}")
    return connection


def _enable_wal(connection: apsw.Connection, busy: float) -> None:
    """Switch to WAL mode, with retries: SQLite's busy timeout does not cover two processes that switch at once."""
    until = time.monotonic() + busy
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
        time.sleep(_WAL_RETRY_S)


def migrate(connection: apsw.Connection, where: str) -> None:
    """Apply the missing migrations, one transaction each; two processes at once wait for each other."""
    if schema.missing_migrations(read_version(connection), where):
        while _apply_migration(connection, where):
            pass


def read_version(connection: apsw.Connection) -> int:
    """The number of the last migration that was applied."""
    known = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'migrations'").get
    return int(connection.execute(schema.SELECT_VERSION).get) if known else 0


def _apply_migration(connection: apsw.Connection, where: str) -> bool:
    """Apply the next migration; whether there are more."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again: another process may have applied it before this one got the write lock.
        missing = schema.missing_migrations(read_version(connection), where)
        if missing:
            connection.execute(schema.CREATE_MIGRATIONS)
            for statement in missing[0].statements(schema.SQLITE_TYPES):
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise
    return len(missing) > 1


def roll_back(connection: apsw.Connection) -> None:
    """Roll back, unless SQLite has done so itself because of the error."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def quick_check(connection: apsw.Connection, where: str) -> None:
    """Raise `StoreDamaged` for damage that is found within `QUICK_CHECK_TIMEOUT_S`."""
    until = time.monotonic() + QUICK_CHECK_TIMEOUT_S
    connection.set_progress_handler(lambda: time.monotonic() > until, _PROGRESS_STEPS)
    try:
        found = connection.execute("PRAGMA quick_check(1)").get
    except apsw.InterruptError:
        return
    finally:
        connection.set_progress_handler(None, 0)
    if found != "ok":
        raise damage_error(where, found)


def read_file_version(path: Path) -> int | None:
    """The number of the SQLite version that last wrote the first page of a file, by its header; None without one."""
    # Not through `open`: closing a file descriptor releases the locks that SQLite holds on the file in this process.
    try:
        file = apsw.VFSFile("", str(path.absolute()), [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
        try:
            header = file.xRead(100, 0)
        finally:
            file.xClose()
    except apsw.Error as error:
        raise to_store_error(error, f"The store {path}") from error
    return int.from_bytes(header[96:], "big") if header.startswith(_MAGIC) else None


def to_version_text(number: int) -> str:
    """A version number of SQLite as people write it: 3.51.3 for 3051003."""
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


def check_once(connection: apsw.Connection, where: str, written_by: int) -> None:
    """Check every page of a file that an affected SQLite has written; `StoreDamaged` for what it finds.

    A file that passes is marked as written by this SQLite, so that the check, which reads all of it, runs once.
    """
    _log.warning(
        "%s was last written by SQLite %s, which can corrupt files; all of it is checked once",
        where,
        to_version_text(written_by),
    )
    found = connection.execute("PRAGMA integrity_check(1)").get
    if found != "ok":
        raise damage_error(where, found)
    # A change of the first page makes SQLite write its version there; the checkpoint takes it from the WAL to the file.
    connection.execute("PRAGMA user_version = 0")
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def damage_error(where: str, finding: object) -> StoreDamaged:
    """The error for a file whose content is damaged."""
    finding = str(finding).replace("\n", " ").removeprefix("*** in database main *** ")
    return StoreDamaged(f"{{where}} is damaged ({finding}); move it away and restore a backup.", where)


def to_store_error(error: apsw.Error, where: str) -> StoreError:
    """The store's error for an error of SQLite, by its class and extended result code."""
    if isinstance(error, apsw.NotADBError):
        return StoreDamaged("{where} is not a SQLite database; move it away and restore a backup.", where)
    extended = getattr(error, "extendedresult", 0)  # errors of apsw itself, such as a wrong number of values, have none
    if isinstance(error, apsw.CorruptError) or extended in _DAMAGED_CODES:
        return damage_error(where, error)
    if extended == apsw.SQLITE_READONLY_DBMOVED:
        return StoreUnavailable(_MOVED, where)
    message = _UNAVAILABLE.get(type(error))
    if message is None:
        return StoreError(f"{{where}} refused a statement: {error}.", where)
    code = apsw.mapping_extended_result_codes.get(extended, extended)
    return StoreUnavailable(message.format(where="{where}", error=error, code=code), where)
