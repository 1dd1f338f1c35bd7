"""The search: keywords at 1,000 to 100,000 capabilities, and sentences with and without embeddings at 5,000."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from benchmarks.harness import environment
from benchmarks.report import SUBJECT, Key, Report, Settings, Target
from benchmarks.searching import Answer
from waypost.search.embeddings import is_installed

LIMITS = {1_000: 1.0, 10_000: 1.5, 100_000: 2.0}
"""Milliseconds that half of the queries by keywords may take."""

SENTENCES = 5_000
SENTENCE_LIMIT = 5.0
BUILD_LIMIT = 60.0


def run(settings: Settings) -> Report:
    report = Report("Search over the catalog (CPU time of the searching thread)")
    counts = [count for count in LIMITS if count <= 10_000 or not settings.quick]
    for _ in range(settings.rounds):
        for count in counts:
            _keywords(report, count)
        _sentences(report, "words alone")
        if is_installed():
            _sentences(report, "with embeddings", "--embeddings")
    report.notes.append("p50 is of terms that were asked for before; `cold` of the first time each query is asked")
    report.targets = [
        *(Target(f"p50 of keywords, {n:,}", Key(SUBJECT, f"keywords, {n:,}"), at_most=LIMITS[n]) for n in counts),
        *(Target(f"p50 cold, {n:,}", Key(SUBJECT, f"keywords, {n:,}, cold"), at_most=LIMITS[n]) for n in counts),
        *(Target(f"build, {n:,}", Key(SUBJECT, f"build, {n:,}"), at_most=BUILD_LIMIT) for n in counts),
        *(
            Target(f"slowest sentence, {how}", Key(SUBJECT, f"slowest sentence, {how}"), at_most=SENTENCE_LIMIT)
            for how in ("words alone", "with embeddings")
        ),
    ]
    return report


def _keywords(report: Report, count: int) -> None:
    answer = _ask(report, count)
    if answer is None:
        return
    report.row(SUBJECT, f"keywords, {count:,}", "ms").add(answer.p50_ms, p99_ms=answer.p99_ms)
    report.row(SUBJECT, f"keywords, {count:,}, cold", "ms").add(answer.cold_p50_ms)
    report.row(SUBJECT, f"build, {count:,}", "us").add(answer.build_us)
    report.row(SUBJECT, f"memory, {count:,}", "MB").add(answer.memory_mb)


def _sentences(report: Report, how: str, *options: str) -> None:
    answer = _ask(report, SENTENCES, *options)
    if answer is not None:
        report.row(SUBJECT, f"sentences, {how}", "ms").add(answer.sentence_p50_ms)
        report.row(SUBJECT, f"slowest sentence, {how}", "ms").add(answer.sentence_max_ms)


def _ask(report: Report, count: int, *options: str) -> Answer | None:
    command = [sys.executable, "-m", "benchmarks.searching", str(count), *options]
    done = subprocess.run(command, capture_output=True, env=environment(), check=False, timeout=120)
    if done.returncode != 0:
        report.fail(SUBJECT, done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
        return None
    return msgspec.json.decode(done.stdout, type=Answer)
