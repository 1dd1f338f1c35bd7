"""Records: JSON values with a version, as documents by id and as state by scope and key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from waypost.errors import StaleVersion
from waypost.stores.database import (
    Change,
    Database,
    Query,
    Table,
    check_key,
    count_up,
    delete,
    from_json,
    insert,
    is_key,
    page,
    select,
    to_json,
    update,
)
from waypost.stores.schema import REVISIONS, STATE


async def check_fence(write: Awaitable[int], what: str) -> None:
    """Wait for a write that is conditional on a version; `StaleVersion` when the condition did not hold.

    This is the store's optimistic lock: the version in the `WHERE` clause is compared and the row written in one
    statement, so of several writers that read the same version exactly one succeeds, on whichever replica it runs.
    """
    if not await write:
        raise StaleVersion(f"{what} was changed since it was read; read it again.")


class Document(NamedTuple):
    """A JSON value with its version."""

    id: str
    version: int
    value: Any


class Documents:
    """All documents of one kind; every change also increments the revision of the kind, in the same transaction.

    `changed` is called with the kind and the id after each commit.
    """

    def __init__(self, database: Database, table: Table, changed: Callable[[str, str], None]) -> None:
        self._database = database
        self._changed = changed
        self._noun = table.name.removesuffix("s")
        self._kind = (table.name,)
        self._get = select(table, "id = ?")
        self._page = page(table)
        counted = count_up(REVISIONS)
        self._create = Change(insert(table, "skip"), counted)
        self._change = Change(update(table, ["version"], ["body"]), counted)
        self._remove = Change(delete(table, ["version"]), counted)

    async def get(self, document_id: str) -> Document | None:
        """The document with that id, if there is one."""
        rows = await self._database.read(self._get, document_id) if is_key(document_id) else ()
        return _document(rows[0]) if rows else None

    async def page(self, after: str = "", limit: int = 1000) -> list[Document]:
        """Documents sorted by id, starting after `after`."""
        return [_document(row) for row in await self._database.read(self._page, after, limit)]

    async def put(self, document_id: str, value: Any, version: int = 0) -> Document:
        """Create a document (version 0) or replace the given version; `StaleVersion` when it is not the current one."""
        body = to_json(value)
        if version == 0:
            write = self._database.write(self._create, (check_key(document_id), 1, body), self._kind)
        else:
            write = self._database.write(self._change, (document_id, version, body), self._kind)
        await check_fence(write, f"The {self._noun} {document_id}")
        self._changed(self._kind[0], document_id)
        return Document(document_id, version + 1, value)

    async def remove(self, document_id: str, version: int) -> None:
        """Delete the given version of a document; `StaleVersion` when that is not the current one."""
        write = self._database.write(self._remove, (document_id, version), self._kind)
        await check_fence(write, f"The {self._noun} {document_id}")
        self._changed(self._kind[0], document_id)


def _document(row: Any) -> Document:
    return Document(row[0], row[1], from_json(row[2]))


class Entry(NamedTuple):
    """A JSON value under a key of a scope, with its version."""

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
    """JSON values by scope and key; `changed` is called with both after each commit of a counted one."""

    def __init__(self, database: Database, changed: Callable[[str, str], None]) -> None:
        self._database = database
        self._changed = changed

    async def get(self, scope: str, key: str) -> Entry | None:
        """The value under a key, if there is one."""
        rows = await self._database.read(_GET, scope, key) if is_key(scope) and is_key(key) else ()
        return _entry(rows[0]) if rows else None

    async def page(self, scope: str, after: str = "", limit: int = 1000) -> list[Entry]:
        """Values of a scope sorted by key, starting after `after`."""
        rows = await self._database.read(_PAGE, scope, after, limit) if is_key(scope) else ()
        return [_entry(row) for row in rows]

    async def scopes(self, after: str = "", limit: int = 1000) -> list[str]:
        """The scopes with at least one value, sorted, starting after `after`."""
        return [row[0] for row in await self._database.read(_SCOPES, after, limit)]

    async def put(self, scope: str, key: str, value: Any, version: int = 0, *, counted: bool = False) -> Entry:
        """Create a value (version 0) or replace the given version; `StaleVersion` when that is not the current one.

        With `counted`, the revision of the scope is incremented in the same transaction.
        """
        text = to_json(value)
        create, change = _COUNTED if counted else (_CREATE, _CHANGE)
        then = ((scope,),) if counted else ()
        if version == 0:
            write = self._database.write(create, (check_key(scope), check_key(key), 1, text), *then)
        else:
            write = self._database.write(change, (scope, key, version, text), *then)
        await check_fence(write, f"The value {scope}/{key}")
        if counted:
            self._changed(scope, key)
        return Entry(scope, key, version + 1, value)

    async def remove(self, scope: str, key: str, version: int) -> None:
        """Delete the given version of a value; `StaleVersion` when that is not the current one."""
        await check_fence(self._database.write(_REMOVE, (scope, key, version)), f"The value {scope}/{key}")


def _entry(row: Any) -> Entry:
    return Entry(row[0], row[1], row[2], from_json(row[3]))
