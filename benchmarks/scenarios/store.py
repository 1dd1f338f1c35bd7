"""Durable moves of workflow instances per second: Waypost's store, plain loops on the same tables, and DBOS."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import apsw
import uvloop

from benchmarks.harness import all_cores
from benchmarks.report import SUBJECT, Key, Report, Settings, Target
from benchmarks.stores.closed_loop import UNIT, Clients
from benchmarks.stores.moves import Mover
from benchmarks.stores.other_engines import DBOS, OtherEngine
from benchmarks.stores.sqlite_peers import AioSqlite, GroupLoop, RawLoop
from benchmarks.stores.waypost_store import WaypostStore
from waypost.loops import freeze_gc
from waypost.stores.sqlite import SqliteDatabase

IN_FLIGHT = (1, 16, 64)
MOST = 64
FULL, NORMAL, POSTGRES = "SQLite FULL", "SQLite NORMAL", "PostgreSQL"
GROUP, THREAD, RAW, AIOSQLITE = "group loop", "thread loop", "apsw", "aiosqlite"
ASYNCPG, STATEMENT = "asyncpg", "asyncpg CTE"
SYNC = "4 KB written and held by the disk"
PATIENCE = 30.0
SYNCS = 50


@dataclass(frozen=True)
class Contender:
    """A way to move instances, and what it moves them on."""

    name: str
    store: str
    mover: Mover


def run(settings: Settings) -> Report:
    report = Report("Durable fenced move of an instance with its row of history")
    with ExitStack() as stack:
        stack.enter_context(all_cores())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wpb-", ignore_cleanup_errors=True)))
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        report.notes.append(f"SQLite {apsw.sqlite_lib_version()}")
        contenders = _on_sqlite(scratch)
        dbos = OtherEngine(DBOS, report, quick=settings.quick)
        stack.callback(dbos.stop)
        try:
            contenders += _on_postgres(stack, scratch / "pg", report, dbos)
        except Exception as error:
            report.fail(POSTGRES, _reason(error))
        fleet = _Fleet(report, runner, contenders)
        freeze_gc()  # as a hub does when it has started; all contenders of this process gain
        stack.callback(fleet.close)
        for count in (MOST,) if settings.quick else IN_FLIGHT:
            for _ in range(settings.rounds):
                report.row("disk", SYNC, "ms").add(_sync_ms(scratch))
                fleet.measure(count, settings)
                dbos.measure(count, _case(POSTGRES, count))
    report.rows.sort(key=lambda row: (FULL, NORMAL, POSTGRES, SYNC).index(row.case.partition(",")[0]))
    report.targets = _targets()
    return report


def _on_sqlite(scratch: Path) -> list[Contender]:
    return [
        Contender(SUBJECT, FULL, WaypostStore(lambda: SqliteDatabase(scratch / "full.db"))),
        Contender(GROUP, FULL, GroupLoop(scratch / "group.db")),
        Contender(THREAD, FULL, GroupLoop(scratch / "thread.db", most=1)),
        Contender(RAW, FULL, RawLoop(scratch / "raw.db")),
        Contender(AIOSQLITE, FULL, AioSqlite(scratch / "aiosqlite.db")),
        Contender(SUBJECT, NORMAL, WaypostStore(lambda: SqliteDatabase(scratch / "n.db", synchronous="NORMAL"))),
    ]


def _on_postgres(stack: ExitStack, directory: Path, report: Report, dbos: OtherEngine) -> list[Contender]:
    """Start a server, and DBOS on it; each contender has a database of its own."""
    from benchmarks.stores.postgres_peers import PooledMoves, PooledStatements
    from benchmarks.stores.postgres_server import postgres_server
    from waypost.stores.postgres import PostgresDatabase

    server = stack.enter_context(postgres_server(directory))
    report.notes.append(server.version())
    dbos.start(server.new_database("dbos"))
    return [
        Contender(SUBJECT, POSTGRES, WaypostStore(partial(PostgresDatabase, server.new_database("waypost")))),
        Contender(ASYNCPG, POSTGRES, PooledMoves(server.new_database("asyncpg"))),
        Contender(STATEMENT, POSTGRES, PooledStatements(server.new_database("statements"))),
    ]


class _Fleet:
    """The contenders of this process, all on one loop; one that fails is reported and leaves."""

    def __init__(self, report: Report, runner: asyncio.Runner, contenders: list[Contender]) -> None:
        self._report = report
        self._runner = runner
        self._clients: dict[Contender, Clients] = {}
        for contender in contenders:
            if self._attempt(contender, partial(self._open, contender)):
                self._clients[contender] = Clients(contender.mover)

    def _open(self, contender: Contender) -> None:
        self._runner.run(contender.mover.open())

    def measure(self, count: int, settings: Settings) -> None:
        """One round: each in turn."""
        for contender, clients in list(self._clients.items()):
            if not self._attempt(contender, partial(self._measure, contender, clients, count, settings)):
                self._leave(contender)

    def close(self) -> None:
        for contender in list(self._clients):
            self._leave(contender)

    def _measure(self, contender: Contender, clients: Clients, count: int, settings: Settings) -> None:
        seen = self._runner.run(
            asyncio.wait_for(clients.drive(count, seconds=settings.seconds, warmup=settings.warmup), PATIENCE)
        )
        row = self._report.row(contender.name, _case(contender.store, count), UNIT)
        row.add(seen.rate, p50_ms=seen.p50_ms, p99_ms=seen.p99_ms)

    def _attempt(self, contender: Contender, action: Callable[[], Any]) -> bool:
        try:
            action()
        except Exception as error:
            self._report.fail(contender.name, f"{contender.store}: {_reason(error)}")
            return False
        return True

    def _leave(self, contender: Contender) -> None:
        del self._clients[contender]
        with suppress(Exception):
            self._runner.run(asyncio.wait_for(contender.mover.close(), PATIENCE))


def _case(store: str, in_flight: int) -> str:
    return f"{store}, {in_flight} in flight"


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _sync_ms(directory: Path) -> float:
    """How long this disk takes to hold a page for good: the price of a commit of its own."""
    times = []
    with (directory / "sync").open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            began = perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            times.append(perf_counter() - began)
    return median(times) * 1000


def _targets() -> list[Target]:
    sqlite, postgres = _case(FULL, MOST), _case(POSTGRES, MOST)
    on_sqlite, on_postgres, dbos = Key(SUBJECT, sqlite), Key(SUBJECT, postgres), Key(DBOS, postgres)
    return [
        Target(f"{sqlite}: over a transaction each", on_sqlite, Key(RAW, sqlite), at_least=8),
        Target(f"{sqlite}: share of a bare group commit", on_sqlite, Key(GROUP, sqlite), at_least=0.7),
        Target(f"{postgres}: over a transaction each", on_postgres, Key(ASYNCPG, postgres), at_least=5),
        Target(f"{sqlite}: over dbos", on_sqlite, dbos, at_least=100),
        Target(f"{postgres}: over dbos", on_postgres, dbos, at_least=100),
    ]
