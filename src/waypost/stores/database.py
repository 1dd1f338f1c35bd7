"""The port that a store engine implements: SQL, how rows hold keys and values, and group commit, which engines share.

A domain hands a `Change` and its rows to `Database.write` and awaits the result. A commit costs a disk flush or a round
trip whatever it contains, so an engine takes all writes that wait, sorts them into rounds in which no row is touched
twice, runs each statement once per round for all its rows, and commits once. Each write still has a result of its own:
how many rows it changed, or why it failed.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from hashlib import sha256
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec

from waypost.errors import Busy, StoreError, StoreUnavailable
from waypost.loops import running_loop

# A `Statement` changes many rows at once: `{given}` stands for the rows it is given, which SQLite takes as a list of
# values and PostgreSQL as one array per column. A `Change` is what a domain does in one step: a first statement, the
# fence, which usually compares a version, and further statements that run only for rows where the fence held. A `Query`
# reads.

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
        # The writer of SQLite asks for powers of two, so few texts are kept.
        self.wide = cache(self._to_wide)

    def _to_wide(self, rows: int) -> str:
        """The text for so many rows in SQLite, one parameter per value."""
        one = f"({', '.join('?' * len(self.types))})"
        return self._wide.format(given=f"(VALUES {', '.join([one] * rows)}) AS g")


class Change:
    """One atomic step: the fence on one row, and, only if it changed that row, the other statements.

    These change one row each, unless the fence stands alone.
    """

    def __init__(self, fence: Statement, *then: Statement, bulk: bool = False, general: Change | None = None) -> None:
        self.fence = fence
        self.statements = (fence, *then)
        self.general = general or self
        """The change of the same rows that does not assume that a column keeps its value; an engine may choose it."""
        self.bulk = bulk
        """Whether one write is many rows of one statement, of which those with an existing key are skipped."""
        # A statement that stands alone may change any row of its table: its key is the table, so no two share a round.
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
        # All parts of a WITH see the same snapshot, not each other's changes: only RETURNING says which fences held.
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
    """A statement that reads, with `?` for each value; a slow one reads whole tables, and may take longer."""

    def __init__(self, text: str, *, is_slow: bool = False) -> None:
        self.is_slow = is_slow
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
        # Without WHERE, SQLite takes the ON of ON CONFLICT for the condition of a join.
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
    kept: Sequence[str] = (),
) -> Statement:
    """Change columns of the row with a key, if the columns in `where` still have the given values.

    With `moves`, the version is incremented; `constants` are columns that get a fixed SQL value. Columns in `kept` are
    compared instead of changed: SQLite writes a page of each index on a column that it sets, to the same value too.
    """
    fixed = [f"{column} = {value}" for column, value in (constants or {}).items()]
    if moves:
        fixed.append(f"version = {table.name}.version + 1")
    known = (*table.key, *where)

    def text(given: str, source: str) -> str:
        values, matches = list[str](), list[str]()
        for place, column in enumerate((*known, *changes), 1):
            if place <= len(known) or column in kept:
                matches.append(f"{table.name}.{column} = {given}{place}")
            else:
                values.append(f"{column} = {given}{place}")
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
        # PostgreSQL has no DELETE with a LIMIT, and SQLite only in special builds.
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
    # A comparison of rows is one range in the index of the primary key, however many columns that has.
    behind = f"({', '.join(rest)}) > ({', '.join('?' * len(rest))})"
    return select(table, " AND ".join([*pinned, behind]), order=rest, limit=True)


DEFAULT_TIMEOUT_S: Final = 5.0
"""How long a caller waits for the database before it is refused."""
PROOF_CHARS: Final = 65_536
"""How much a database that could not be written has to take at once to count as writable again."""
MAX_QUEUED_WRITES: Final = 10_000
MAX_BATCH_WRITES: Final = 512

MAX_KEY_BYTES: Final = 512
_SHORTENED_KEY_BYTES: Final = 400

_encoder: Final = msgspec.json.Encoder()
from_json: Final[Callable[[str], Any]] = msgspec.json.Decoder().decode
"""The value of a JSON text."""


def to_json(value: Any) -> str:
    """A value as JSON text; `StoreError` when it has none."""
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(f"A value cannot be stored as JSON: {error}.") from None


def is_key(text: str) -> bool:
    """Whether a text is valid as a key; the store holds nothing under any other."""
    try:
        # PostgreSQL has no NUL in text.
        return 0 < len(text.encode()) <= MAX_KEY_BYTES and "\0" not in text
    except UnicodeEncodeError:
        return False


def check_key(key: str) -> str:
    """The key itself; `StoreError` when it is not valid."""
    if not is_key(key):
        raise StoreError(f"{key[:60]!r} cannot be a key: it takes 1 to {MAX_KEY_BYTES} bytes, none of them NUL.")
    return key


def shorten_key(key: str) -> str:
    """The key itself, or, for one that is too long, its beginning and its digest."""
    data = key.encode(errors="surrogatepass")
    if len(data) <= MAX_KEY_BYTES:
        return key
    return f"{data[:_SHORTENED_KEY_BYTES].decode(errors='ignore')}#{sha256(data).hexdigest()}"


Outcome = int | Exception
"""How many rows the first statement of a write changed, or why it failed."""


Point = Literal["begun", "written", "committed"]
"""Points in a transaction at which tests interrupt it: before its first statement, before its commit, and between the
commit and the results."""


class Database(Protocol):
    """One store engine; it opens itself on first use."""

    @property
    def name(self) -> str:
        """How error messages call it, at the start of a sentence."""

    @property
    def is_durable(self) -> bool:
        """Whether its content outlives the process."""

    @property
    def is_open(self) -> bool:
        """Whether it has been opened and not closed since."""

    @property
    def is_shared(self) -> bool:
        """Whether other hubs may write to it too."""

    @property
    def bus_url(self) -> str:
        """The URL of the bus that replicas on it use by default."""

    @property
    def is_failing(self) -> bool:
        """Whether it could not be written, although it may be readable, and has taken no large write since."""

    @property
    def is_responding(self) -> bool:
        """Whether it answers; while it does not, callers that can do without it do not wait for it."""

    def now(self) -> float:
        """The time by the clock of the database, once it is open.

        All replicas that share it go by this clock for leases, heartbeats and expiry: their own clocks may differ.
        """

    async def open(self) -> None:
        """Connect, refuse a damaged database, and bring the tables up to date."""

    async def close(self) -> None:
        """Finish waiting writes, then close all connections."""

    def write(self, change: Change, *rows: Row) -> Awaitable[int]:
        """Apply a change durably; the result is the number of rows that its first statement, the fence, changed.

        0 means that the fence did not hold and nothing was changed.
        """

    async def read(self, query: Query, *given: Any) -> Sequence[Row]:
        """The rows of a query, as of the last commit."""

    async def schema_version(self) -> int:
        """The number of the last migration that was applied, 0 without tables; nothing is created or changed."""

    async def check(self) -> list[str]:
        """Check the whole database; one sentence per problem."""

    async def vacuum(self) -> None:
        """Return the disk space of deleted rows."""

    async def backup(self, target: Path) -> None:
        """Write a consistent copy into a new SQLite file."""


class Write(msgspec.Struct, eq=False):
    """A change that waits for its transaction; the future belongs to the event loop that asked for it."""

    change: Change
    rows: tuple[Row, ...]
    future: asyncio.Future[int]
    queued_at: float
    """By the monotonic clock."""

    def resolve(self, outcome: Outcome) -> None:
        """Set the result, unless the caller was cancelled."""
        if self.future.done():
            return
        if isinstance(outcome, int):
            self.future.set_result(outcome)
        else:
            self.future.set_exception(outcome)


class WriteQueue:
    """Writes that wait for a transaction.

    The engine is woken once per iteration of an event loop, after all callbacks of that iteration have added their
    writes: that is what makes concurrent calls share one commit.
    """

    def __init__(self, wake_engine: Callable[[], None], name: str) -> None:
        self._waiting: deque[Write] = deque()
        self._wake_engine = wake_engine
        self._name = name
        self.is_failing = False
        """Whether the database could not be written, and has not taken as much as `PROOF_CHARS` at once since."""
        self._scheduled_on: asyncio.AbstractEventLoop | None = None

    def put(self, change: Change, *rows: Row) -> asyncio.Future[int]:
        """Queue a change for the next transaction; `Busy` when too many wait."""
        if len(self._waiting) >= MAX_QUEUED_WRITES:
            raise Busy(f"{MAX_QUEUED_WRITES} writes are waiting for {self._name} already; try again later.")
        loop = running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._waiting.append(Write(change, rows, future, time.monotonic()))
        if self._scheduled_on is not loop:
            self._scheduled_on = loop
            loop.call_soon(self._wake)
        return future

    def note(self, batch: Sequence[Write], outcomes: Sequence[Outcome]) -> None:
        """Learn from the outcomes of a batch whether the database can be written.

        A full disk may still have room for a small row: only a large one proves that it is not full any longer.
        """
        if any(isinstance(outcome, StoreUnavailable) for outcome in outcomes):
            self.is_failing = True
        elif self.is_failing:
            texts = (value for write in batch for row in write.rows for value in row if isinstance(value, str))
            self.is_failing = sum(map(len, texts)) < PROOF_CHARS

    def take_batch(self) -> list[Write]:
        """Remove the next writes, in order; those whose caller was cancelled are dropped."""
        taken: list[Write] = []
        waiting = self._waiting
        while waiting and len(taken) < MAX_BATCH_WRITES:
            try:
                write = waiting.popleft()
            except IndexError:  # another engine has taken it
                break
            if not write.future.done():
                taken.append(write)
        return taken

    def _wake(self) -> None:
        self._scheduled_on = None
        self._wake_engine()


def deadline_of(batch: Sequence[Write], timeout: float) -> float:
    """Until when a batch may take, by the monotonic clock.

    The time counts from when the first write was queued: one that waited behind a batch that was given up does not wait
    as long once more. A fifth is left in any case, since the database may be available again.
    """
    return max(batch[0].queued_at + timeout, time.monotonic() + timeout / 5)


Round = dict[Change, list[Write]]


def split_into_rounds(batch: Sequence[Write]) -> list[Round]:
    """The writes in as few rounds as possible, no row twice in a round and the writes of each row in their order.

    A statement for many rows reads the table once: two writes of one row in it would not see each other, and both
    fences would hold.
    """
    first: Round = defaultdict(list)
    found = [first]
    depths: dict[Any, int] = {}
    for write in batch:
        change = write.change
        # A bulk write skips rows that exist, so its order among others does not matter.
        key = write if change.bulk else change.key_of(write.rows[0])
        depth = depths.get(key, 0)
        depths[key] = depth + 1
        if depth == 0:
            first[change].append(write)
            continue
        if depth == len(found):
            found.append(defaultdict(list))
        found[depth][change].append(write)
    return found
