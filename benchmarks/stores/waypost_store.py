"""Waypost's own store, on whichever database it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from benchmarks.stores import moves
from waypost.stores.database import Database
from waypost.stores.instances import InstanceRecord
from waypost.stores.store import Store

_TOGETHER: Final = 500


class WaypostStore:
    """Moves through `Store`; it starts its instances by itself, so it can be given an empty database only."""

    def __init__(self, database: Callable[[], Database]) -> None:
        self._database = database

    async def open(self) -> None:
        self._store = Store(self._database())
        await self._store.open()
        for start in range(0, moves.INSTANCES, _TOGETHER):
            numbers = range(start, min(start + _TOGETHER, moves.INSTANCES))
            await asyncio.gather(*(self._start(moves.name_of(number)) for number in numbers))

    async def _start(self, name: str) -> None:
        instance = InstanceRecord(
            id=name,
            version=1,
            definition=moves.DEFINITION,
            principal=moves.PRINCIPAL,
            state=moves.BEFORE,
            status=moves.STATUS,
            value=moves.VALUE,
        )
        await self._store.instances.start(instance, moves.STARTED_AT, moves.VALUE)

    async def move(self, instance: str, version: int) -> None:
        await moves.commit(self._store, instance, version)

    async def close(self) -> None:
        await self._store.close()
