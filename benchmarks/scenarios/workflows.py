"""Durable submits of a transition that runs nothing: the engine beside its store, DBOS and Temporal; long histories."""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import uvloop

from benchmarks.harness import all_cores
from benchmarks.report import SUBJECT, Key, Report, Settings, Target
from benchmarks.stores.closed_loop import UNIT, Clients
from benchmarks.stores.engine_moves import EngineMoves
from benchmarks.stores.moves import Mover, name_of
from benchmarks.stores.other_engines import DBOS, TEMPORAL, TEMPORAL_VENV, OtherEngine
from benchmarks.stores.waypost_store import WaypostStore
from waypost.loops import freeze_gc
from waypost.stores.sqlite import SqliteDatabase

IN_FLIGHT = 64
OWN_STORE = "its store"
SUBMIT, POSTGRES = f"SQLite FULL, {IN_FLIGHT} in flight", f"PostgreSQL, {IN_FLIGHT} in flight"
UPDATE = f"update, development server on SQLite, {IN_FLIGHT} in flight"
SHORT, LONG = 10, 10_000
BLOCKS, QUICK_BLOCKS, GETS = 40, 10, 50
"""How often each of two instances is read in its turn: short, so that other work on the machine hits both."""
SHARE, OVER_DBOS, SLOWER = 0.5, 100, 1.2
PATIENCE = 30.0


def run(settings: Settings) -> Report:
    report = Report("Durable submit of a workflow's transition, and what its history costs")
    with ExitStack() as stack:
        stack.enter_context(all_cores())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wpb-", ignore_cleanup_errors=True)))
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        dbos, temporal = (OtherEngine(name, report, quick=settings.quick) for name in (DBOS, TEMPORAL))
        for engine in (dbos, temporal):
            stack.callback(engine.stop)
        _start_dbos(stack, scratch / "pg", report, dbos)
        _start_temporal(scratch, report, temporal)
        try:
            runner.run(_measure(report, scratch, settings, {POSTGRES: dbos, UPDATE: temporal}))
        except Exception as error:
            report.fail(SUBJECT, f"{type(error).__name__}: {error}")
    report.targets = _targets()
    return report


def _start_dbos(stack: ExitStack, directory: Path, report: Report, dbos: OtherEngine) -> None:
    try:
        from benchmarks.stores.postgres_server import postgres_server

        dbos.start(stack.enter_context(postgres_server(directory)).new_database("dbos"))
    except Exception as error:
        report.fail(DBOS, f"{type(error).__name__}: {error}")


def _start_temporal(scratch: Path, report: Report, temporal: OtherEngine) -> None:
    if TEMPORAL_VENV in os.environ:
        temporal.start(str(scratch), str(Path(os.environ[TEMPORAL_VENV]) / "bin" / "python"))
    else:
        report.notes.append(f"{TEMPORAL} is measured where {TEMPORAL_VENV} names a virtual environment that has it")


async def _measure(report: Report, scratch: Path, settings: Settings, others: dict[str, OtherEngine]) -> None:
    engine = EngineMoves(scratch / "engine.db")
    store = WaypostStore(lambda: SqliteDatabase(scratch / "store.db"))
    movers: dict[str, Mover] = {SUBJECT: engine, OWN_STORE: store}
    for mover in movers.values():
        await mover.open()
    try:
        clients = {name: Clients(mover) for name, mover in movers.items()}
        freeze_gc()  # as a hub does when it has started; both gain
        for _ in range(settings.rounds):
            for name, some in clients.items():
                await asyncio.wait_for(_drive(report, name, some, settings), PATIENCE)
            for case, other in others.items():
                other.measure(IN_FLIGHT, case)
        await _read(report, engine, settings)
    finally:
        for mover in movers.values():
            await mover.close()


async def _drive(report: Report, name: str, clients: Clients, settings: Settings) -> None:
    moved, used = clients.moved, process_time()
    seen = await clients.drive(IN_FLIGHT, seconds=settings.seconds, warmup=settings.warmup)
    per_cpu_second = (clients.moved - moved) / (process_time() - used)
    row = report.row(name, SUBMIT, UNIT)
    row.add(seen.rate, p50_ms=seen.p50_ms, p99_ms=seen.p99_ms, per_cpu_second=per_cpu_second)


async def _read(report: Report, engine: EngineMoves, settings: Settings) -> None:
    """Look at an instance with a short and at one with a long history, in turn."""
    names = {rows: name_of(1_000_000 + rows) for rows in (SHORT, LONG)}
    for rows, name in names.items():
        await engine.age(name, rows)
        if (await engine.get(name))["version"] != rows:
            raise LookupError(name)
    for _ in range(settings.rounds):
        taken: dict[int, list[float]] = {rows: [] for rows in names}
        for _ in range(QUICK_BLOCKS if settings.quick else BLOCKS):
            for rows, name in names.items():
                taken[rows] += [await _timed(engine, name) for _ in range(GETS)]
        for rows, seconds in taken.items():
            report.row(SUBJECT, _case(rows), "ms").add(median(seconds) * 1000)


async def _timed(engine: EngineMoves, name: str) -> float:
    began = perf_counter()
    await engine.get(name)
    return perf_counter() - began


def _case(rows: int) -> str:
    return f"get with {rows:,} rows of history"


def _targets() -> list[Target]:
    submits = Key(SUBJECT, SUBMIT)
    return [
        Target(f"{SUBMIT}: share of its store", submits, Key(OWN_STORE, SUBMIT), at_least=SHARE),
        Target(f"{SUBMIT}: over dbos", submits, Key(DBOS, POSTGRES), at_least=OVER_DBOS),
        Target(
            f"p50 of get: {LONG:,} rows against {SHORT:,}",
            Key(SUBJECT, _case(LONG)),
            Key(SUBJECT, _case(SHORT)),
            at_most=SLOWER,
        ),
    ]
