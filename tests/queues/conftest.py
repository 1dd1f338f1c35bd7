"""Every test of the contract runs over every kind of store."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, ParamSpec, Protocol

import pytest

from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from waypost.queues import LEASE, MAX_ATTEMPTS, StoreQueue
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

P = ParamSpec("P")

ADAPTERS: Final = ("memory", "file", "postgres")
SHARED: Final = ("file", "postgres")
DEADLINE: Final = 120.0


class OpenQueue(Protocol):
    """Opens a queue by its name."""

    def __call__(self, name: str = ..., *, lease: float = ..., max_attempts: int = ...) -> StoreQueue: ...


@dataclass(frozen=True)
class Place:
    """A store that holds queues; each `opened` stands for another process."""

    adapter: str
    where: Path | str | None

    def store(self) -> Store:
        """A connection to the store; in memory, each is a store of its own."""
        if isinstance(self.where, str):
            return Store(PostgresDatabase(self.where))
        return Store(SqliteDatabase(self.where))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenQueue]:
        """A function that opens queues in the store, until the block ends."""
        store = self.store()

        def queue(name: str = "jobs", *, lease: float = LEASE, max_attempts: int = MAX_ATTEMPTS) -> StoreQueue:
            return StoreQueue(store, name, lease=lease, max_attempts=max_attempts)

        try:
            yield queue
        finally:
            await store.close()


def _place(adapter: str, request: pytest.FixtureRequest) -> Place:
    if adapter == "postgres":
        return Place(adapter, request.getfixturevalue("postgres_url"))
    if adapter == "file":
        return Place(adapter, request.getfixturevalue("tmp_path") / "store.db")
    return Place(adapter, None)


@pytest.fixture(params=ADAPTERS)
def place(request: pytest.FixtureRequest) -> Place:
    """A store of each kind."""
    return _place(request.param, request)


@pytest.fixture(params=SHARED)
def shared_place(request: pytest.FixtureRequest) -> Place:
    """A store of each kind that several processes can open."""
    return _place(request.param, request)


def asynchronous(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A plain test that runs an async function on a loop of its own, under a deadline."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(DEADLINE):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run
