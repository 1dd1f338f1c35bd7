"""Does the store slow down as it fills? One read and one durable move at a time, in a small and in a large file."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec

from benchmarks.harness import StartFailed, all_cores
from benchmarks.report import SUBJECT, Key, Report, Settings, Target
from benchmarks.stores.child import Child
from benchmarks.stores.moves import fill

FEW, MANY, QUICK_MANY = 1_000, 1_000_000, 50_000
BYTES_EACH = 2_000
"""Room on the disk for an instance with its indexes and history, with plenty to spare."""
BLOCKS, QUICK_BLOCKS = 25, 8
READS, COMMITS = 400, 200
"""What one store does before it is the other's turn: short, so that other work on the machine hits both."""
MODULE = "benchmarks.contenders.grown_store"
GET, SUBMIT, START, MEMORY = "get", "submit", "process start until it is open", "memory"
GROWTH = "memory, larger file against smaller"
SLOWER, HEAVIER = 1.3, 64
"""The page caches of one that writes and two that read hold 16 MB each."""


class _Block(msgspec.Struct):
    """What one process saw in its turn, in seconds and MB."""

    get: list[float]
    submit: list[float]
    rss_mb: float


def run(settings: Settings) -> Report:
    many = QUICK_MANY if settings.quick else MANY
    report = Report(f"The store at {FEW:,} and at {many:,} instances, SQLite FULL, one at a time")
    with ExitStack() as stack:
        stack.enter_context(all_cores())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wpb-", ignore_cleanup_errors=True)))
        free = shutil.disk_usage(scratch).free
        if free < many * BYTES_EACH:
            report.notes.append(
                f"skipped: {free >> 20:,} MB are free in {scratch.parent}, too few for {many:,} instances"
            )
            return report
        try:
            children = {count: stack.enter_context(_filled(report, scratch, count)) for count in (FEW, many)}
            _ask(children, 1)  # not counted: caches fill, pages are touched for the first time
            for _ in range(settings.rounds):
                _add(report, _ask(children, QUICK_BLOCKS if settings.quick else BLOCKS))
        except StartFailed as error:
            report.fail(SUBJECT, str(error))
    report.rows.sort(key=lambda row: (GET, SUBMIT, START, MEMORY, GROWTH).index(row.case.partition(" at ")[0]))
    report.targets = _targets(many)
    return report


def _filled(report: Report, scratch: Path, count: int) -> Child:
    """A process with a store of so many instances open."""
    path = scratch / f"{count}.db"
    began = perf_counter()
    fill(path, count)
    filled = perf_counter() - began
    began = perf_counter()
    child = Child(MODULE, str(path), str(count))
    report.row(SUBJECT, _case(START, count), "ms").add((perf_counter() - began) * 1000)
    report.notes.append(f"{count:,} instances are {path.stat().st_size / 1e6:,.1f} MB, written in {filled:.1f} s")
    return child


def _ask(children: dict[int, Child], blocks: int) -> dict[int, list[_Block]]:
    """Blocks of each store in turn."""
    seen: dict[int, list[_Block]] = {count: [] for count in children}
    for _ in range(blocks):
        for count, child in children.items():
            block = child.ask({"reads": READS, "commits": COMMITS})
            seen[count].append(msgspec.convert(block, _Block))
    return seen


def _add(report: Report, seen: dict[int, list[_Block]]) -> None:
    """The medians over all blocks of a round are one sample."""
    for count, blocks in seen.items():
        for what, taken in (
            (GET, [seconds for block in blocks for seconds in block.get]),
            (SUBMIT, [seconds for block in blocks for seconds in block.submit]),
        ):
            p99 = sorted(taken)[len(taken) * 99 // 100]
            report.row(SUBJECT, _case(what, count), "ms").add(median(taken) * 1000, p99_ms=p99 * 1000)
        report.row(SUBJECT, _case(MEMORY, count), "MB").add(blocks[-1].rss_mb)
    few, many = (blocks[-1].rss_mb for blocks in seen.values())
    report.row(SUBJECT, GROWTH, "MB").add(many - few)


def _case(what: str, count: int) -> str:
    return f"{what} at {count:,} instances"


def _targets(many: int) -> list[Target]:
    few = {what: Key(SUBJECT, _case(what, FEW)) for what in (GET, SUBMIT)}
    return [
        Target(f"p50 of get: {many:,} against {FEW:,}", Key(SUBJECT, _case(GET, many)), few[GET], at_most=SLOWER),
        Target(
            f"p50 of submit: {many:,} against {FEW:,}", Key(SUBJECT, _case(SUBMIT, many)), few[SUBMIT], at_most=SLOWER
        ),
        Target("MB more in memory", Key(SUBJECT, GROWTH), at_most=HEAVIER),
    ]
