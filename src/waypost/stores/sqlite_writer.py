"""The thread that writes.

Every statement gives up the interpreter's lock and has to win it back. While the loop is idle that costs nothing, and
row by row is fastest. While it is busy that takes long, and few statements with many rows are: 64 rows one by one took
seconds there.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain
from queue import SimpleQueue
from typing import Final

from waypost.errors import StoreError
from waypost.stores import sqlite_files
from waypost.stores.database import Line, Outcome, Point, Write, rounds
from waypost.stores.statements import Row, Statement

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
        line: Line,
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
            tell(batch, [error] * len(batch))

    def _serve(self, connection: sqlite3.Connection) -> None:
        while batch := self._line.take():
            with self.turn:
                outcomes = self._outcomes(connection, batch)
            tell(batch, outcomes)

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
            sqlite_files.roll_back(connection)
            raise
        return outcomes

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.DatabaseError):
            return sqlite_files.explained(error, self._name)
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
        for turn in rounds(batch):
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


def tell(batch: Iterable[Write], outcomes: Iterable[Outcome]) -> None:
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
