"""Workflow instances with their reservations, history and notes.

A transition is reserved, run and committed. A reservation is bound to a version and to a token that only its holder
knows; the commit is conditional on both, increments the version and adds one history entry. A second holder finds the
version or the token changed, and its commit changes nothing: that is what keeps a transition from being applied twice,
however many replicas run it. A transition without effect is settled: the reservation is removed, the version stays, and
a note records it.
"""

from __future__ import annotations

import secrets
import time
from typing import Any, Final

import msgspec

from waypost.errors import StaleVersion
from waypost.stores.database import Database
from waypost.stores.records import check_key, from_json, is_key, to_json
from waypost.stores.schema import HISTORY, INSTANCES, NOTES
from waypost.stores.statements import Change, Query, insert, page, select, update
from waypost.stores.tasks import ADD_REQUEST, RequestRecord


class Reservation(msgspec.Struct, frozen=True):
    """A transition that is running; `value` is what another holder needs to resume it."""

    token: str
    until: float
    value: Any = None


class InstanceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an instance; `due_at` is when maintenance has to look at it next, 0 for never."""

    id: str
    version: int
    definition: str
    principal: str
    state: str
    status: str
    due_at: float = 0.0
    value: Any = None
    reservation: Reservation | None = None


class Note(msgspec.Struct, frozen=True):
    """An event of an instance that did not change its version."""

    at: float
    value: Any


class HistoryEntry(msgspec.Struct, frozen=True):
    """The event that produced a version of an instance."""

    version: int
    at: float
    value: Any


_NO_RESERVATION: Final = {"reservation": "''", "reserved_until": "0", "reserved": "''"}
_RESERVED: Final = ["reservation", "reserved_until", "reserved"]

_ADD_ENTRY: Final = insert(HISTORY)
_MOVE: Final = update(
    INSTANCES, ["version", "reservation"], ["state", "status", "due_at", "body"], constants=_NO_RESERVATION
)
_START: Final = Change(insert(INSTANCES, "skip"), _ADD_ENTRY)
_START_ONCE: Final = Change(insert(INSTANCES, "skip"), _ADD_ENTRY, ADD_REQUEST)
_COMMIT: Final = Change(_MOVE, _ADD_ENTRY)
_COMMIT_ONCE: Final = Change(_MOVE, _ADD_ENTRY, ADD_REQUEST)
_SETTLED: Final = update(
    INSTANCES, ["version", "reservation"], ["status", "due_at", "body"], moves=False, constants=_NO_RESERVATION
)
_SETTLE: Final = Change(_SETTLED, insert(NOTES))
_SETTLE_ONCE: Final = Change(_SETTLED, insert(NOTES), ADD_REQUEST)
_RESERVE: Final = Change(update(INSTANCES, ["version", "reservation"], _RESERVED, moves=False))
_RENEW: Final = Change(update(INSTANCES, ["reservation"], ["reserved_until"], moves=False))
_RELEASE: Final = Change(update(INSTANCES, ["reservation"], [], moves=False, constants=_NO_RESERVATION))

_GET: Final = select(INSTANCES, "id = ?")
_PAGE: Final = page(INSTANCES)
_PAGE_OF_PRINCIPAL: Final = page(INSTANCES, "principal")
_PAGE_OF_DEFINITION: Final = page(INSTANCES, "definition")
_LAST: Final = "\U0010ffff"
"""Sorts after every id."""
_LATEST: Final[dict[tuple[str, ...], Query]] = {
    where: select(
        INSTANCES, " AND ".join([*(f"{column} = ?" for column in where), "id < ?"]), order=["id DESC"], limit=True
    )
    for where in ((), ("principal",), ("definition",), ("principal", "definition"))
}
_DUE: Final = select(INSTANCES, "due_at > 0 AND reservation = '' AND due_at <= ?", order=["due_at", "id"], limit=True)
_ABANDONED: Final = select(
    INSTANCES, "reserved_until > 0 AND reserved_until < ?", order=["reserved_until", "id"], limit=True
)
_RESERVATIONS: Final = select(INSTANCES, "reserved_until > 0 AND id > ?", order=["id"], limit=True)
_NOTES: Final = Query("SELECT at, body FROM notes WHERE instance = ? ORDER BY at, id LIMIT ?")
_HISTORY: Final = Query(
    "SELECT version, at, body FROM history WHERE instance = ? AND version > ? ORDER BY version LIMIT ?"
)


class Instances:
    """Instances by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(
        self, instance: InstanceRecord, at: float, entry: Any, request: RequestRecord | None = None
    ) -> None:
        """Create an instance at version 1 with its first history entry; `StaleVersion` when the id exists."""
        row = (
            check_key(instance.id),
            1,
            *("", 0.0, ""),
            check_key(instance.definition),
            check_key(instance.principal),
            instance.state,
            instance.status,
            instance.due_at,
            to_json(instance.value),
        )
        history = (instance.id, 1, at, to_json(entry))
        if request is None:
            write = self._database.write(_START, row, history)
        else:
            write = self._database.write(_START_ONCE, row, history, request.row())
        if not await write:
            raise StaleVersion(f"There is already an instance {instance.id}.")

    async def get(self, instance_id: str) -> InstanceRecord | None:
        """The instance with that id, if there is one."""
        rows = await self._database.read(_GET, instance_id) if is_key(instance_id) else ()
        return _instance(rows[0]) if rows else None

    async def reserve(self, instance_id: str, version: int, reservation: Reservation, instead_of: str = "") -> bool:
        """Reserve an instance at a version; false when it changed or is reserved.

        An abandoned reservation is taken over by giving its token as `instead_of`.
        """
        row = (instance_id, version, instead_of, reservation.token, reservation.until, to_json(reservation.value))
        return bool(await self._database.write(_RESERVE, row))

    async def renew(self, instance_id: str, token: str, until: float) -> bool:
        """Extend a reservation; false when it does not exist any longer."""
        return bool(token) and bool(await self._database.write(_RENEW, (instance_id, token, until)))

    async def release(self, instance_id: str, token: str) -> bool:
        """Remove a reservation without a transition; false when it does not exist any longer."""
        return bool(token) and bool(await self._database.write(_RELEASE, (instance_id, token)))

    async def commit(
        self, moved: InstanceRecord, at: float, entry: Any, token: str = "", request: RequestRecord | None = None
    ) -> int:
        """Write the state after a transition from `moved.version`, under the reservation `token`; the new version.

        `StaleVersion` when the instance has another version or the reservation does not exist any longer.
        """
        version = moved.version + 1
        row = (moved.id, moved.version, token, moved.state, moved.status, moved.due_at, to_json(moved.value))
        history = (moved.id, version, at, to_json(entry))
        if request is None:
            write = self._database.write(_COMMIT, row, history)
        else:
            write = self._database.write(_COMMIT_ONCE, row, history, request.row())
        if not await write:
            raise _stale(moved)
        return version

    async def settle(
        self, settled: InstanceRecord, at: float, note: Any, token: str = "", request: RequestRecord | None = None
    ) -> None:
        """End a transition without effect, under the reservation `token`; version and state stay.

        `StaleVersion` when the instance has another version or the reservation does not exist any longer.
        """
        row = (settled.id, settled.version, token, settled.status, settled.due_at, to_json(settled.value))
        noted = (settled.id, f"{time.time_ns():020d}{secrets.token_hex(4)}", at, to_json(note))
        if request is None:
            write = self._database.write(_SETTLE, row, noted)
        else:
            write = self._database.write(_SETTLE_ONCE, row, noted, request.row())
        if not await write:
            raise _stale(settled)

    async def page(
        self, after: str = "", limit: int = 100, *, principal: str | None = None, definition: str | None = None
    ) -> list[InstanceRecord]:
        """Instances sorted by id, starting after `after`; all, or those of a principal or of a definition."""
        if principal is not None:
            rows = await self._database.read(_PAGE_OF_PRINCIPAL, principal, after, limit)
        elif definition is not None:
            rows = await self._database.read(_PAGE_OF_DEFINITION, definition, after, limit)
        else:
            rows = await self._database.read(_PAGE, after, limit)
        return [_instance(row) for row in rows]

    async def latest(
        self, before: str = "", limit: int = 100, *, principal: str | None = None, definition: str | None = None
    ) -> list[InstanceRecord]:
        """Instances sorted by id in descending order, the newest first, starting before `before`."""
        given = {"principal": principal, "definition": definition}
        where = {column: value for column, value in given.items() if value is not None}
        if not all(map(is_key, where.values())):
            return []
        rows = await self._database.read(_LATEST[tuple(where)], *where.values(), before or _LAST, limit)
        return [_instance(row) for row in rows]

    async def history(self, instance_id: str, after: int = 0, limit: int = 1000) -> list[HistoryEntry]:
        """The history of an instance after a version, in order."""
        rows = await self._database.read(_HISTORY, instance_id, after, limit) if is_key(instance_id) else ()
        return [HistoryEntry(row[0], row[1], from_json(row[2])) for row in rows]

    async def notes(self, instance_id: str, limit: int = 1000) -> list[Note]:
        """The notes of an instance, in order."""
        rows = await self._database.read(_NOTES, instance_id, limit) if is_key(instance_id) else ()
        return [Note(row[0], from_json(row[1])) for row in rows]

    async def reserved(self, after: str = "", limit: int = 100) -> list[InstanceRecord]:
        """Instances with a reservation, sorted by id."""
        return [_instance(row) for row in await self._database.read(_RESERVATIONS, after, limit)]

    async def due(self, now: float, limit: int = 100) -> list[InstanceRecord]:
        """Instances without a reservation that are due, the longest due first."""
        return [_instance(row) for row in await self._database.read(_DUE, now, limit)]

    async def abandoned(self, now: float, limit: int = 100) -> list[InstanceRecord]:
        """Instances whose reservation has expired, the longest expired first."""
        return [_instance(row) for row in await self._database.read(_ABANDONED, now, limit)]


def _stale(instance: InstanceRecord) -> StaleVersion:
    return StaleVersion(
        f"Instance {instance.id} is not at version {instance.version} any more, or is reserved by another transition."
    )


def _instance(row: Any) -> InstanceRecord:
    return InstanceRecord(
        id=row[0],
        version=row[1],
        reservation=Reservation(row[2], row[3], from_json(row[4])) if row[2] else None,
        definition=row[5],
        principal=row[6],
        state=row[7],
        status=row[8],
        due_at=row[9],
        value=from_json(row[10]),
    )
