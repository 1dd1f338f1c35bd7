"""Counters: how many calls ended how, and how long they took, for `/metrics`."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from itertools import accumulate
from typing import Final

BOUNDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Seconds at which the buckets of the histogram end; the last one is open."""

OTHER: Final = "other"
_MAX_NAMES: Final = 2_000


class Counters:
    """What was counted since `began`; only ever added to."""

    __slots__ = (
        "_buckets",
        "_calls",
        "_clock",
        "_names",
        "_seconds",
        "began",
        "error",
        "ok",
        "stall_seconds",
        "stalls",
    )

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.began = clock()
        self._calls: dict[tuple[str, str], int] = {}
        self._names: set[str] = set()
        self.ok: defaultdict[str, int] = defaultdict(int)
        self.error: defaultdict[str, int] = defaultdict(int)
        """Calls of tools without a time; the pipeline adds to them in place, without the cost of a method call."""
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0
        self.stalls = 0
        """How many turns of the event loop took too long, and how long they took together."""
        self.stall_seconds = 0.0

    def count(self, capability: str, outcome: str, seconds: float) -> None:
        """One more call of a capability ended with an outcome, after so many seconds."""
        try:
            self._calls[capability, outcome] += 1
        except KeyError:
            self._begin(capability, outcome)
        self._buckets[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def _begin(self, capability: str, outcome: str) -> None:
        # Names that callers make up, such as URIs of a template, must not fill the memory.
        if capability not in self._names and len(self._names) >= _MAX_NAMES:
            capability = OTHER
        self._names.add(capability)
        key = (capability, outcome)
        self._calls[key] = self._calls.get(key, 0) + 1

    @property
    def uptime(self) -> float:
        """Seconds since counting began."""
        return self._clock() - self.began

    @property
    def seconds(self) -> float:
        """How long all calls took together."""
        return self._seconds

    def calls(self) -> dict[tuple[str, str], int]:
        """How many calls ended how, by capability and outcome."""
        found = dict(self._calls)
        for outcome, tools in (("ok", self.ok), ("error", self.error)):
            for name, number in tools.items():
                found[name, outcome] = found.get((name, outcome), 0) + number
        return dict(sorted(found.items()))

    def by_outcome(self) -> dict[str, int]:
        """How many calls ended how."""
        found: dict[str, int] = {}
        for (_, outcome), number in self.calls().items():
            found[outcome] = found.get(outcome, 0) + number
        return dict(sorted(found.items()))

    def buckets(self) -> dict[float, int]:
        """How many calls took at most so many seconds; all of them at infinity."""
        return dict(zip((*BOUNDS, float("inf")), accumulate(self._buckets), strict=True))
