"""SQL written once for both engines.

A `Statement` changes many rows at once: `{given}` stands for the rows it is given, which SQLite takes as a list of
values and PostgreSQL as one array a column. A `Change` is what a domain does in one step: a first statement that is the
fence, and those that follow where it held. A `Query` reads.
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
    """A table: its columns in order, the first of them its key."""

    def __init__(self, name: str, keys: int = 1, **columns: Type) -> None:
        self.name = name
        self.columns: Mapping[str, Type] = columns
        self.key = tuple(columns)[:keys]

    def types(self, columns: Sequence[str]) -> tuple[Type, ...]:
        """The types of some of its columns."""
        return tuple(self.columns[column] for column in columns)


class Statement:
    """A change of the rows of one table; a row is given as its key first, then what `text` asks for."""

    def __init__(
        self, table: Table, text: str, types: Sequence[Type], single: str | None = None, wide: str | None = None
    ) -> None:
        self.table = table
        self.text = text
        self.types = tuple(types)
        self.single = single or text
        """The same for one row, its values as `?1`, `?2`, ..."""
        self.alone = single is None
        """Whether it takes only one row at a time, and may change any number of rows."""
        self._wide = wide or text
        """The same for many rows, in the words of SQLite."""
        self.wide = cache(self._for_sqlite)

    def _for_sqlite(self, rows: int) -> str:
        """The text that takes so many rows, one parameter a value."""
        one = f"({', '.join('?' * len(self.types))})"
        return self._wide.format(given=f"(VALUES {', '.join([one] * rows)}) AS g")


class Change:
    """What happens in one step: nothing at all, or the first statement on one row and then all others, which insert."""

    def __init__(self, fence: Statement, *then: Statement, bulk: bool = False) -> None:
        self.fence = fence
        self.statements = (fence, *then)
        self.bulk = bulk
        """Whether one write is many rows of one statement, each of which may find its place taken."""
        self.keys = keys = 0 if fence.alone else len(fence.table.key)
        # One column is by far the most common key; the others tell rows of their tables apart by the table's name.
        self.key_of: Callable[[Row], Any] = itemgetter(0) if keys == 1 else lambda row: (fence.table.name, *row[:keys])

    @cached_property
    def postgres(self) -> str:
        """One text for everything, which takes any number of rows, one array a column, and gives the keys changed.

        The arrays are those of each statement in turn; those that follow get the keys of the fence's rows as well.
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
    """A question to the database, its values as `?`."""

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
    """Change columns of the row with a key where others still have a value.

    Unless told not to, the version moves on; `constants` are columns that always get the same.
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
    """Add one to the number behind a key for each time that the key is given; the first one adds the row."""
    key, number = table.columns
    into = f"INSERT INTO {table.name} ({key}, {number})"
    more = f"ON CONFLICT ({key}) DO UPDATE SET {number} = {table.name}.{number} + excluded.{number}"
    return Statement(
        table,
        # PostgreSQL changes no row twice in one statement; SQLite does, and is to tell how many rows it was given.
        f"{into} SELECT column1, count(*) FROM {{given}} WHERE true GROUP BY column1 {more}",
        table.types([key]),
        f"{into} VALUES (?1, 1) {more}",
        f"{into} SELECT column1, 1 FROM {{given}} WHERE true {more}",
    )


def delete(table: Table, where: Sequence[str] = ()) -> Statement:
    """Remove the row with a key where others still have a value."""
    known = (*table.key, *where)
    matches = " AND ".join(f"{column} = ?{place}" for place, column in enumerate(known, 1))
    return Statement(
        table,
        f"DELETE FROM {table.name} WHERE ({', '.join(known)}) IN (SELECT * FROM {{given}})",
        table.types(known),
        f"DELETE FROM {table.name} WHERE {matches}",
    )


def delete_where(table: Table, condition: str, types: Sequence[Type], limit: int = 0) -> Statement:
    """Remove all rows a condition holds for, or so many of them; the condition's values are `?`."""
    if limit:
        key = ", ".join(table.key)
        condition = f"({key}) IN (SELECT {key} FROM {table.name} WHERE {condition} LIMIT {limit})"
    return Statement(table, f"DELETE FROM {table.name} WHERE {condition}", types)


def select(table: Table, where: str, *, order: Sequence[str] = (), limit: bool = False) -> Query:
    """Read whole rows."""
    text = f"SELECT {', '.join(table.columns)} FROM {table.name} WHERE {where}"
    if order:
        text += f" ORDER BY {', '.join(order)}"
    return Query(f"{text} LIMIT ?" if limit else text)


def page(table: Table, *where: str) -> Query:
    """Read a page of rows in the order of the key behind a key; the rest of the key may be pinned by `where`."""
    rest = tuple(column for column in table.key if column not in where)
    pinned = [f"{column} = ?" for column in where]
    behind = f"({', '.join(rest)}) > ({', '.join('?' * len(rest))})"
    return select(table, " AND ".join([*pinned, behind]), order=rest, limit=True)
