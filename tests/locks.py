"""The lock of an SQLite file, held by another connection than the hub's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import apsw

# A hub writes at any moment, also after its last answer (audit, sessions): the lock is waited for, not demanded.
BUSY_TIMEOUT_MS: Final = 60_000


@contextmanager
def hold_lock(file: Path, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Hold the write lock of a database, or with `EXCLUSIVE` that of a file not yet in WAL mode against readers too."""
    with closing(apsw.Connection(str(file))) as connection:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.execute(f"BEGIN {kind}")
        yield
