"""The same moves on SQLite without Waypost; every file is opened as Waypost opens its own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

import apsw

from benchmarks.stores import moves
from waypost.stores import sqlite

_BUSY: Final = 5.0
_MOST: Final = 512
_Waiting = tuple[str, int, asyncio.Future[None]]


def _connect(path: Path) -> apsw.Connection:
    return sqlite.connect(path, busy=_BUSY, synchronous="FULL")


class RawLoop:
    """apsw on the loop itself, one transaction for each move: no thread, no queue, nothing in between."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self) -> None:
        moves.fill(self._path, moves.INSTANCES)
        self._connection = _connect(self._path)

    async def move(self, instance: str, version: int) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        moves.run_move(self._connection, instance, version)
        self._connection.execute("COMMIT")
        await asyncio.sleep(0)  # so that the clients take turns

    async def close(self) -> None:
        self._connection.close()


class GroupLoop:
    """The plainest group commit: a thread runs all moves that wait in one transaction, statement by statement.

    With `most` at 1, it is a thread that gives each move a transaction of its own.
    """

    def __init__(self, path: Path, most: int = _MOST) -> None:
        self._path = path
        self._most = most
        self._waiting: SimpleQueue[_Waiting | None] = SimpleQueue()

    async def open(self) -> None:
        moves.fill(self._path, moves.INSTANCES)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def move(self, instance: str, version: int) -> None:
        done = self._loop.create_future()
        self._waiting.put((instance, version, done))
        await done

    async def close(self) -> None:
        self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        connection = _connect(self._path)
        while (first := self._waiting.get()) is not None:
            batch = [first]
            with suppress(Empty):
                while len(batch) < self._most and (another := self._waiting.get_nowait()) is not None:
                    batch.append(another)
            try:
                connection.execute("BEGIN IMMEDIATE")
                for instance, version, _ in batch:
                    moves.run_move(connection, instance, version)
                connection.execute("COMMIT")
            except Exception as error:
                self._loop.call_soon_threadsafe(_refuse, batch, error)
                break
            self._loop.call_soon_threadsafe(_settle, batch)
        connection.close()


def _settle(batch: list[_Waiting]) -> None:
    for _, _, done in batch:
        if not done.done():
            done.set_result(None)


def _refuse(batch: list[_Waiting], error: Exception) -> None:
    for _, _, done in batch:
        if not done.done():
            done.set_exception(error)


class AioSqlite:
    """aiosqlite, one transaction for each move, on the SQLite of the standard library."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        import aiosqlite

        moves.fill(self._path, moves.INSTANCES)
        self._connection = await aiosqlite.connect(self._path, timeout=_BUSY, isolation_level=None)
        await self._connection.execute("PRAGMA synchronous = FULL")
        await self._connection.execute(f"PRAGMA wal_autocheckpoint = {sqlite.CHECKPOINT_PAGES}")

    async def move(self, instance: str, version: int) -> None:
        connection = self._connection
        async with self._turn:
            await connection.execute("BEGIN IMMEDIATE")
            moved = await connection.execute(moves.MOVE, (moves.AFTER, moves.STATUS, moves.BODY, instance, version))
            if moved.rowcount != 1:
                raise moves.Fenced(instance)
            await connection.execute(moves.ENTER, (instance, version + 1, moves.MOVED_AT, moves.BODY))
            await connection.execute("COMMIT")

    async def close(self) -> None:
        await self._connection.close()
