"""The same moves on PostgreSQL without Waypost, on a pool of asyncpg."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from benchmarks.stores import moves
from waypost.stores.database import number_placeholders
from waypost.stores.postgres import PostgresDatabase

_CONNECTIONS: Final = 16
_MOVE: Final = number_placeholders(moves.MOVE)
_ENTER: Final = number_placeholders(moves.ENTER)
_BOTH: Final = (
    f"WITH moved AS ({_MOVE} RETURNING id, version) "
    "INSERT INTO history SELECT id, version, $6::double precision, $3 FROM moved"
)


class PooledMoves:
    """asyncpg as it is usually written: BEGIN, UPDATE, INSERT, COMMIT, four round trips for each move."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        await _fill(self._url)
        # The usual reset of a connection that goes back costs one more round trip; nothing here needs it.
        self._pool = await asyncpg.create_pool(
            self._url, min_size=_CONNECTIONS, max_size=_CONNECTIONS, reset=_leave_as_it_is
        )

    async def move(self, instance: str, version: int) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            moved = await connection.execute(_MOVE, moves.AFTER, moves.STATUS, moves.BODY, instance, version)
            if moved != "UPDATE 1":
                raise moves.Fenced(instance)
            await connection.execute(_ENTER, instance, version + 1, moves.MOVED_AT, moves.BODY)

    async def close(self) -> None:
        await self._pool.close()


class PooledStatements(PooledMoves):
    """Both as one statement, which is a transaction by itself: one round trip for each move."""

    async def move(self, instance: str, version: int) -> None:
        given = (moves.AFTER, moves.STATUS, moves.BODY, instance, version, moves.MOVED_AT)
        async with self._pool.acquire() as connection:
            if await connection.execute(_BOTH, *given) != "INSERT 0 1":
                raise moves.Fenced(instance)


async def _leave_as_it_is(_: Any) -> None:
    pass


async def _fill(url: str) -> None:
    """Waypost's own tables, and instances at version 1."""
    database = PostgresDatabase(url)
    await database.open()
    await database.close()
    connection = await asyncpg.connect(url)
    try:
        names = [moves.name_of(number) for number in range(moves.INSTANCES)]
        rest = (moves.DEFINITION, moves.PRINCIPAL, moves.BEFORE, moves.STATUS, moves.BODY)
        async with connection.transaction():
            await connection.executemany(number_placeholders(moves.START), [(name, *rest) for name in names])
            await connection.executemany(_ENTER, [(name, 1, moves.STARTED_AT, moves.BODY) for name in names])
    finally:
        await connection.close()
