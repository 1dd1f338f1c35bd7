"""The event log: messages of streams that a client may ask for again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from waypost.stores.database import Database
from waypost.stores.records import is_key
from waypost.stores.statements import REAL, Change, Query, delete_where, insert
from waypost.stores.tables import EVENTS


class StoredEvent(NamedTuple):
    """One message of a stream."""

    session: str
    stream: str
    number: int
    expires_at: float
    message: str


_APPEND: Final = Change(insert(EVENTS, "skip"), bulk=True)
_AFTER: Final = Query(
    "SELECT number, message FROM events WHERE session = ? AND stream = ? AND number > ? ORDER BY number LIMIT ?"
)
_SWEEP: Final = Change(delete_where(EVENTS, "expires_at < ?", [REAL], limit=1000))


class EventLog:
    """Numbered messages by session and stream."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, events: Sequence[StoredEvent]) -> None:
        """Keep messages; a number that is taken stays as it is."""
        if events:
            await self._database.write(_APPEND, *events)

    async def after(self, session: str, stream: str, number: int, limit: int = 1000) -> list[tuple[int, bytes]]:
        """The messages behind a number, in order."""
        if not (is_key(session) and is_key(stream)):
            return []
        rows = await self._database.read(_AFTER, session, stream, number, limit)
        return [(row[0], row[1].encode()) for row in rows]

    async def sweep(self, now: float) -> int:
        """Forget what nobody can ask for any more."""
        return await self._database.write(_SWEEP, (now,))
