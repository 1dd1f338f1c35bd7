"""Three replicas under faults of every kind: no acknowledged work is lost, nothing is applied twice, nothing is stuck.

Short in `make test`; as long as `WAYPOST_SOAK_REPLICAS_S` says in `make soak`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count, cycle
from pathlib import Path
from typing import Final, get_args

import pytest

from tests.chaos import mill as program
from tests.chaos.checker import FINAL, TaskRun
from tests.chaos.cluster import BusKind, Cluster, three_replicas
from tests.chaos.conftest import AS_LONG_AS_IT_TAKES, REPLICAS_S
from tests.chaos.millers import GONE, Mill, Miller
from tests.chaos.verdict import AT_REST, Effect, wrong_with
from tests.chaos.visitor import Refused, Visitor, visiting
from waypost.errors import StoreError
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.store import Store

FULL_SOAK_S: Final = 600.0
LEAST: Final = {"faults": 200, "submits": 10_000, "tasks": 2_000}
"""What has to happen in a soak of ten minutes."""
AT_ONCE: Final = 3
MAX_STUCK_S: Final = 60.0
CALL_S: Final = 6.0
PAUSE_S: Final = 0.02
OF_EACH_KIND: Final = 2
SHARED: Final = ("pure", "safe")
"""The kinds of which several clients move one instance too."""
NO_TASK: Final = -32602


class Runner:
    """Starts tasks, or plain calls, one after the other, and writes down what became of each."""

    def __init__(self, mill: Mill, visitor: Visitor, url: str, name: str) -> None:
        self._mill = mill
        self._visitor = visitor
        self._url = url
        self._name = name
        self._numbers = count(1)

    def _next(self) -> TaskRun:
        run = TaskRun(f"{self._name}-{next(self._numbers)}")
        self._mill.evidence.runs.append(run)
        return run

    async def run_tasks(self) -> None:
        """Start a task, follow it to its end, and start the next."""
        while True:
            run = self._next()
            async with self._mill.patient():
                run.task = await self._visitor.start_task(self._url, "chore", ticket=run.ticket)
                run.is_acknowledged = True
                await self.follow(run)

    async def follow(self, run: TaskRun) -> None:
        """Look at a task until it is over; one that cannot be looked at now is looked at later."""
        while run.seen[-1:] == [] or run.seen[-1] not in (*FINAL, "missing"):
            async with self._mill.patient():
                try:
                    run.seen.append((await self._visitor.task(self._url, run.task))["status"])
                except Refused as refused:
                    if refused.error.get("code") != NO_TASK:
                        raise
                    run.seen.append("missing")
            await asyncio.sleep(PAUSE_S)

    async def call_tools(self) -> None:
        """Make one plain call after the other."""
        while True:
            run = self._next()
            async with self._mill.patient():
                call = {"name": "errand", "arguments": {"ticket": run.ticket}}
                result = await self._visitor.stateless(self._url, "tools/call", call)
                run.is_acknowledged = not result.get("isError")
            await asyncio.sleep(PAUSE_S)


def start_load(group: asyncio.TaskGroup, mill: Mill, visitor: Visitor, url: str) -> list[asyncio.Task[None]]:
    """All clients; what else crosses replicas, such as calls of workers and limits of rates, is added here."""
    clients = [Miller(mill, f"{kind}-{n}", kind) for kind in program.KINDS for n in range(OF_EACH_KIND)]
    for kind in SHARED:
        shared = asyncio.get_running_loop().create_future()
        clients += [Miller(mill, f"{kind}-shared-{n}", kind, shared, is_first=not n) for n in range(3)]
    works: list[Callable[[], Awaitable[None]]] = [client.work for client in clients]
    works += [Runner(mill, visitor, url, f"task-{n}").run_tasks for n in range(6)]
    works += [Runner(mill, visitor, url, f"call-{n}").call_tools for n in range(2)]
    return [group.create_task(_run(work)) for work in works]


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def cause_faults(cluster: Cluster, chance: random.Random, seconds: float) -> None:
    """Let things go wrong for some time, in turn and overlapping, each kind at least once."""
    until, at_once = time.monotonic() + seconds, asyncio.Semaphore(AT_ONCE)
    names = list(cluster.faults)
    chance.shuffle(names)
    # A replica is stopped for long: the others go wrong several times meanwhile.
    more = [name for name in names if name != "stop a replica"] * 3 if seconds else []

    async def cause(name: str) -> None:
        try:
            await cluster.cause(name)
        finally:
            at_once.release()

    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(cycle([*names, *more])):
            if number >= len(names) and time.monotonic() > until:
                break
            await at_once.acquire()
            group.create_task(cause(name))
            await asyncio.sleep(chance.uniform(0.3, 1.5))


async def bring_to_rest(mill: Mill, cluster: Cluster, chance: random.Random) -> None:
    """Wait until nothing goes on by itself, at most a minute; what nobody knows is decided, tasks are followed."""
    store = Store(PostgresDatabase(cluster.postgres.url))
    evidence = mill.evidence
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_STUCK_S), visiting(CALL_S) as visitor:
                runner = Runner(mill, visitor, cluster.balancer.url, "")
                await asyncio.gather(*(runner.follow(run) for run in evidence.runs if run.task))
                while True:
                    found = {one.id: one for one in await store.instances.page(limit=1_000_000)}
                    moving = [one for one in found.values() if one.reservation or one.status not in AT_REST]
                    if not moving and not any(one.value.get("pending") for one in found.values()):
                        break
                    for one in moving:
                        stands = await mill.look(one.id)
                        if stands.get("status") in ("unknown_outcome", "chain_failed"):
                            with suppress(*mill.gone):
                                await mill.settle(stands, chance)
                    await asyncio.sleep(0.2)
        assert await store.check() == []
        evidence.instances = {one.id: one for one in await store.instances.page(limit=1_000_000)}
        evidence.histories = {one: await store.instances.history(one, limit=100_000) for one in evidence.instances}
    finally:
        await store.close()


def read_ledger(folder: Path, mill: Mill) -> None:
    """What the tools of all replicas did."""
    lines = [line.split() for line in (folder / "effects").read_text().splitlines()]
    mill.evidence.ledger = [ticket for kind, ticket, _ in lines if kind == "once"]
    mill.evidence.effects = [Effect(*line) for line in lines if line[0] != "once"]


def summarize(mill: Mill, faults: Mapping[str, int]) -> Counter[str]:
    """How much was done."""
    evidence = mill.evidence
    return Counter(
        {
            "faults": sum(faults.values()),
            "submits": sum(call.is_applied for call in evidence.calls),
            "submits without an answer": sum(bool(call.ticket) and not call.version for call in evidence.calls),
            "tasks": sum(bool(run.task) for run in evidence.runs),
            "tasks failed": sum(run.seen[-1:] == ["failed"] for run in evidence.runs),
            "plain calls": sum(run.is_acknowledged and not run.task for run in evidence.runs),
            "unknown outcomes": mill.unknown,
        }
    )


@AS_LONG_AS_IT_TAKES
@pytest.mark.parametrize("bus", get_args(BusKind))
def test_replicas_survive_faults_of_every_kind(tmp_path: Path, bus: BusKind) -> None:
    soak, seed = REPLICAS_S, random.randrange(1_000_000)
    chance = random.Random(seed)

    async def scenario() -> tuple[Mill, Counter[str]]:
        async with (
            asyncio.timeout(soak * 2 + 180),
            visiting(CALL_S) as visitor,
            three_replicas(tmp_path, bus, chance) as cluster,
        ):
            if soak:
                cluster.freeze_s = 30.0
            mill = Mill(visitor, (*GONE, Refused, StoreError))
            mill.pause = PAUSE_S
            mill.opens(cluster.balancer.url)
            async with asyncio.TaskGroup() as group:
                clients = start_load(group, mill, visitor, cluster.balancer.url)
                await asyncio.sleep(1)
                await cause_faults(cluster, chance, soak)
                await asyncio.sleep(1)
                for client in clients:
                    client.cancel()
            began = time.monotonic()
            await bring_to_rest(mill, cluster, chance)
            sys.stderr.write(f"\nat rest after {time.monotonic() - began:.1f} s\n")
            return mill, cluster.counted

    mill, faults = asyncio.run(scenario())
    read_ledger(tmp_path, mill)
    done = summarize(mill, faults)
    sys.stderr.write(f"\n{bus}: {dict(done)}; {dict(faults)}\n")
    wrong = wrong_with(mill.evidence)
    assert not wrong, f"seed {seed}: {len(wrong)} problems: {wrong[:20]}"
    assert all(done[what] for what in ("submits", "tasks", "plain calls"))
    wanted = {what: number * min(1, soak / FULL_SOAK_S) for what, number in LEAST.items()}
    too_few = {what: done[what] for what, number in wanted.items() if done[what] < number}
    assert not too_few, f"nothing is wrong, but it was too little to tell: {too_few} of {wanted}"
