"""Every test of this folder runs over every adapter of the store."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, ParamSpec

import pytest

from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from waypost.stores.database import Database
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

P = ParamSpec("P")

ADAPTERS: Final = ("sqlite-file", "sqlite-memory", "postgres")
LASTING: Final = ("sqlite-file", "postgres")
DEADLINE: Final = 120.0


@dataclass(frozen=True)
class Place:
    """A location for the stores of a test."""

    adapter: str
    where: Path | str | None

    def database(self) -> Database:
        """A database at the location; in memory, each is a database of its own."""
        if isinstance(self.where, str):
            return PostgresDatabase(self.where)
        return SqliteDatabase(self.where)

    def store(self) -> Store:
        """A store at the location."""
        return Store(self.database())


def place_of(adapter: str, request: pytest.FixtureRequest) -> Place:
    """A location of a kind for one test."""
    if adapter == "postgres":
        return Place(adapter, request.getfixturevalue("postgres_url"))
    if adapter == "sqlite-file":
        return Place(adapter, request.getfixturevalue("tmp_path") / "store.db")
    return Place(adapter, None)


@pytest.fixture(params=ADAPTERS)
def place(request: pytest.FixtureRequest) -> Place:
    """A location of each kind."""
    return place_of(request.param, request)


@pytest.fixture(params=LASTING)
def lasting_place(request: pytest.FixtureRequest) -> Place:
    """A location of each kind that several stores can share."""
    return place_of(request.param, request)


@pytest.fixture(autouse=True)
def patient_health(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of the health may open the store first, which takes more than 2 s on a busy machine."""
    monkeypatch.setattr("waypost.stores.store._HEALTH_TIMEOUT_S", 60.0)


@pytest.fixture
def store(place: Place) -> Store:
    """An unused store; a test `on_store` closes it."""
    return place.store()


def asynchronous(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A plain test that runs an async function on a loop of its own, under a deadline."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(DEADLINE):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


def on_store(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """An asynchronous test that has a `store`, which is closed on the loop it was used on."""

    @functools.wraps(test)
    async def closing(*args: P.args, **kwargs: P.kwargs) -> None:
        store = kwargs["store"]
        assert isinstance(store, Store)
        try:
            await test(*args, **kwargs)
        finally:
            await store.close()

    return asynchronous(closing)


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    """A store that is closed when the block ends."""
    try:
        yield store
    finally:
        await store.close()
