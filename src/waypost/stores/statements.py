"""SQL written once for all engines.

A `Statement` changes many rows at once: `{given}` stands for the rows it is given, which SQLite takes as a list of
values and PostgreSQL as one array per column. A `Change` is what a domain does in one step: a first statement, the
fence, which usually compares a version, and further statements that run only for rows where the fence held. A `Query`
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import count
from operator import itemgetter
from typing import Any, Final, Literal

Type = Literal["text", "bigint", "double precision"]
Row = Sequence[Any]
OnConflict = Literal["fail", "skip", "replace"]

TEXT: Final = "text"
INTEGER: Final = "bigint"
REAL: Final = "double precision"


class Table:
    """A table: its columns in order; the first `keys` of them are the primary key."""

    def __init__(self, name: str, keys: int = 1, **columns: Type) -> None:
        self.name = name
        self.columns: Mapping[str, Type] = columns
        self.key = tuple(columns)[:keys]

    def types(self, columns: Sequence[str]) -> tuple[Type, ...]:
        """The types of some of its columns."""
        return tuple(self.columns[column] for column in columns)


class Statement:
    """A change of rows of one table; a given row starts with the key, followed by the other values of `text`."""

    def __init__(
        self, table: Table, text: str, types: Sequence[Type], single: str | None = None, wide: str | None = None
    ) -> None:
        self.table = table
        self.text = text
        self.types = tuple(types)
        self.single = single or text
        """The same for one row, its values as `?1`, `?2`, ..."""
        self.alone = single is None
        """Whether it takes one row of parameters at a time, and may change any number of rows."""
        self._wide = wide or text
        """The same for many rows, for SQLite."""
        self.wide = cache(self._to_wide)

    def _to_wide(self, rows: int) -> str:
        """The text for so many rows in SQLite, one parameter per value."""
        one = f"({', '.join('?' * len(self.types))})"
        return self._wide.format(given=f"(VALUES {', '.join([one] * rows)}) AS g")


class Change:
    """One atomic step: the fence on one row, and, only if it changed that row, the other statements, which insert."""

    def __init__(self, fence: Statement, *then: Statement, bulk: bool = False) -> None:
        self.fence = fence
        self.statements = (fence, *then)
        self.bulk = bulk
        """Whether one write is many rows of one statement, of which those with an existing key are skipped."""
        self.keys = keys = 0 if fence.alone else len(fence.table.key)
        # Most keys are one column: `itemgetter` returns it without building a tuple. Others carry the table's name, so
        # that equal keys of two tables do not look like one row.
        self.key_of: Callable[[Row], Any] = itemgetter(0) if keys == 1 else lambda row: (fence.table.name, *row[:keys])

    @cached_property
    def postgres(self) -> str:
        """One text for all statements and any number of rows, one array per column; it returns the keys that changed.

        PostgreSQL runs it as one statement, so a whole round costs one round trip. The arrays are those of each
        statement in turn; those after the fence are followed by the keys of the fence's rows, by which the rows
        whose fence did not hold are left out.
        """
        if self.fence.alone:
            return number_placeholders(self.fence.text)
        table, types = self.fence.table, self.fence.types
        number = count(1)
        key = ", ".join(f"{table.name}.{column}" for column in table.key)
        fence = f"{self.fence.text.format(given=_unnest(types, number))} RETURNING {key}"
        if len(self.statements) == 1:
            return fence
        parts = [f"fence AS ({fence})"]
        for place, statement in enumerate(self.statements[1:], 1):
            own, width = [*statement.types, *types[: self.keys]], len(statement.types)
            columns = ", ".join(f"column{n}" for n in range(1, width + 1))
            keys = ", ".join(f"column{n}" for n in range(width + 1, len(own) + 1))
            given = f"(SELECT {columns} FROM {_unnest(own, number)} WHERE ({keys}) IN (SELECT * FROM fence)) AS g"
            parts.append(f"then{place} AS ({statement.text.format(given=given)})")
        return f"WITH {', '.join(parts)} SELECT * FROM fence"


def _unnest(types: Sequence[Type], number: Iterator[int]) -> str:
    arrays = ", ".join(f"${next(number)}::{type_}[]" for type_ in types)
    names = ", ".join(f"column{place}" for place in range(1, len(types) + 1))
    return f"unnest({arrays}) AS g({names})"


class Query:
    """A statement that reads, with `?` for each value."""

    def __init__(self, text: str) -> None:
        self.sqlite = text
        self.postgres = number_placeholders(text)


def number_placeholders(text: str) -> str:
    """The text with `$1`, `$2`, ... for each `?`."""
    parts, number = text.split("?"), count(1)
    return parts[0] + "".join(f"${next(number)}{part}" for part in parts[1:])


def insert(table: Table, on_conflict: OnConflict = "fail") -> Statement:
    """Add whole rows; where the key is taken, fail, skip the row or replace it."""
    columns = tuple(table.columns)
    into = f"INSERT INTO {table.name} ({', '.join(columns)})"
    otherwise = ""
    if on_conflict == "skip":
        otherwise = " ON CONFLICT DO NOTHING"
    elif on_conflict == "replace":
        values = ", ".join(f"{column} = excluded.{column}" for column in columns[len(table.key) :])
        otherwise = f" ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {values}"
    given = ", ".join(f"?{place}" for place in range(1, len(columns) + 1))
    return Statement(
        table,
        f"{into} SELECT * FROM {{given}} WHERE true{otherwise}",
        table.types(columns),
        f"{into} VALUES ({given}){otherwise}",
    )


def update(
    table: Table,
    where: Sequence[str],
    changes: Sequence[str],
    *,
    moves: bool = True,
    constants: Mapping[str, str] | None = None,
) -> Statement:
    """Change columns of the row with a key, if the columns in `where` still have the given values.

    With `moves`, the version is incremented; `constants` are columns that get a fixed SQL value.
    """
    fixed = [f"{column} = {value}" for column, value in (constants or {}).items()]
    if moves:
        fixed.append(f"version = {table.name}.version + 1")
    known = (*table.key, *where)

    def text(given: str, source: str) -> str:
        values = [f"{column} = {given}{place}" for place, column in enumerate(changes, len(known) + 1)]
        matches = [f"{table.name}.{column} = {given}{place}" for place, column in enumerate(known, 1)]
        return f"UPDATE {table.name} SET {', '.join(fixed + values)}{source} WHERE {' AND '.join(matches)}"

    return Statement(table, text("g.column", " FROM {given}"), table.types((*known, *changes)), text("?", ""))


def count_up(table: Table) -> Statement:
    """Add one to the number under a key for each time the key is given; the first time inserts the row."""
    key, number = table.columns
    into = f"INSERT INTO {table.name} ({key}, {number})"
    more = f"ON CONFLICT ({key}) DO UPDATE SET {number} = {table.name}.{number} + excluded.{number}"
    return Statement(
        table,
        # PostgreSQL refuses to update a row twice in one statement, so it groups. SQLite must not group: its writer
        # compares the row count with the number of rows given.
        f"{into} SELECT column1, count(*) FROM {{given}} WHERE true GROUP BY column1 {more}",
        table.types([key]),
        f"{into} VALUES (?1, 1) {more}",
        f"{into} SELECT column1, 1 FROM {{given}} WHERE true {more}",
    )


def delete(table: Table, where: Sequence[str] = ()) -> Statement:
    """Delete the row with a key, if the columns in `where` still have the given values."""
    known = (*table.key, *where)
    matches = " AND ".join(f"{column} = ?{place}" for place, column in enumerate(known, 1))
    return Statement(
        table,
        f"DELETE FROM {table.name} WHERE ({', '.join(known)}) IN (SELECT * FROM {{given}})",
        table.types(known),
        f"DELETE FROM {table.name} WHERE {matches}",
    )


def delete_where(table: Table, condition: str, types: Sequence[Type], limit: int = 0) -> Statement:
    """Delete all rows that meet a condition, or up to `limit` of them; the condition's values are `?`."""
    if limit:
        key = ", ".join(table.key)
        condition = f"({key}) IN (SELECT {key} FROM {table.name} WHERE {condition} LIMIT {limit})"
    return Statement(table, f"DELETE FROM {table.name} WHERE {condition}", types)


def select(table: Table, where: str, *, order: Sequence[str] = (), limit: bool = False) -> Query:
    """Read whole rows that meet a condition."""
    text = f"SELECT {', '.join(table.columns)} FROM {table.name} WHERE {where}"
    if order:
        text += f" ORDER BY {', '.join(order)}"
    return Query(f"{text} LIMIT ?" if limit else text)


def page(table: Table, *where: str) -> Query:
    """Read a page of rows sorted by key, starting after a key; columns in `where` are given instead of sorted by."""
    rest = tuple(column for column in table.key if column not in where)
    pinned = [f"{column} = ?" for column in where]
    behind = f"({', '.join(rest)}) > ({', '.join('?' * len(rest))})"
    return select(table, " AND ".join([*pinned, behind]), order=rest, limit=True)
