"""SQLite files: how they are opened, brought up to date and looked over, and what their errors mean."""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from waypost.errors import StoreDamaged, StoreError, StoreUnavailable
from waypost.stores import migrations

Synchronous = Literal["FULL", "NORMAL"]

LOOK_OVER: Final = 2.0
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


def make_room(path: Path) -> None:
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
    if migrations.missing(newest(connection), where):
        while _step(connection, where):
            pass


def newest(connection: sqlite3.Connection) -> int:
    """The last step that was taken."""
    known = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'migrations'").fetchone()[0]
    return int(connection.execute(migrations.NEWEST).fetchone()[0]) if known else 0


def _step(connection: sqlite3.Connection, where: str) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    try:
        missing = migrations.missing(newest(connection), where)
        if missing:
            connection.execute(migrations.CREATE)
            for statement in missing[0].statements(migrations.SQLITE_WORDS):
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


def look_over(connection: sqlite3.Connection, where: str) -> None:
    """Refuse a damaged file, as far as that shows within `LOOK_OVER` seconds."""
    until = time.monotonic() + LOOK_OVER
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
        raise damaged(where, found)


def damaged(where: str, finding: object) -> StoreDamaged:
    """The error for a file whose content is wrong."""
    finding = str(finding).replace("\n", " ").removeprefix("*** in database main *** ")
    return StoreDamaged(f"{where} is damaged ({finding}); move it away and restore a backup.")


def explained(error: sqlite3.Error, where: str) -> StoreError:
    """What an error of SQLite means to people."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _DAMAGED:
        return damaged(where, error)
    sentence = _SENTENCES.get(code)
    if sentence is None:
        return StoreError(f"{where} refused a statement: {error}.")
    return StoreUnavailable(sentence.format(where=where, error=error))
