"""The same moves through the engine of workflows: a submit of a transition that runs nothing."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import apsw

from benchmarks.stores import moves
from waypost import Hub
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import FROM_OUTSIDE, Principal
from waypost.config.models import State, Transition, Workflow
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.workflows.executors.noop import Noop

GO: Final = "go"
_TOGETHER: Final = 500
_CALLER: Final = DetachedCaller(Principal(moves.PRINCIPAL), FROM_OUTSIDE)


def _state(target: str) -> State:
    return State(transitions={GO: Transition(target=target, executor=Noop())})


MODEL: Final = Workflow(
    initial_state=moves.BEFORE,
    initial_context=moves.VALUE,
    states={moves.BEFORE: _state(moves.AFTER), moves.AFTER: _state(moves.BEFORE)},
)


class EngineMoves:
    """A hub on a new file, with as many instances as every contender has."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self) -> None:
        self._hub = Hub("bench", version="1.0.0", store=Store(SqliteDatabase(self._path)))
        self._hub.workflow(moves.DEFINITION, MODEL)
        await self._hub.store.open()
        await self._hub.start()
        self._engine = self._hub.workflows.engine
        for start in range(0, moves.INSTANCES, _TOGETHER):
            numbers = range(start, min(start + _TOGETHER, moves.INSTANCES))
            await asyncio.gather(*(self.start(moves.name_of(number)) for number in numbers))

    async def start(self, name: str) -> None:
        """Have one instance more, at version 1."""
        await self._engine.begin(moves.DEFINITION, {}, _CALLER, workflow_id=name)

    async def move(self, instance: str, version: int) -> None:
        answer = await self._engine.submit(instance, version, GO, {}, _CALLER)
        if answer.refused:
            raise moves.Fenced(instance)

    async def get(self, instance: str) -> dict[str, Any]:
        """How an instance stands."""
        answer = await self._engine.get(instance, _CALLER)
        if answer.refused:
            raise LookupError(instance)
        return answer.data

    async def age(self, name: str, version: int) -> None:
        """Have an instance that has come to a version, with a row of history for each."""
        await self.start(name)
        await asyncio.to_thread(self._write_history, name, version)

    def _write_history(self, name: str, version: int) -> None:
        with closing(apsw.Connection(str(self._path))) as connection:
            connection.execute("BEGIN IMMEDIATE")
            rows = ((name, number, moves.MOVED_AT, moves.BODY) for number in range(2, version + 1))
            connection.executemany(moves.ENTER, rows)
            connection.execute("UPDATE instances SET version = ? WHERE id = ?", (version, name))
            connection.execute("COMMIT")

    async def close(self) -> None:
        await self._hub.stop()
