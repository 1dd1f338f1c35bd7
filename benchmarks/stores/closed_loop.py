"""Clients in a closed loop: each asks for its next move as soon as the one before is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from benchmarks.stores.moves import INSTANCES, Mover, name_of

UNIT: Final = "tx/s"


@dataclass(frozen=True)
class Pace:
    """What one run of the clients saw."""

    rate: float
    p50_ms: float
    p99_ms: float


def pace(latencies: Sequence[float], elapsed: float) -> Pace:
    """Sum up the seconds that each of some moves took."""
    ordered = sorted(latencies)
    if not ordered:
        raise TimeoutError(f"nothing was durable within {elapsed:.1f} s")
    return Pace(
        rate=len(ordered) / elapsed,
        p50_ms=ordered[len(ordered) // 2] * 1000,
        p99_ms=ordered[len(ordered) * 99 // 100] * 1000,
    )


class Clients:
    """The clients of one contender; they remember the version of every instance from run to run."""

    def __init__(self, mover: Mover) -> None:
        self._mover = mover
        self._names = [name_of(number) for number in range(INSTANCES)]
        self._versions = [1] * INSTANCES
        self._latencies: list[float] = []
        self._stopping = False

    @property
    def moved(self) -> int:
        """How many moves they have made in all."""
        return sum(self._versions) - INSTANCES

    async def drive(self, count: int, *, seconds: float, warmup: float) -> Pace:
        """Let so many of them run for a while."""
        self._stopping = False
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(self._client(number, count))
            await asyncio.sleep(warmup)
            self._latencies.clear()
            began = perf_counter()
            await asyncio.sleep(seconds)
            elapsed = perf_counter() - began
            latencies = self._latencies.copy()
            self._stopping = True
        return pace(latencies, elapsed)

    async def _client(self, number: int, count: int) -> None:
        """One client; the instances it moves are nobody else's, so every fence holds."""
        move, names, versions, latencies = self._mover.move, self._names, self._versions, self._latencies
        place = number
        while not self._stopping:
            began = perf_counter()
            await move(names[place], versions[place])
            latencies.append(perf_counter() - began)
            versions[place] += 1
            place += count
            if place >= INSTANCES:
                place = number
