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
from functools import cache
from typing import Any, Final

import msgspec

from waypost.errors import StaleVersion
from waypost.stores.database import (
    INTEGER,
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
    page,
    select,
    to_json,
    update,
)
from waypost.stores.schema import HISTORY, INSTANCES, NOTES, REQUESTS
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


class InstanceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which instances to read; every condition that is given has to hold."""

    principal: str | None = None
    definition: str | None = None
    state: str | None = None
    status: str | None = None
    """The status of the record, of instances without a reservation."""
    pending: str | None = None
    """The `kind` in the value of the reservation, which has to be its first field."""
    since: str = ""
    """The least id."""
    text: str = ""
    """A part of the id or of the value as JSON; capital and small ASCII letters are the same."""
    everything: bool = True
    """Without it, single calls through the gateway are left out unless a move is pending, or they are asked for."""


class Note(msgspec.Struct, frozen=True):
    """An event of an instance that did not change its version."""

    at: float
    value: Any


class HistoryEntry(msgspec.Struct, frozen=True):
    """The event that produced a version of an instance."""

    version: int
    at: float
    value: Any


PROXY: Final = "proxy_default"
"""The definition of single calls through the gateway, whose instances are removed when they are idle or over."""
PROXY_RETENTION_S: Final = 86_400.0
"""How long after their start they are removed; they time out after as long."""

_NO_RESERVATION: Final = {"reservation": "''", "reserved_until": "0", "reserved": "''"}
_RESERVED: Final = ["reservation", "reserved_until", "reserved"]

_ADD_ENTRY: Final = insert(HISTORY)
# The fence of a move is the version and the token: a commit raises the version, but a process that takes over an
# abandoned move keeps it and only replaces the token.
_FENCE: Final = ["version", "reservation"]
_MOVED: Final = ["state", "status", "due_at", "body"]
_START: Final = Change(insert(INSTANCES, "skip"), _ADD_ENTRY)
_START_ONCE: Final = Change(insert(INSTANCES, "skip"), _ADD_ENTRY, ADD_REQUEST)


def _commits(*kept: str) -> tuple[Change, Change]:
    """The change of a commit without a request and with one; columns that keep their value are not written."""
    move = update(INSTANCES, _FENCE, _MOVED, constants=_NO_RESERVATION, kept=kept)
    whole = (None, None) if not kept else _COMMITS[False, False]
    return (
        Change(move, _ADD_ENTRY, general=whole[0]),
        Change(move, _ADD_ENTRY, ADD_REQUEST, general=whole[1]),
    )


_COMMITS: Final = {(False, False): _commits()}
"""By whether the state and the status stay the same."""
_COMMITS[True, False] = _commits("state")
_COMMITS[False, True] = _commits("status")
_COMMITS[True, True] = _commits("state", "status")
_SETTLED: Final = update(INSTANCES, _FENCE, ["status", "due_at", "body"], moves=False, constants=_NO_RESERVATION)
_SETTLE: Final = Change(_SETTLED, insert(NOTES))
_SETTLE_ONCE: Final = Change(_SETTLED, insert(NOTES), ADD_REQUEST)
_RESERVE: Final = Change(update(INSTANCES, _FENCE, _RESERVED, moves=False))
# The token of a reservation is unique, and the version cannot change while it is held: the token alone is the fence.
_RENEW: Final = Change(update(INSTANCES, ["reservation"], ["reserved_until"], moves=False))
_RELEASE: Final = Change(update(INSTANCES, ["reservation"], [], moves=False, constants=_NO_RESERVATION))
_REMOVE_NEW: Final = Change(delete(INSTANCES, _FENCE), delete(HISTORY))
_REMOVE: Final = Change(
    delete_where(INSTANCES, "id = ? AND version = ? AND reservation = ''", [TEXT, INTEGER]),
    delete_where(HISTORY, "instance = ?", [TEXT]),
    delete_where(NOTES, "instance = ?", [TEXT]),
    # The answers to requests of an instance are recorded under its id.
    delete_where(REQUESTS, "scope = ?", [TEXT]),
)

_GET: Final = select(INSTANCES, "id = ?")
_PAGE: Final = page(INSTANCES)
_PAGE_OF_PRINCIPAL: Final = page(INSTANCES, "principal")
_PAGE_OF_DEFINITION: Final = page(INSTANCES, "definition")
_PENDING_PROXIES: Final = f"(definition <> '{PROXY}' OR reservation <> '')"
_HAS_TEXT: Final = "(lower(body) LIKE ? ESCAPE '\\' OR id LIKE ? ESCAPE '\\')"
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
"""Only ASCII, which is what all engines agree on."""
_LAST: Final = "\U0010ffff"
"""Sorts after every id."""
_PENDING_PREFIX: Final = '{"kind":"'
_PENDING_CHARACTERS: Final = 13
"""As in the index `instances_by_pending`."""
MAX_SEARCHED: Final = 5_000
"""The largest number of instances that one search for a text reads."""
_COUNT: Final = Query("SELECT state, count(*) FROM instances WHERE definition = ? GROUP BY state")
_IDLE: Final = Query("SELECT id, version FROM instances WHERE definition = ? AND reservation = '' AND id < ? LIMIT ?")
_SWEPT_AT_ONCE: Final = 500
# Reserved instances are left out: a running move is decided before a timeout; `_ABANDONED` finds one that never is.
_DUE: Final = select(INSTANCES, "due_at > 0 AND reservation = '' AND due_at <= ?", order=["due_at", "id"], limit=True)
_ABANDONED: Final = select(
    INSTANCES, "reserved_until > 0 AND reserved_until < ?", order=["reserved_until", "id"], limit=True
)
_RESERVATIONS: Final = select(INSTANCES, "reserved_until > 0 AND id > ?", order=["id"], limit=True)
_NOTES: Final = Query("SELECT at, body FROM notes WHERE instance = ? ORDER BY at, id LIMIT ?")
_LATEST_NOTES: Final = Query(
    "SELECT at, body FROM notes WHERE instance = ? AND at >= ? AND at < ? ORDER BY id DESC LIMIT ?"
)
_LATEST_HISTORY: Final = Query(
    "SELECT version, at, body FROM history WHERE instance = ? AND version < ? ORDER BY version DESC LIMIT ?"
)
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
        """Create an instance at version 1 with its first history entry, reserved if its record is.

        `StaleVersion` when the id exists.
        """
        reserved = instance.reservation
        row = (
            check_key(instance.id),
            1,
            *(("", 0.0, "") if reserved is None else (reserved.token, reserved.until, to_json(reserved.value))),
            check_key(instance.definition),
            check_key(instance.principal),
            instance.state,
            instance.status,
            instance.due_at,
            to_json(instance.value),
        )
        history = (instance.id, 1, at, to_json(entry))
        requests = () if request is None else (request.row(),)
        if not await self._database.write(_START_ONCE if requests else _START, row, history, *requests):
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
        # An empty token would match every instance that is not reserved.
        return bool(token) and bool(await self._database.write(_RENEW, (instance_id, token, until)))

    async def release(self, instance_id: str, token: str) -> bool:
        """Remove a reservation without a transition; false when it does not exist any longer."""
        return bool(token) and bool(await self._database.write(_RELEASE, (instance_id, token)))

    async def commit(
        self,
        moved: InstanceRecord,
        at: float,
        entry: Any,
        token: str = "",
        request: RequestRecord | None = None,
        before: tuple[str, str] | tuple[None, None] = (None, None),
    ) -> int:
        """Write the state after a transition from `moved.version`, under the reservation `token`; the new version.

        `before` is the state and the status at that version, so that a store can leave alone what stays the same.
        `StaleVersion` when the instance has another version or the reservation does not exist any longer.
        """
        version = moved.version + 1
        row = (moved.id, moved.version, token, moved.state, moved.status, moved.due_at, to_json(moved.value))
        history = (moved.id, version, at, to_json(entry))
        kept = _COMMITS[moved.state == before[0], moved.status == before[1]][request is not None]
        rows = (row, history) if request is None else (row, history, request.row())
        changed = await self._database.write(kept, *rows)
        if not changed and kept.general is not kept:
            # The caller had another state or status in mind than the stored ones, as one that resumes a chain has.
            changed = await self._database.write(kept.general, *rows)
        if not changed:
            raise _stale(moved)
        return version

    async def settle(
        self, settled: InstanceRecord, at: float, note: Any, token: str = "", request: RequestRecord | None = None
    ) -> None:
        """End a transition without effect, under the reservation `token`; version and state stay.

        `StaleVersion` when the instance has another version or the reservation does not exist any longer.
        """
        row = (settled.id, settled.version, token, settled.status, settled.due_at, to_json(settled.value))
        # The id sorts by time as text; the random end keeps two notes of one moment apart.
        noted = (settled.id, f"{time.time_ns():020d}{secrets.token_hex(4)}", at, to_json(note))
        requests = () if request is None else (request.row(),)
        if not await self._database.write(_SETTLE_ONCE if requests else _SETTLE, row, noted, *requests):
            raise _stale(settled)

    async def remove_new(self, instance_id: str, token: str) -> None:
        """Remove an instance that is still at version 1, under the reservation `token`.

        `StaleVersion` when it has another version or the reservation does not exist any longer.
        """
        if not await self._database.write(_REMOVE_NEW, (instance_id, 1, token), (instance_id, 1)):
            raise StaleVersion(f"Instance {instance_id} was moved by another process meanwhile.")

    async def sweep(self, before: float) -> int:
        """Remove instances of single calls that were started before a time and have no pending move; returns how many.

        Ids begin with the time of their start. The version is compared again when one is removed, so an instance that
        is moved at the same moment stays.
        """
        rows = await self._database.read(_IDLE, PROXY, f"wf_{max(0, int(before * 1000)):012x}", _SWEPT_AT_ONCE)
        # All are queued before the first is awaited, so that they share one commit.
        removed = [self._database.write(_REMOVE, tuple(row), *[(row[0],)] * 3) for row in rows]
        return sum([await one for one in removed])

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
        self, before: str = "", limit: int = 100, found_by: InstanceFilter | None = None
    ) -> list[InstanceRecord]:
        """Instances sorted by id in descending order, the newest first, starting before `before`."""
        conditions = _conditions(found_by or InstanceFilter())
        if conditions is None:
            return []
        columns, values = conditions
        rows = await self._database.read(_select_latest(columns), *values, before or _LAST, limit)
        return [_instance(row) for row in rows]

    async def search_end(self, before: str, found_by: InstanceFilter) -> str:
        """The last id that a search for a text may read, starting before `before`; empty where it may read all."""
        conditions = _conditions(msgspec.structs.replace(found_by, text=""))
        if conditions is None:
            return ""
        columns, values = conditions
        rows = await self._database.read(_find_search_end(columns), *values, before or _LAST)
        return str(rows[0][0]) if rows else ""

    async def count_by_state(self, definition: str) -> dict[str, int]:
        """How many instances of a definition are in each state."""
        rows = await self._database.read(_COUNT, definition) if is_key(definition) else ()
        return {row[0]: row[1] for row in rows}

    async def latest_history(self, instance_id: str, before: int, limit: int) -> list[HistoryEntry]:
        """The history of an instance before a version, the newest first."""
        rows = await self._database.read(_LATEST_HISTORY, instance_id, before, limit) if is_key(instance_id) else ()
        return [HistoryEntry(row[0], row[1], from_json(row[2])) for row in rows]

    async def latest_notes(self, instance_id: str, since: float, before: float, limit: int) -> list[Note]:
        """The notes of an instance between two times, the newest first."""
        rows = await self._database.read(_LATEST_NOTES, instance_id, since, before, limit)
        return [Note(row[0], from_json(row[1])) for row in rows]

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


def _conditions(found_by: InstanceFilter) -> tuple[tuple[str, ...], list[Any]] | None:
    """The conditions of a filter in SQL, and their values; None where no instance can meet them."""
    given: dict[str, Any] = {
        "principal = ?": found_by.principal,
        "definition = ?": found_by.definition,
        "state = ?": found_by.state,
        "status = ? AND reserved_until = 0": found_by.status,
    }
    if found_by.pending is not None:
        start = f"{_PENDING_PREFIX}{found_by.pending}"[:_PENDING_CHARACTERS]
        given[f"reserved_until > 0 AND substr(reserved, 1, {_PENDING_CHARACTERS}) = ?"] = start
    given |= {"id >= ?": found_by.since or None}
    where = {condition: value for condition, value in given.items() if value is not None}
    if not all(map(is_key, where.values())):
        return None
    values = list(where.values())
    columns = tuple(where)
    if not found_by.everything and found_by.definition is None:
        columns = (_PENDING_PROXIES, *columns)
    if found_by.text:
        # Bodies are JSON, so the text is searched as JSON writes it; characters with a meaning for LIKE are escaped.
        written = to_json(found_by.text)[1:-1].translate(_LOWER)
        part = "".join(f"\\{one}" if one in "\\%_" else one for one in written)
        columns, values = (*columns, _HAS_TEXT), [*values, f"%{part}%", f"%{part}%"]
    return columns, values


@cache
def _select_latest(columns: tuple[str, ...]) -> Query:
    return select(INSTANCES, " AND ".join([*columns, "id < ?"]), order=["id DESC"], limit=True)


@cache
def _find_search_end(columns: tuple[str, ...]) -> Query:
    where = " AND ".join([*columns, "id < ?"])
    last = f"ORDER BY id DESC LIMIT 1 OFFSET {MAX_SEARCHED - 1}"
    return Query(f"SELECT id FROM instances WHERE {where} {last}")  # noqa: S608  conditions of this module


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
