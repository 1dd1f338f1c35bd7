"""Counters: by capability and outcome, in buckets, within bounds."""

from __future__ import annotations

from waypost.execution.pipeline import BOUNDS, OTHER, Counters


def test_calls_are_counted_by_capability_and_outcome() -> None:
    counters = Counters()
    for outcome in ("ok", "ok", "denied"):
        counters.count("add", outcome, 0.1)
    counters.count("sum", "ok", 0.1)
    assert counters.calls() == {("add", "denied"): 1, ("add", "ok"): 2, ("sum", "ok"): 1}
    assert counters.by_outcome() == {"denied": 1, "ok": 3}


def test_a_bucket_holds_everything_up_to_its_bound() -> None:
    counters = Counters()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] + 0.0001, BOUNDS[-1], 60.0):
        counters.count("add", "ok", seconds)
    buckets = counters.buckets()
    assert [buckets[bound] for bound in (BOUNDS[0], BOUNDS[1], BOUNDS[-1], float("inf"))] == [2, 3, 4, 5]
    assert counters.seconds == BOUNDS[0] * 2 + 0.0001 + BOUNDS[-1] + 60.0


def test_unknown_names_from_callers_do_not_fill_the_memory() -> None:
    counters = Counters()
    for number in range(5_000):
        counters.count(f"notes://{number}", "ok", 0.0)
    assert len(counters.calls()) == 2_001
    assert counters.calls()[OTHER, "ok"] == 3_000
    assert counters.by_outcome() == {"ok": 5_000}


def test_the_uptime_is_counted_from_creation() -> None:
    now = iter([10.0, 12.5])
    assert Counters(lambda: next(now)).uptime == 2.5
