"""The last hour of calls: all of them in steps of five seconds with their times, those of a capability by minute."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import Final, NamedTuple

from waypost.execution.pipeline import BOUNDS, Counters

STEP_S: Final = 5.0
MAX_STEPS: Final = 720
STEPS_PER_MINUTE: Final = 12
MAX_MINUTES: Final = 60
MAX_CAPABILITIES: Final = 500
"""How many capabilities a minute has, the most called ones: so an hour takes a few megabytes at most."""
# A call that an open circuit refuses fails too: else the rate of errors would fall because a tool fails all the time.
_FAILED: Final = frozenset({"error", "crashed", "timed out", "circuit open"})


class CallSample(NamedTuple):
    """The calls that ended within one step."""

    at: float
    """When the step ended, as a Unix time."""
    calls: int
    errors: int
    p50: float | None
    """Seconds, interpolated between the bounds of the histogram; `None` where no call was timed."""
    p99: float | None


class MinuteSample(NamedTuple):
    """The calls of one capability that ended within one minute."""

    at: float
    """When the minute ended, as a Unix time."""
    calls: int
    errors: int


class CallHistory:
    """Reads the counters every five seconds, so that a call costs nothing more than its count."""

    def __init__(self, counters: Counters, clock: Callable[[], float] = time.time) -> None:
        self._counters = counters
        self._clock = clock
        self._width = 3 + len(BOUNDS) + 1
        # Grows to 720 rows of doubles, 63 KB, within an hour, and stays there.
        self._rows = array("d")
        self._minutes: deque[tuple[float, dict[str, tuple[int, int]]]] = deque(maxlen=MAX_MINUTES)
        self._steps = 0
        self._begin()
        self._timer: asyncio.TimerHandle | None = None

    def _begin(self) -> None:
        self._before, self._counted = self._read(), self._counters.calls()

    def start(self) -> None:
        """Begin to take samples on the running loop."""
        self.stop()
        self._begin()
        self._timer = asyncio.get_running_loop().call_later(STEP_S, self._tick)

    def stop(self) -> None:
        """Stop taking samples."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.sample()
        self._timer = asyncio.get_running_loop().call_later(STEP_S, self._tick)

    def sample(self) -> None:
        """End the current step now."""
        now, before = self._read(), self._before
        self._before = now
        self._rows.append(self._clock())
        self._rows.extend([new - old for new, old in zip(now, before, strict=True)])
        if len(self._rows) > MAX_STEPS * self._width:
            del self._rows[: self._width]
        self._steps += 1
        if self._steps % STEPS_PER_MINUTE == 0:
            self._sample_capabilities()

    def _sample_capabilities(self) -> None:
        now, before = self._counters.calls(), self._counted
        self._counted = now
        minute: dict[str, tuple[int, int]] = {}
        for (name, outcome), number in now.items():
            if new := number - before.get((name, outcome), 0):
                calls, errors = minute.get(name, (0, 0))
                minute[name] = calls + new, errors + (new if outcome in _FAILED else 0)
        if len(minute) > MAX_CAPABILITIES:
            minute = dict(nlargest(MAX_CAPABILITIES, minute.items(), key=lambda one: one[1]))
        self._minutes.append((self._clock(), minute))

    def _read(self) -> list[float]:
        outcomes = self._counters.by_outcome()
        failed = sum(count for outcome, count in outcomes.items() if outcome in _FAILED)
        return [sum(outcomes.values()), failed, *self._counters.timed()]

    def samples(self, after: float = 0.0) -> list[CallSample]:
        """The steps that ended after a time, the oldest first."""
        width, rows = self._width, self._rows
        return [_to_sample(rows[start : start + width]) for start in range(0, len(rows), width) if rows[start] > after]

    def minutes(self, capability: str) -> list[MinuteSample]:
        """The minutes of a capability, the oldest first; those without calls too."""
        return [MinuteSample(at, *minute.get(capability, (0, 0))) for at, minute in self._minutes]


def _to_sample(row: Sequence[float]) -> CallSample:
    at, calls, errors, *buckets = row
    return CallSample(at, int(calls), int(errors), _quantile(buckets, 0.5), _quantile(buckets, 0.99))


def _quantile(buckets: Sequence[float], share: float) -> float | None:
    total = sum(buckets)
    if not total:
        return None
    wanted, below, lower = share * total, 0.0, 0.0
    for count, upper in zip(buckets, (*BOUNDS, BOUNDS[-1]), strict=True):
        if count and below + count >= wanted:
            return lower + (upper - lower) * (wanted - below) / count
        below, lower = below + count, upper
    return lower
