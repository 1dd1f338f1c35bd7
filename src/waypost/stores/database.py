"""The port both engines implement, and how writes that wait become one transaction.

Whoever changes something hands a `Change` and its rows to `Database.write` and waits. An engine takes all writes that
wait, sorts them into rounds in which no row is touched twice, runs each statement once a round for all its rows, and
commits once. What comes of each write is its own: how many rows it changed, or why it failed.
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
"""Places in a transaction: before its first statement, before its commit, after it and before anybody is told."""


class Database(Protocol):
    """One engine: it opens by itself when it is first used."""

    @property
    def name(self) -> str:
        """What sentences about it begin with."""

    @property
    def is_durable(self) -> bool:
        """Whether what is written outlives the process."""

    @property
    def is_open(self) -> bool:
        """Whether it was used and not closed since."""

    @property
    def is_shared(self) -> bool:
        """Whether other hubs are expected to write to it too."""

    async def open(self) -> None:
        """Make sure it can be used: reachable, sound, its tables up to date."""

    async def close(self) -> None:
        """Finish what waits, then let everything go."""

    def write(self, change: Change, *rows: Row) -> Awaitable[int]:
        """Change something durably; how many rows changed: 0 when the fence did not hold and nothing did."""

    async def read(self, query: Query, *given: Any) -> Sequence[Row]:
        """Rows as they were last committed."""

    async def schema_version(self) -> int:
        """How far its tables are, without changing them; 0 when there are none."""

    async def check(self) -> list[str]:
        """What is wrong with it, one sentence each, after looking at everything."""

    async def vacuum(self) -> None:
        """Give back the room of what was deleted."""

    async def backup(self, target: Path) -> None:
        """Write all of it, as it is at one moment, into a new SQLite file."""


class Write:
    """A change that waits for its transaction."""

    __slots__ = ("change", "future", "loop", "rows")

    def __init__(self, change: Change, rows: tuple[Row, ...], loop: asyncio.AbstractEventLoop) -> None:
        self.change = change
        self.rows = rows
        self.loop = loop
        self.future: asyncio.Future[int] = loop.create_future()

    def settle(self, outcome: Outcome) -> None:
        """Tell whoever waits, unless they have gone."""
        if self.future.done():
            return
        if isinstance(outcome, int):
            self.future.set_result(outcome)
        else:
            self.future.set_exception(outcome)


class WriteQueue:
    """Where writes wait for their turn; what is asked for in one turn of a loop is handed over together."""

    def __init__(self, hand_over: Callable[[], None], where: str) -> None:
        self._waiting: deque[Write] = deque()
        self._hand_over = hand_over
        self._where = where
        self._called_on: asyncio.AbstractEventLoop | None = None

    def join(self, change: Change, rows: tuple[Row, ...]) -> asyncio.Future[int]:
        """Stand in line; `Busy` when it is too long."""
        if len(self._waiting) >= MAX_QUEUED_WRITES:
            raise Busy(f"{MAX_QUEUED_WRITES} writes are waiting for {self._where} already; try again later.")
        loop = running_loop()
        write = Write(change, rows, loop)
        self._waiting.append(write)
        if self._called_on is not loop:
            self._called_on = loop
            loop.call_soon(self._call)
        return write.future

    def take(self) -> list[Write]:
        """The next to be served, in order; those who left are not."""
        taken: list[Write] = []
        with suppress(IndexError):
            while len(taken) < MAX_BATCH_WRITES:
                write = self._waiting.popleft()
                if not write.future.done():
                    taken.append(write)
        return taken

    def _call(self) -> None:
        self._called_on = None
        self._hand_over()


Round = dict[Change, list[Write]]


def split_into_rounds(batch: Sequence[Write]) -> list[Round]:
    """The writes in as few rounds as possible: no row twice in one, and each row's writes in their order."""
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
