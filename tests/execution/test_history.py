"""The history of calls of the last hour."""

from __future__ import annotations

import pytest

from tests.protocol.conftest import asynchronous
from waypost.execution.history import MAX_CAPABILITIES, MAX_MINUTES, MAX_STEPS, STEPS_PER_MINUTE, CallHistory
from waypost.execution.pipeline import Counters


def test_a_sample_has_the_calls_since_the_previous_one_and_their_quantiles() -> None:
    now = 100.0
    counters = Counters()
    history = CallHistory(counters, lambda: now)
    for _ in range(98):
        counters.count("add", "ok", 0.0005)
    counters.count("add", "error", 0.2)
    counters.count("add", "denied", 0.2)
    history.sample()
    now = 105.0
    counters.ok["fast"] += 3
    history.sample()

    first, second = history.samples()
    assert (first.at, first.calls, first.errors) == (100.0, 100, 1)
    assert first.p50 == pytest.approx(0.5 / 0.98 * 0.001)
    assert first.p99 == pytest.approx(0.3)
    assert (second.at, second.calls, second.errors, second.p50, second.p99) == (105.0, 3, 0, None, None)
    assert [sample.at for sample in history.samples(after=100.0)] == [105.0]


def test_the_history_keeps_the_samples_of_an_hour() -> None:
    times = iter(range(10_000))
    history = CallHistory(Counters(), lambda: float(next(times)))
    for _ in range(MAX_STEPS + 5):
        history.sample()
    samples = history.samples()
    assert (len(samples), samples[0].at) == (MAX_STEPS, 5.0)


def end_minute(history: CallHistory) -> None:
    for _ in range(STEPS_PER_MINUTE):
        history.sample()


def test_a_minute_counts_calls_and_failures_per_capability() -> None:
    counters = Counters()
    history = CallHistory(counters, lambda: 60.0)
    counters.count("add", "ok", 0.1)
    counters.count("add", "timed out", 0.1)
    end_minute(history)
    counters.ok["add"] += 2
    counters.error["other"] += 1
    end_minute(history)
    assert history.minutes("add") == [(60.0, 2, 1), (60.0, 2, 0)]
    assert history.minutes("other") == [(60.0, 0, 0), (60.0, 1, 1)]
    assert history.minutes("never") == [(60.0, 0, 0), (60.0, 0, 0)]


def test_the_history_keeps_the_minutes_of_an_hour() -> None:
    counters = Counters()
    history = CallHistory(counters)
    counters.ok["tool 1"] += 1
    for _ in range(MAX_MINUTES + 1):
        end_minute(history)
    assert len(history.minutes("tool 1")) == MAX_MINUTES
    assert sum(one.calls for one in history.minutes("tool 1")) == 0  # its minute is older than an hour


def test_a_minute_drops_the_least_called_of_too_many() -> None:
    counters = Counters()
    history = CallHistory(counters)
    for place in range(MAX_CAPABILITIES + 1):
        counters.ok[f"tool {place}"] += place + 1
    end_minute(history)
    assert [history.minutes(f"tool {place}")[0].calls for place in (0, 1)] == [0, 2]


def test_calls_beyond_the_last_bound_count_as_that_bound() -> None:
    counters = Counters()
    history = CallHistory(counters)
    counters.count("add", "ok", 60.0)
    history.sample()
    assert history.samples()[0].p99 == 10.0


@asynchronous
async def test_a_history_samples_while_it_runs_and_can_be_stopped_twice() -> None:
    history = CallHistory(Counters())
    history.start()
    history._tick()
    assert len(history.samples()) == 1
    history.stop()
    history.stop()
