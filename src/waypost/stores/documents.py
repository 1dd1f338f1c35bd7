"""Named documents with a version: markdown skills, prompts, executable skills, definitions, keys, policies.

Every change of a document also moves the revision of its kind, in the same transaction.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from waypost.stores.database import Database
from waypost.stores.records import checked, decoded, encoded, fenced, is_key
from waypost.stores.statements import Change, Table, count_up, delete, insert, page, select, update
from waypost.stores.tables import REVISIONS


class Document(NamedTuple):
    """A value under a name."""

    id: str
    version: int
    value: Any


class Documents:
    """All documents of one kind."""

    def __init__(self, database: Database, table: Table) -> None:
        self._database = database
        self._noun = table.name.removesuffix("s")
        self._kind = (table.name,)
        self._get = select(table, "id = ?")
        self._page = page(table)
        counted = count_up(REVISIONS)
        self._create = Change(insert(table, "skip"), counted)
        self._change = Change(update(table, ["version"], ["body"]), counted)
        self._remove = Change(delete(table, ["version"]), counted)

    async def get(self, document_id: str) -> Document | None:
        """The document with that id."""
        rows = await self._database.read(self._get, document_id) if is_key(document_id) else ()
        return _document(rows[0]) if rows else None

    async def page(self, after: str = "", limit: int = 1000) -> list[Document]:
        """Documents in the order of their ids, behind `after`."""
        return [_document(row) for row in await self._database.read(self._page, after, limit)]

    async def put(self, document_id: str, value: Any, version: int = 0) -> Document:
        """Add a document (version 0) or change the one that has that version; else `StaleVersion`."""
        body = encoded(value)
        if version == 0:
            write = self._database.write(self._create, (checked(document_id), 1, body), self._kind)
        else:
            write = self._database.write(self._change, (document_id, version, body), self._kind)
        await fenced(write, f"The {self._noun} {document_id}")
        return Document(document_id, version + 1, value)

    async def remove(self, document_id: str, version: int) -> None:
        """Remove the document that has that version; else `StaleVersion`."""
        write = self._database.write(self._remove, (document_id, version), self._kind)
        await fenced(write, f"The {self._noun} {document_id}")


def _document(row: Any) -> Document:
    return Document(row[0], row[1], decoded(row[2]))
