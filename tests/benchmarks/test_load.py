"""The benchmark harness measures what it says."""

import pytest

from benchmarks import load, wire
from benchmarks.harness import CONTENDERS, Fleet
from benchmarks.report import Key, Report, Target


def test_load_generator_counts_answers_of_the_static_app() -> None:
    report = Report("smoke")
    with Fleet(report) as fleet:
        server = fleet.start("static")
        assert server is not None, report.failed
        requests = [wire.modern(server.port, "tools/call", wire.ADD)] * 2
        right = load.run(server.port, requests, wire.SUM, seconds=0.3)
        wrong = load.run(server.port, requests, b"not in the answer", seconds=0.1)
    assert right.answered > 0
    assert right.errors == 0
    assert 0 < right.p50_ms <= right.p99_ms
    assert wrong.answered == 0
    assert wrong.errors > 0


def test_a_contender_that_does_not_start_is_reported_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONTENDERS, "static", "benchmarks.no_such_module")
    report = Report("smoke")
    with Fleet(report) as fleet:
        assert fleet.start("static") is None
    assert "no_such_module" in report.failed["static"]


def example() -> Report:
    report = Report("made up")
    report.row("waypost", "calls", "req/s").samples = [200.0, 90.0, 300.0]
    report.row("fastmcp", "calls", "req/s").samples = [10.0, 3.0, 10.0]
    report.row("waypost", "start", "ms").samples = [100.0, 100.0, 100.0]
    report.row("fastmcp", "start", "ms").samples = [400.0, 500.0, 600.0]
    return report


def test_ratios_pair_the_rounds_and_take_their_median() -> None:
    report = example()
    report.targets = [Target("x", Key("waypost", "calls"), Key("fastmcp", "calls"), at_least=30)]
    [outcome] = report.outcomes()
    assert outcome.samples == [20.0, 30.0, 30.0]
    assert outcome.measured == 30.0
    assert outcome.verdict == "ok"


def test_advantage_counts_more_as_better_for_rates_and_less_for_times() -> None:
    report = example()
    advantages = {row.case: report.advantage(row) for row in report.rows if row.contender == "fastmcp"}
    assert advantages == {"calls": 30.0, "start": 5.0}


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        (Target("x", Key("waypost", "calls"), Key("fastmcp", "calls"), at_least=31), "MISSED"),
        (Target("x", Key("waypost", "start"), at_most=100), "ok"),
        (Target("x", Key("waypost", "start"), at_most=99), "MISSED"),
        (Target("x", Key("waypost", "start"), Key("static", "start"), at_most=1), "not measured"),
    ],
)
def test_a_target_is_held_missed_or_not_measured(target: Target, verdict: str) -> None:
    report = example()
    report.targets = [target]
    assert [outcome.verdict for outcome in report.outcomes()] == [verdict]
