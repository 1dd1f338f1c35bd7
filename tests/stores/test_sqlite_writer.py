"""Writes that wait go into few transactions, and nothing is half-written."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from tests.contract.conftest import asynchronous, opened
from tests.contract.samples import NOW, instance
from waypost.stores import sqlite
from waypost.stores.database import MAX_BATCH_WRITES, Point
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store


@pytest.fixture(params=[-1.0, 60.0], ids=["in a hurry", "at ease"])
def any_pace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements take all their rows at once, or some after the other."""
    monkeypatch.setattr(sqlite, "_STATEMENT_S", request.param)


class Points(list[Point]):
    """The points in transactions that were passed."""

    def __call__(self, point: Point) -> None:
        self.append(point)


@asynchronous
@pytest.mark.usefixtures("any_pace")
async def test_writes_that_wait_share_a_transaction(file: Path) -> None:
    points = Points()
    async with opened(Store(SqliteDatabase(file, at=points))) as store:
        await store.open()
        await asyncio.gather(*(store.skills.put(f"{n}", n) for n in range(64)))

        assert 1 <= points.count("committed") <= 2
        assert len(await store.skills.page()) == 64


@asynchronous
@pytest.mark.usefixtures("any_pace")
async def test_a_fence_that_does_not_hold_costs_one_more_transaction_at_most(file: Path) -> None:
    points = Points()
    async with opened(Store(SqliteDatabase(file, at=points))) as store:
        await store.open()
        outcomes = await asyncio.gather(*(store.jobs.add("q", f"{n % 40}", n, NOW) for n in range(64)))

        assert sum(outcomes) == 40
        assert points.count("committed") <= 2
        assert points.count("begun") <= 4


@asynchronous
@pytest.mark.usefixtures("any_pace")
async def test_more_writes_than_fit_into_one_transaction_take_several(file: Path) -> None:
    points = Points()
    async with opened(Store(SqliteDatabase(file, at=points))) as store:
        await store.open()
        some = [store.skills.put(f"{n:03}", n) for n in range(MAX_BATCH_WRITES + 88)]
        others = [store.instances.start(instance(id=f"{n:03}"), NOW, n) for n in range(300)]
        await asyncio.gather(*some, *others)

        assert 2 <= points.count("committed") <= 3
        assert [found.value for found in await store.skills.page()] == list(range(600))
        assert len(await store.instances.page(limit=1000)) == 300
        assert await store.check() == []


@asynchronous
async def test_a_transaction_that_fails_before_its_commit_leaves_nothing(file: Path) -> None:
    failing: set[Point] = set()

    def at(point: Point) -> None:
        if point in failing:
            raise apsw.Error("pulled the plug")

    async with opened(Store(SqliteDatabase(file, at=at))) as store:
        await store.open()
        for point in ("begun", "written"):
            failing.add(point)
            outcomes = await asyncio.gather(
                *(store.instances.start(instance(id=f"{n}"), NOW, n) for n in range(5)), return_exceptions=True
            )
            failing.clear()
            assert all("pulled the plug" in str(outcome) for outcome in outcomes)
            assert await store.instances.page() == []
        await store.instances.start(instance(), NOW, 1)
