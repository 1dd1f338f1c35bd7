"""Keeps the secrets of the configuration out of rows that hold what tools answered."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from typing import Any, Final

from waypost.redaction import hide
from waypost.stores.database import TEXT, Change, Database, Statement, Table, from_json, page, to_json
from waypost.stores.schema import EVENTS, HISTORY, INSTANCES, NOTES, REQUESTS, SESSIONS, TASKS

_COLUMNS: Final = (
    (SESSIONS, "body"),
    (TASKS, "body"),
    (EVENTS, "message"),
    (INSTANCES, "body"),
    (INSTANCES, "reserved"),
    (HISTORY, "body"),
    (NOTES, "body"),
    (REQUESTS, "answer"),
)
"""What earlier versions may have stored secrets in. The audit is not there: its entries cannot be changed."""
_PAGE_ROWS: Final = 200


class StoredSecrets:
    """The secrets of the configuration, and the forms in which they stand in JSON text."""

    def __init__(self) -> None:
        self._values: tuple[str, ...] = ()
        self._forms: frozenset[str] = frozenset()

    def set(self, values: Iterable[str]) -> None:
        """Hide these values from now on."""
        self._values = tuple(values)
        # Other programs escape what is not ASCII, this one does not: a secret may be spelled either way.
        once = {form for value in self._values for form in (to_json(value)[1:-1], json.dumps(value)[1:-1])}
        # A result that is kept is JSON text in a string of JSON.
        self._forms = frozenset({*once, *(to_json(form)[1:-1] for form in once)})

    def are_in(self, text: str) -> bool:
        """Whether a JSON text has a secret."""
        return any(form in text for form in self._forms)

    def hide(self, value: Any, *, in_names: bool = True) -> Any:
        """A JSON value without secrets, in JSON texts inside of it too."""
        # The longest first, so that a secret which contains another is hidden as a whole.
        return hide(value, sorted({*self._values, *self._forms}, key=len, reverse=True), in_names=in_names)

    def digest(self, key: bytes) -> str:
        """Names this set of secrets for the holder of a key, and says nothing about them to others."""
        return hmac.digest(key, "\0".join(self._values).encode(), "sha256").hex()

    async def remove_from(self, database: Database) -> int:
        """Hide the secrets in all rows that earlier versions wrote; returns how many rows were changed."""
        return sum([await self._remove_from(database, *column) for column in _COLUMNS]) if self._values else 0

    async def _remove_from(self, database: Database, table: Table, column: str) -> int:
        keys, place = len(table.key), tuple(table.columns).index(column)
        condition = " AND ".join(f"{name} = ?" for name in (*table.key, column))
        types = [TEXT, *table.types(table.key), TEXT]
        # The old text is the fence: what changed meanwhile was written by this version.
        change = Change(Statement(table, f"UPDATE {table.name} SET {column} = ? WHERE {condition}", types))  # noqa: S608
        rows_after = page(table)
        after: tuple[Any, ...] = tuple(0 if table.columns[name] != TEXT else "" for name in table.key)
        changed = 0
        while rows := await database.read(rows_after, *after, _PAGE_ROWS):
            for row in rows:
                value = from_json(row[place]) if self.are_in(row[place]) else None
                hidden = self.hide(value, in_names=False)
                if hidden != value:
                    changed += await database.write(change, (to_json(hidden), *row[:keys], row[place]))
            after = tuple(rows[-1][:keys])
        return changed
