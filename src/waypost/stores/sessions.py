"""Sessions and the events of their streams, so that a client can resume either on any replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from waypost.stores.database import (
    INTEGER,
    REAL,
    TEXT,
    Change,
    Database,
    Query,
    check_key,
    delete,
    delete_where,
    from_json,
    insert,
    is_key,
    select,
    to_json,
    update,
)
from waypost.stores.records import check_fence
from waypost.stores.schema import EVENTS, SESSIONS
from waypost.stores.secrets import StoredSecrets

SESSION_TTL_S: Final = 7 * 24 * 3600.0
"""How long a session is kept after it was last saved."""


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to restore a session; `revision` is 0 until it is saved."""

    id: str
    version: str
    principal: str
    client_info: dict[str, Any]
    client_capabilities: dict[str, Any]
    log_level: int
    assigns: dict[str, Any]
    subscriptions: list[str]
    revision: int = 0


_GET: Final = select(SESSIONS, "id = ?")
_REVISION: Final = Query("SELECT version FROM sessions WHERE id = ?")
_CREATE: Final = Change(insert(SESSIONS, "skip"))
_SAVE: Final = Change(update(SESSIONS, ["version"], ["expires_at", "body"]))
_DELETE: Final = Change(delete(SESSIONS))
_DELETE_EVENTS: Final = Change(delete_where(EVENTS, "session = ?", [TEXT]))
_SWEEP: Final = Change(delete_where(SESSIONS, "expires_at < ?", [REAL], limit=1000))

_decoder: Final = msgspec.json.Decoder(SessionRecord)


class SessionStore:
    """Sessions by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, session_id: str) -> SessionRecord | None:
        """The session with that id, if there is one."""
        rows = await self._database.read(_GET, session_id) if is_key(session_id) else ()
        if not rows:
            return None
        _, revision, _, _, body = rows[0]
        return msgspec.structs.replace(_decoder.decode(body), revision=revision)

    async def revision(self, session_id: str) -> int:
        """How often a session was saved; 0 when there is none with that id."""
        rows = await self._database.read(_REVISION, session_id)
        return int(rows[0][0]) if rows else 0

    async def save(self, record: SessionRecord) -> SessionRecord:
        """Save a session; `StaleVersion` when it was saved since this record was read."""
        body, expires_at = to_json(record), self._database.now() + SESSION_TTL_S
        if record.revision == 0:
            write = self._database.write(_CREATE, (check_key(record.id), 1, record.principal, expires_at, body))
        else:
            write = self._database.write(_SAVE, (record.id, record.revision, expires_at, body))
        await check_fence(write, "The session")
        return msgspec.structs.replace(record, revision=record.revision + 1)

    async def delete(self, session_id: str) -> None:
        """Delete a session and the events of its streams."""
        # Two changes: in one, a session that is gone already would be the fence that keeps its events.
        await self._database.write(_DELETE, (session_id,))
        await self._database.write(_DELETE_EVENTS, (session_id,))

    async def sweep(self, now: float) -> int:
        """Delete some expired sessions; returns how many."""
        return await self._database.write(_SWEEP, (now,))


class StoredEvent(NamedTuple):
    """One message of a stream."""

    session: str
    stream: str
    number: int
    expires_at: float
    message: str


_SAID: Final = ("params", "result", "error")
"""The members of a message that tools fill in."""
_APPEND_EVENTS: Final = Change(insert(EVENTS, "skip"), bulk=True)
_EVENTS_AFTER: Final = Query(
    "SELECT number, message FROM events WHERE session = ? AND stream = ? AND number > ? ORDER BY number LIMIT ?"
)
_DELETE_STREAM: Final = Change(
    delete_where(EVENTS, "session = ? AND stream = ? AND number <= ?", [TEXT, TEXT, INTEGER])
)
_SWEEP_EVENTS: Final = Change(delete_where(EVENTS, "expires_at < ?", [REAL], limit=1000))


class EventLog:
    """Numbered messages by session and stream, which a client may request again after `Last-Event-ID`."""

    def __init__(self, database: Database, secrets: StoredSecrets) -> None:
        self._database = database
        self._secrets = secrets

    async def append(self, events: Sequence[StoredEvent]) -> None:
        """Add messages, without secrets; one whose number exists is skipped, so that a retry is harmless."""
        if events:
            await self._database.write(_APPEND_EVENTS, *map(self._hide, events))

    def _hide(self, event: StoredEvent) -> StoredEvent:
        if not self._secrets.are_in(event.message):
            return event
        message = from_json(event.message)
        parts = message if isinstance(message, list) else [message]  # a batch
        for part in parts:
            # The id stays as it is, or the client could not match the response.
            part.update({name: self._secrets.hide(part[name]) for name in _SAID if name in part})
        return event._replace(message=to_json(message))

    async def after(self, session: str, stream: str, number: int, limit: int = 1000) -> list[tuple[int, bytes]]:
        """The messages after a number, in order."""
        if not (is_key(session) and is_key(stream)):
            return []
        rows = await self._database.read(_EVENTS_AFTER, session, stream, number, limit)
        return [(row[0], row[1].encode()) for row in rows]

    async def delete(self, session: str, stream: str, number: int) -> None:
        """Delete the messages of a stream up to a number."""
        await self._database.write(_DELETE_STREAM, (session, stream, number))

    async def sweep(self, now: float) -> int:
        """Delete some expired messages; returns how many."""
        return await self._database.write(_SWEEP_EVENTS, (now,))
