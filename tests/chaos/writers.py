"""Processes that load a store until they are killed, and what each acknowledged before it died.

They are forked from one clean process that has everything imported, so that hundreds can die in a test.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

from tests.chaos.load import Acknowledgement, Load
from waypost.errors import StoreUnavailable
from waypost.stores import postgres as postgres  # imported once, for all forked processes
from waypost.stores import sqlite as sqlite
from waypost.stores.database import Database, Point
from waypost.stores.store import Store

ENDING: Final = 60.0

_context: Final = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.chaos.writers"])


@dataclass(frozen=True)
class Orders:
    """A writer's task: put load on the store at `where`, perhaps tidy it meanwhile, perhaps die at a point."""

    where: Path | str
    name: str
    tidy: bool = False
    die_at: tuple[Point, int] | None = None
    die_at_statement: int = 0


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _nth(number: int) -> Callable[[], None]:
    left = number

    def passed() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            _die()

    return passed


def _database(orders: Orders) -> Database:
    place, passed = ("", _die) if orders.die_at is None else (orders.die_at[0], _nth(orders.die_at[1]))

    def at(point: Point) -> None:
        if point == place:
            passed()

    if isinstance(orders.where, str):
        return postgres.PostgresDatabase(orders.where, at=at)
    return sqlite.SqliteDatabase(orders.where, at=at)


def _die_at_statement(number: int) -> None:
    """Die when a thread of the store is about to run the n-th statement of this process."""
    passed = _nth(number)

    def profile(_frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ == "execute":
            passed()

    threading.setprofile(profile)


def _write(orders: Orders, pipe: Connection) -> None:
    if orders.die_at_statement:
        _die_at_statement(orders.die_at_statement)
    store = Store(_database(orders))
    load = Load(store, orders.name, lambda acknowledged: pipe.send_bytes(msgspec.json.encode(acknowledged)))
    asyncio.run(_all(store, load, orders.tidy))


async def _all(store: Store, load: Load, tidy: bool) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        if tidy:
            group.create_task(_tidy(store))


async def _tidy(store: Store) -> None:
    while True:
        try:
            await store.vacuum()
        except StoreUnavailable:  # the load was in its way for too long
            continue


_decoder: Final = msgspec.json.Decoder(Acknowledgement)


class Writer:
    """A running writer process, and the writes it acknowledged so far."""

    def __init__(self, orders: Orders) -> None:
        self.acknowledged: list[Acknowledgement] = []
        self._pipe, theirs = _context.Pipe(duplex=False)
        self._process = _context.Process(target=_write, args=(orders, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def listen(self, much: int) -> bool:
        """Read so many acknowledgements; false if it died before."""
        for _ in range(much):
            try:
                self.acknowledged.append(_decoder.decode(self._pipe.recv_bytes()))
            except (EOFError, OSError):  # dead, perhaps in the middle of a word
                return False
        return True

    def kill(self) -> None:
        """Kill it, and read its last acknowledgements."""
        self._process.kill()
        self.end()

    def end(self) -> None:
        """Read all acknowledgements until it is dead, and check that it was killed and did not fail."""
        while self.listen(1000):
            pass
        self._process.join(ENDING)
        assert self._process.exitcode == -signal.SIGKILL, f"it ended by itself: {self._process.exitcode}"

    def clear_away(self) -> None:
        """Kill the process and release everything it used."""
        self._process.kill()
        self._process.join(ENDING)
        self._process.close()
        self._pipe.close()


@contextmanager
def writing(orders: Orders) -> Iterator[Writer]:
    """A writer that is gone when the block ends."""
    writer = Writer(orders)
    try:
        yield writer
    finally:
        writer.clear_away()
