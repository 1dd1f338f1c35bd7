"""SQLite: one thread writes, in transactions shared by all writes that wait; others read."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Literal, cast, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from waypost.errors import Busy, StoreDamaged, StoreError, StoreUnavailable
from waypost.loops import running_loop
from waypost.stores import schema
from waypost.stores.database import Outcome, Point, Write, WriteQueue, split_into_rounds
from waypost.stores.statements import Change, Query, Row, Statement

Synchronous = Literal["FULL", "NORMAL"]

QUICK_CHECK_TIMEOUT_S: Final = 2.0
"""Seconds the check at the start may take; `waypost store check` takes as long as it needs."""

_CACHE_KIB: Final = 16 * 1024
_STATEMENTS: Final = 512
_CHECKPOINT_PAGES: Final = 8000
_PROGRESS_STEPS: Final = 100_000
_SOON: Final = 0.01
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SENTENCES: Final = {
    sqlite3.SQLITE_FULL: "The disk of {where} is full; nothing was written. Make room, then try again.",
    sqlite3.SQLITE_READONLY: "{where} is read-only; nothing was written. Make the file and its directory writable.",
    sqlite3.SQLITE_BUSY: "{where} has been locked by another process for too long; nothing was written.",
    sqlite3.SQLITE_LOCKED: "{where} has been locked by another process for too long; nothing was written.",
    sqlite3.SQLITE_CANTOPEN: "{where} cannot be opened: its directory is missing or closed to this user.",
    sqlite3.SQLITE_IOERR: "{where} cannot be read or written: {error}.",
}


def create_file(path: Path) -> None:
    """Make the directory and an empty file that is this user's alone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        raise StoreUnavailable(f"The store {path} cannot be made: {error.strerror}.") from None


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A file to be written that appears under its name when it is whole; one that exists is refused."""
    fresh = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    try:
        if target.exists():
            raise FileExistsError(errno.EEXIST, "there is such a file already")
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
) -> sqlite3.Connection:
    """Open a file, or a database in memory; transactions are the caller's business."""
    where = ":memory:" if path is None else path.absolute().as_uri() + ("?mode=ro" if reading else "")
    connection = sqlite3.connect(
        where,
        timeout=busy,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS,
        uri=path is not None,
    )
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    if path is not None and not reading:
        _write_ahead(connection, busy)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {2 * 4096 * _CHECKPOINT_PAGES}")
    return connection


def _write_ahead(connection: sqlite3.Connection, busy: float) -> None:
    """Have a log; SQLite itself does not wait for another process that is about to do the same."""
    until = time.monotonic() + busy
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(_SOON)


def migrate(connection: sqlite3.Connection, where: str) -> None:
    """Take the steps that are missing, one transaction each; another process that does the same is waited for."""
    if schema.missing_migrations(read_version(connection), where):
        while _step(connection, where):
            pass


def read_version(connection: sqlite3.Connection) -> int:
    """The last step that was taken."""
    known = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'migrations'").fetchone()[0]
    return int(connection.execute(schema.SELECT_VERSION).fetchone()[0]) if known else 0


def _step(connection: sqlite3.Connection, where: str) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    try:
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


def roll_back(connection: sqlite3.Connection) -> None:
    """End a transaction, if there still is one."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def quick_check(connection: sqlite3.Connection, where: str) -> None:
    """Refuse a damaged file, as far as that shows within `LOOK_OVER` seconds."""
    until = time.monotonic() + QUICK_CHECK_TIMEOUT_S
    connection.set_progress_handler(lambda: time.monotonic() > until, _PROGRESS_STEPS)
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return
    finally:
        connection.set_progress_handler(None, 0)
    if found != "ok":
        raise damage_error(where, found)


def damage_error(where: str, finding: object) -> StoreDamaged:
    """The error for a file whose content is wrong."""
    finding = str(finding).replace("\n", " ").removeprefix("*** in database main *** ")
    return StoreDamaged(f"{where} is damaged ({finding}); move it away and restore a backup.")


def to_store_error(error: sqlite3.Error, where: str) -> StoreError:
    """What an error of SQLite means to people."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _DAMAGED:
        return damage_error(where, error)
    sentence = _SENTENCES.get(code)
    if sentence is None:
        return StoreError(f"{where} refused a statement: {error}.")
    return StoreUnavailable(sentence.format(where=where, error=error))


_WIDEST: Final = 256
_SLICE: Final = 8
_CROWDED: Final = 1.0
_PATIENCE: Final = 0.0005
_PATIENCE_A_ROW: Final = 0.00002
"""Seconds that statements take when nobody is in the way, generously."""
_OF_THE_FILE: Final = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    )
)
"""Errors that would meet every other write too."""


class _Missed(Exception):
    """Somewhere in the batch a fence did not hold."""


class Writer:
    """Opens the database, then serves the line until it is stopped."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        line: WriteQueue,
        name: str,
        at: Callable[[Point], None],
        *,
        lasting: bool,
    ) -> None:
        self.opened: Future[sqlite3.Connection] = Future()
        self.turn = threading.Lock()
        """Held during a transaction, for others who use the same connection."""
        self._connect = connect
        self._line = line
        self._name = name
        self._at = at
        self._lasting = lasting
        self._pace = _Pace()
        self._calls: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="waypost-store-writer", daemon=True)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Whether the database could not be opened."""
        return self.opened.done() and self.opened.exception() is not None

    def wake(self) -> None:
        """Say that somebody stands in line."""
        self._calls.put(True)

    def stop(self) -> None:
        """Serve those who stand in line and end."""
        self._calls.put(False)
        self._thread.join()

    def _run(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:
            self._refuse_all(self._explained(error))
            return
        self.opened.set_result(connection)
        while self._calls.get():
            self._serve(connection)
        self._serve(connection)
        if not self._lasting:
            connection.close()

    def _refuse_all(self, error: Exception) -> None:
        self.opened.set_exception(error)
        while batch := self._line.take():
            deliver(batch, [error] * len(batch))

    def _serve(self, connection: sqlite3.Connection) -> None:
        while batch := self._line.take():
            with self.turn:
                outcomes = self._outcomes(connection, batch)
            deliver(batch, outcomes)

    def _outcomes(self, connection: sqlite3.Connection, batch: list[Write]) -> Sequence[Outcome]:
        """What came of each: all together if they fit, in turn if some fence did not hold, else each by itself."""
        try:
            try:
                return self._transaction(connection, batch, self._pace.together)
            except _Missed:
                return self._transaction(connection, batch, _in_turn)
        except Exception as error:
            if len(batch) > 1 and getattr(error, "sqlite_errorcode", 0) & 0xFF not in _OF_THE_FILE:
                return [self._outcomes(connection, [write])[0] for write in batch]
            return [self._explained(error)] * len(batch)

    def _transaction(
        self,
        connection: sqlite3.Connection,
        batch: Sequence[Write],
        apply: Callable[[sqlite3.Connection, Sequence[Write]], Sequence[Outcome]],
    ) -> Sequence[Outcome]:
        try:
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

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.DatabaseError):
            return to_store_error(error, self._name)
        if isinstance(error, StoreError):
            return error
        return StoreError(f"{self._name} cannot hold that: {error}.")


def _in_turn(connection: sqlite3.Connection, batch: Sequence[Write]) -> Sequence[Outcome]:
    return [_run_change(connection, write) for write in batch]


def _run_change(connection: sqlite3.Connection, write: Write) -> int:
    fence, *then = write.change.statements
    if write.change.bulk:
        return connection.executemany(fence.single, write.rows).rowcount
    changed = connection.execute(fence.single, write.rows[0]).rowcount
    if changed:
        for statement, row in zip(then, write.rows[1:], strict=True):
            connection.execute(statement.single, row)
    return changed


class _Pace:
    """Runs statements for many rows: one by one, or as one when others want the interpreter's lock."""

    def __init__(self) -> None:
        self._crowded_until = 0.0

    def together(self, connection: sqlite3.Connection, batch: Sequence[Write]) -> Sequence[Outcome]:
        """Run a batch in which every fence holds; else it is `_Missed`."""
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
                        raise _Missed
        return [changed.get(write, 1) for write in batch] if changed else [1] * len(batch)

    def _run(self, connection: sqlite3.Connection, statement: Statement, rows: Sequence[Row]) -> int:
        changed = start = 0
        while start < len(rows):
            began, left = time.perf_counter(), len(rows) - start
            if began < self._crowded_until:  # few widths keep the number of texts to prepare small
                some = rows[start : start + min(1 << left.bit_length() - 1, _WIDEST)]
                ran = connection.execute(statement.wide(len(some)), list(chain.from_iterable(some)))
            else:
                some = rows[start : start + _SLICE]
                ran = connection.executemany(statement.single, some)
            changed += ran.rowcount
            start += len(some)
            ended = time.perf_counter()
            if ended - began > _PATIENCE + len(some) * _PATIENCE_A_ROW:
                self._crowded_until = ended + _CROWDED
        return changed


def deliver(batch: Iterable[Write], outcomes: Iterable[Outcome]) -> None:
    """Let those who wait know, each on its own loop; a loop that is over has nobody who waits."""
    told: defaultdict[asyncio.AbstractEventLoop, list[tuple[Write, Outcome]]] = defaultdict(list)
    for news in zip(batch, outcomes, strict=True):
        told[news[0].loop].append(news)
    for loop, some in told.items():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, some)


def _settle(news: Iterable[tuple[Write, Outcome]]) -> None:
    for write, outcome in news:
        write.settle(outcome)


_THREADS: Final = 2
_MOST_WAITING: Final = 10_000

_Question = tuple[str, Sequence[Any], asyncio.Future[list[Row]]]


class Readers:
    """Answers questions in threads; with a `turn`, one at a time and only while nobody writes."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        name: str,
        turn: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._connect = connect
        self._name = name
        self._owned = turn is None
        self._turn = turn or nullcontext()
        self._questions: SimpleQueue[_Question | None] = SimpleQueue()
        count = _THREADS if self._owned else 1
        self._threads = [
            threading.Thread(target=self._run, name=f"waypost-store-reader-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def read(self, text: str, given: Sequence[Any]) -> asyncio.Future[list[Row]]:
        """Ask; the answer comes to the loop this is called on."""
        if self._questions.qsize() >= _MOST_WAITING:
            raise Busy(f"{_MOST_WAITING} reads are waiting for {self._name} already; try again later.")
        future: asyncio.Future[list[Row]] = running_loop().create_future()
        self._questions.put((text, given, future))
        return future

    def stop(self) -> None:
        """Answer what was asked and end."""
        for _ in self._threads:
            self._questions.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        while (question := self._questions.get()) is not None:
            text, given, future = question
            try:
                connection = connection or self._connect()
                with self._turn:
                    answer: list[Row] | Exception = connection.execute(text, given).fetchall()
            except sqlite3.DatabaseError as error:
                answer = to_store_error(error, self._name)
            except Exception as error:
                answer = StoreError(f"{self._name} cannot be asked that: {error}.")
            with suppress(RuntimeError):  # the loop is over, and nobody waits
                future.get_loop().call_soon_threadsafe(_deliver, future, answer)
        if connection is not None and self._owned:
            connection.close()


def _deliver(future: asyncio.Future[list[Row]], answer: list[Row] | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


_BUSY: Final = 5.0


def create_database(url: str, data: Path) -> SqliteDatabase:
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
    return SqliteDatabase(data / name, synchronous=cast("Synchronous", synchronous))


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
        self._line = WriteQueue(lambda: self._running().wake(), self.name)
        self._memory: sqlite3.Connection | None = None
        self._writer: Writer | None = None
        self._readers: Readers | None = None

    @property
    def is_durable(self) -> bool:
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
                if not await self.schema_version():  # there is nothing to read yet
                    raise
            self._readers = self._readers or self._reading()
        return await self._readers.read(query.sqlite, given)

    async def schema_version(self) -> int:
        """How far its tables are, without changing them."""
        if self.path is None:
            return schema.LATEST
        return await asyncio.to_thread(self._step) if self.path.exists() else 0

    def _step(self) -> int:
        try:
            with closing(self._connect(reading=True)) as connection:
                return read_version(connection)
        except sqlite3.Error as error:
            raise to_store_error(error, self.name) from error

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
        with new_file(target) as fresh:
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
            raise to_store_error(error, self.name) from error

    def _running(self) -> Writer:
        if self._writer is None or self._writer.has_failed:
            self._writer = Writer(self._open, self._line, self.name, self._at, lasting=self.path is None)
        return self._writer

    def _open(self) -> sqlite3.Connection:
        if self._memory is not None:
            return self._memory
        if self.path is not None:
            create_file(self.path)
        connection = self._connect()
        try:
            quick_check(connection, self.name)
            migrate(connection, self.name)
        except BaseException:
            connection.close()
            raise
        if self.path is None:
            self._memory = connection
        return connection

    def _connect(self, reading: bool = False) -> sqlite3.Connection:
        return connect(self.path, synchronous=self._synchronous, busy=self._busy, reading=reading)

    def _reading(self) -> Readers:
        if self.path is None:
            writer = self._running()
            return Readers(writer.opened.result, self.name, turn=writer.turn)
        return Readers(partial(self._connect, reading=True), self.name)
