"""The work that is measured: an instance moves on where its version still holds, and its history gets a row."""

from __future__ import annotations

import os
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Final, Protocol

import apsw
import msgspec

from waypost.stores import sqlite
from waypost.stores.instances import InstanceRecord
from waypost.stores.store import Store

INSTANCES: Final = 4_000
DEFINITION, PRINCIPAL, BEFORE, AFTER, STATUS = "release", "bench", "drafted", "reviewed", "running"
STARTED_AT, MOVED_AT = 1.0, 2.0
VALUE: Final = {"notes": "n" * 280}
BODY: Final = msgspec.json.encode(VALUE).decode()

START: Final = "INSERT INTO instances VALUES (?, 1, '', 0, '', ?, ?, ?, ?, 0, ?)"
ENTER: Final = "INSERT INTO history VALUES (?, ?, ?, ?)"
MOVE: Final = (
    "UPDATE instances SET version = version + 1, state = ?, status = ?, due_at = 0, body = ?, "
    "reservation = '', reserved_until = 0, reserved = '' WHERE id = ? AND version = ? AND reservation = ''"
)
_FILL_CACHE_KIB: Final = 1024 * 1024
_FILL_ROWS: Final = 100_000


class Fenced(Exception):
    """A move met a version that it did not expect, which no benchmark should see."""


class Mover(Protocol):
    """Something that moves instances durably."""

    async def open(self) -> None:
        """Have `INSTANCES` instances at version 1."""

    async def move(self, instance: str, version: int) -> None:
        """Move one on; return when that is durable, raise when it is not at that version."""

    async def close(self) -> None:
        """Let go of everything."""


def name_of(number: int) -> str:
    """The id of an instance: its time first, so that ids sort as they were made, then something random."""
    return f"wf_{number:012x}{blake2b(number.to_bytes(8), digest_size=5).hexdigest()}"


def fill(path: Path, count: int) -> None:
    """Write a new store with so many instances at version 1, as fast as it goes."""
    with closing(sqlite.connect(path, busy=5)) as connection:
        sqlite.migrate(connection, str(path))
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA cache_size = -{_FILL_CACHE_KIB}")
        for start in range(0, count, _FILL_ROWS):
            names = [name_of(number) for number in range(start, min(start + _FILL_ROWS, count))]
            connection.execute("BEGIN")
            connection.executemany(START, ((name, DEFINITION, PRINCIPAL, BEFORE, STATUS, BODY) for name in names))
            connection.executemany(ENTER, ((name, 1, STARTED_AT, BODY) for name in names))
            connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def run_move(connection: apsw.Connection, instance: str, version: int) -> None:
    """The two statements, within whatever transaction there is."""
    connection.execute(MOVE, (AFTER, STATUS, BODY, instance, version))
    if connection.changes() != 1:
        raise Fenced(instance)
    connection.execute(ENTER, (instance, version + 1, MOVED_AT, BODY))


async def commit(store: Store, instance: str, version: int) -> None:
    """The same through Waypost's store, which raises `StaleVersion` by itself."""
    moved = InstanceRecord(
        id=instance,
        version=version,
        definition=DEFINITION,
        principal=PRINCIPAL,
        state=AFTER,
        status=STATUS,
        value=VALUE,
    )
    await store.instances.commit(moved, MOVED_AT, VALUE)
