"""A store engine from outside the package: registered by its URL scheme, it keeps the contract of every store."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.contract import test_documents, test_instances, test_jobs, test_sessions
from waypost.errors import StoreError
from waypost.stores import schema, urls
from waypost.stores.database import Change, Database, Query, Row
from waypost.stores.store import Store

CONTRACT: list[Callable[..., None]] = [
    test
    for module in (test_documents, test_instances, test_jobs, test_sessions)
    for name, test in vars(module).items()
    if name.startswith("test_") and list(inspect.signature(test).parameters) == ["store"]
]


class ToyDatabase:
    """An engine in one class: each write is a transaction of its own, on the event loop."""

    is_durable = False
    is_shared = False
    bus_url = "local"
    is_failing = False
    is_responding = True

    def __init__(self, url: str) -> None:
        self.name = f"The toy store {url}"
        self._connection: apsw.Connection | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def now(self) -> float:
        return time.time()

    async def open(self) -> None:
        self._connect()

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def write(self, change: Change, *rows: Row) -> int:
        fence, *others = change.statements
        try:
            with self._connect() as connection:
                before = connection.total_changes()
                connection.executemany(fence.single, rows if change.bulk else rows[:1])
                changed = connection.total_changes() - before
                for statement, row in zip(others, rows[1:], strict=True) if changed and not change.bulk else ():
                    connection.execute(statement.single, row)
        except apsw.Error as error:
            raise StoreError(f"{self.name} refused a statement: {error}.") from error
        return changed

    async def read(self, query: Query, *given: Any) -> Sequence[Row]:
        return self._connect().execute(query.sqlite, given).fetchall()

    async def schema_version(self) -> int:
        return schema.LATEST

    async def check(self) -> list[str]:
        return []

    async def vacuum(self) -> None: ...

    async def backup(self, target: Path) -> None:
        raise StoreError(f"{self.name} cannot be backed up to {target}.")

    def _connect(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = apsw.Connection(":memory:")
            self._connection.execute(schema.CREATE_MIGRATIONS)
            for migration in schema.MIGRATIONS:
                for statement in migration.statements(schema.SQLITE_TYPES):
                    self._connection.execute(statement)
        return self._connection


def create_toy(url: str, _data: Path, _timeout: float) -> Database:
    return ToyDatabase(url)


@pytest.fixture
def toy_url(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(urls, "_ENGINES", {**urls._ENGINES})
    urls.register_engine("toy", create_toy)
    return "TOY://anywhere"


@pytest.mark.parametrize("test", CONTRACT, ids=lambda test: test.__name__)
def test_an_engine_from_outside_keeps_the_contract(test: Callable[..., None], toy_url: str, tmp_path: Path) -> None:
    test(store=Store(urls.create_database(toy_url, tmp_path)))


def test_a_scheme_without_an_engine_is_refused(toy_url: str, tmp_path: Path) -> None:
    assert isinstance(urls.create_database(toy_url, tmp_path), ToyDatabase)
    with pytest.raises(StoreError, match="names no store"):
        urls.create_database("toys://anywhere", tmp_path)
