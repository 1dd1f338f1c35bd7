"""Values by scope and key, as workers and skills keep them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from waypost.stores.database import Database
from waypost.stores.records import checked, decoded, encoded, fenced, is_key
from waypost.stores.statements import Change, Query, count_up, delete, insert, page, select, update
from waypost.stores.tables import REVISIONS, STATE


class Entry(NamedTuple):
    """A value under a key of a scope."""

    scope: str
    key: str
    version: int
    value: Any


_GET: Final = select(STATE, "scope = ? AND key = ?")
_PAGE: Final = page(STATE, "scope")
_SCOPES: Final = Query("SELECT DISTINCT scope FROM state WHERE scope > ? ORDER BY scope LIMIT ?")
_CREATE: Final = Change(insert(STATE, "skip"))
_CHANGE: Final = Change(update(STATE, ["version"], ["value"]))
_COUNTED: Final = (Change(_CREATE.fence, count_up(REVISIONS)), Change(_CHANGE.fence, count_up(REVISIONS)))
_REMOVE: Final = Change(delete(STATE, ["version"]))


class State:
    """All values of all scopes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, scope: str, key: str) -> Entry | None:
        """The value under a key."""
        rows = await self._database.read(_GET, scope, key) if is_key(scope) and is_key(key) else ()
        return _entry(rows[0]) if rows else None

    async def page(self, scope: str, after: str = "", limit: int = 1000) -> list[Entry]:
        """Values of a scope in the order of their keys, behind `after`."""
        rows = await self._database.read(_PAGE, scope, after, limit) if is_key(scope) else ()
        return [_entry(row) for row in rows]

    async def scopes(self, after: str = "", limit: int = 1000) -> list[str]:
        """The scopes that hold something, in order, behind `after`."""
        return [row[0] for row in await self._database.read(_SCOPES, after, limit)]

    async def put(self, scope: str, key: str, value: Any, version: int = 0, *, counted: bool = False) -> Entry:
        """Add a value (version 0) or change the one that has that version; else `StaleVersion`.

        Where that is `counted`, it also moves the revision of the scope, in the same transaction.
        """
        text = encoded(value)
        create, change = _COUNTED if counted else (_CREATE, _CHANGE)
        then = ((scope,),) if counted else ()
        if version == 0:
            write = self._database.write(create, (checked(scope), checked(key), 1, text), *then)
        else:
            write = self._database.write(change, (scope, key, version, text), *then)
        await fenced(write, f"The value {scope}/{key}")
        return Entry(scope, key, version + 1, value)

    async def remove(self, scope: str, key: str, version: int) -> None:
        """Remove the value that has that version; else `StaleVersion`."""
        await fenced(self._database.write(_REMOVE, (scope, key, version)), f"The value {scope}/{key}")


def _entry(row: Any) -> Entry:
    return Entry(row[0], row[1], row[2], decoded(row[3]))
