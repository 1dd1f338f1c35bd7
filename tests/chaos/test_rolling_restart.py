"""All replicas are restarted one after the other under load: after one retry, no call has failed."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import Final

from tests.chaos.cluster import Cluster, three_replicas
from tests.chaos.conftest import AS_LONG_AS_IT_TAKES, REPLICAS_S
from tests.chaos.millers import GONE
from tests.chaos.visitor import Refused, Visitor, visiting

CLIENTS: Final = 6
ROUNDS: Final = 1
SOAK_ROUNDS: Final = 10
CALM_S: Final = 2.0
PAUSE_S: Final = 0.05
MAX_SLOWER: Final = 5.0
DEADLINE: Final = 150.0


class Caller:
    """Calls a tool again and again, with one retry, and measures how long each call took."""

    def __init__(self, visitor: Visitor, url: str, name: str) -> None:
        self.failed: list[Exception] = []
        self.retried = 0
        self.took: list[tuple[float, float]] = []
        """When each call began, and how many seconds it took."""
        self._visitor = visitor
        self._url = url
        self._name = name

    async def work(self) -> None:
        """Call until cancelled."""
        for number in count():
            began = time.monotonic()
            try:
                await self._call(f"{self._name}-{number}")
            except (*GONE, Refused):
                self.retried += 1
                try:
                    await self._call(f"{self._name}-{number}-again")
                except (*GONE, Refused) as error:
                    self.failed.append(error)
            self.took.append((began, time.monotonic() - began))
            await asyncio.sleep(PAUSE_S)

    async def _call(self, ticket: str) -> None:
        call = {"name": "errand", "arguments": {"ticket": ticket}}
        result = await self._visitor.stateless(self._url, "tools/call", call)
        if result["content"][0]["text"] != ticket:
            raise Refused(200, result)


async def restart_all(cluster: Cluster) -> None:
    """Restart one after the other, as a deployment does: the next one when the last is ready."""
    for replica in cluster.replicas:
        await replica.end(signal.SIGTERM)
        await replica.start(cluster.balancer)


def find_p99(callers: list[Caller], since: float, until: float) -> float:
    """The 99th percentile of the latency of calls that began between two moments, in seconds."""
    took = sorted(seconds for caller in callers for began, seconds in caller.took if since <= began < until)
    return took[int(len(took) * 0.99)]


@AS_LONG_AS_IT_TAKES
def test_no_call_fails_while_all_replicas_are_restarted(tmp_path: Path) -> None:
    async def scenario() -> tuple[list[Caller], float, float]:
        rounds = SOAK_ROUNDS if REPLICAS_S else ROUNDS
        async with (
            asyncio.timeout(DEADLINE * rounds),
            visiting() as visitor,
            three_replicas(tmp_path, "postgres", random.Random(5)) as cluster,
        ):
            callers = [Caller(visitor, cluster.balancer.url, f"caller-{n}") for n in range(CLIENTS)]
            async with asyncio.TaskGroup() as group:
                working = [group.create_task(caller.work()) for caller in callers]
                began = time.monotonic()
                await asyncio.sleep(CALM_S)
                restarting = time.monotonic()
                for _ in range(rounds):
                    await restart_all(cluster)
                ended = time.monotonic()
                for task in working:
                    task.cancel()
            return callers, find_p99(callers, began, restarting), find_p99(callers, restarting, ended)

    callers, before, during = asyncio.run(scenario())
    calls, retried = sum(len(caller.took) for caller in callers), sum(caller.retried for caller in callers)
    sys.stderr.write(
        f"\nrolling restart: {calls} calls, {retried} retried, p99 {before * 1000:.1f} ms before, "
        f"{during * 1000:.1f} ms during\n"
    )
    assert [error for caller in callers for error in caller.failed] == []
    assert calls > CLIENTS
    if REPLICAS_S:
        assert during <= MAX_SLOWER * before
