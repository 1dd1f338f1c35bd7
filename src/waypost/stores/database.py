"""The port that a store engine implements, and group commit, which the engines share.

A domain hands a `Change` and its rows to `Database.write` and awaits the result. A commit costs a disk flush or a round
trip whatever it contains, so an engine takes all writes that wait, sorts them into rounds in which no row is touched
twice, runs each statement once per round for all its rows, and commits once. Each write still has a result of its own:
how many rows it changed, or why it failed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from waypost.errors import Busy
from waypost.loops import running_loop
from waypost.stores.statements import Change, Query, Row

MAX_QUEUED_WRITES: Final = 10_000
MAX_BATCH_WRITES: Final = 512

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


class Write:
    """A change that waits for its transaction, on the event loop that asked for it."""

    __slots__ = ("change", "future", "loop", "rows")

    def __init__(self, change: Change, rows: tuple[Row, ...], loop: asyncio.AbstractEventLoop) -> None:
        self.change = change
        self.rows = rows
        self.loop = loop
        self.future: asyncio.Future[int] = loop.create_future()

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
        self._scheduled_on: asyncio.AbstractEventLoop | None = None

    def put(self, change: Change, rows: tuple[Row, ...]) -> asyncio.Future[int]:
        """Add a write; `Busy` when too many wait."""
        if len(self._waiting) >= MAX_QUEUED_WRITES:
            raise Busy(f"{MAX_QUEUED_WRITES} writes are waiting for {self._name} already; try again later.")
        loop = running_loop()
        write = Write(change, rows, loop)
        self._waiting.append(write)
        if self._scheduled_on is not loop:
            self._scheduled_on = loop
            loop.call_soon(self._wake)
        return write.future

    def take_batch(self) -> list[Write]:
        """Remove the next writes, in order; those whose caller was cancelled are dropped."""
        taken: list[Write] = []
        with suppress(IndexError):
            while len(taken) < MAX_BATCH_WRITES:
                write = self._waiting.popleft()
                if not write.future.done():
                    taken.append(write)
        return taken

    def _wake(self) -> None:
        self._scheduled_on = None
        self._wake_engine()


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
