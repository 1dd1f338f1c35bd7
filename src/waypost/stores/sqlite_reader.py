"""The threads that read, each on a connection of its own unless the database is in memory."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from queue import SimpleQueue
from typing import Any, Final

from waypost.errors import Busy, StoreError
from waypost.loops import running_loop
from waypost.stores import sqlite_files
from waypost.stores.statements import Row

_THREADS: Final = 2
_MOST_WAITING: Final = 10_000

_Question = tuple[str, Sequence[Any], asyncio.Future[list[Row]]]


class Readers:
    """Answers questions in threads; with a `turn`, one at a time and only while nobody writes."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        name: str,
        turn: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._connect = connect
        self._name = name
        self._owned = turn is None
        self._turn = turn or nullcontext()
        self._questions: SimpleQueue[_Question | None] = SimpleQueue()
        count = _THREADS if self._owned else 1
        self._threads = [
            threading.Thread(target=self._run, name=f"waypost-store-reader-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def read(self, text: str, given: Sequence[Any]) -> asyncio.Future[list[Row]]:
        """Ask; the answer comes to the loop this is called on."""
        if self._questions.qsize() >= _MOST_WAITING:
            raise Busy(f"{_MOST_WAITING} reads are waiting for {self._name} already; try again later.")
        future: asyncio.Future[list[Row]] = running_loop().create_future()
        self._questions.put((text, given, future))
        return future

    def stop(self) -> None:
        """Answer what was asked and end."""
        for _ in self._threads:
            self._questions.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        while (question := self._questions.get()) is not None:
            text, given, future = question
            try:
                connection = connection or self._connect()
                with self._turn:
                    answer: list[Row] | Exception = connection.execute(text, given).fetchall()
            except sqlite3.DatabaseError as error:
                answer = sqlite_files.explained(error, self._name)
            except Exception as error:
                answer = StoreError(f"{self._name} cannot be asked that: {error}.")
            with suppress(RuntimeError):  # the loop is over, and nobody waits
                future.get_loop().call_soon_threadsafe(_settle, future, answer)
        if connection is not None and self._owned:
            connection.close()


def _settle(future: asyncio.Future[list[Row]], answer: list[Row] | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
