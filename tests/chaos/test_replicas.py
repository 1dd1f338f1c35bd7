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
from math import inf
from pathlib import Path
from typing import Final, get_args

import pytest

from tests.chaos import mill as program
from tests.chaos.checker import FINAL, Hold, TaskRun, Toll
from tests.chaos.cluster import BusKind, Cluster, three_replicas
from tests.chaos.conftest import AS_LONG_AS_IT_TAKES, REPLICAS_S
from tests.chaos.millers import GONE, Mill, Miller
from tests.chaos.verdict import Effect, is_moving, wrong_with
from tests.chaos.visitor import Json, Refused, Visitor, visiting
from waypost.errors import StoreError
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.store import Store

FULL_SOAK_S: Final = 600.0
LEAST: Final = {"faults": 200, "submits": 10_000, "worker calls": 5_000, "tasks": 2_000}
"""What has to happen in a soak of ten minutes."""
AT_ONCE: Final = 3
MAX_STUCK_S: Final = 60.0
CALL_S: Final = 6.0
PAUSE_S: Final = 0.02
REREAD_S: Final = 1.0
OF_EACH_KIND: Final = 2
SHARED: Final = ("pure", "safe")
"""The kinds of which several clients move one instance too."""
UNKNOWN_ID: Final = -32602
"""The code for a task or a tool that the hub does not know."""
REPEATABLE: Final = "round_trip"
ERRAND: Final = "errand"
CARRY: Final = "mill__carry"
"""The tool and the function of workers that are called, neither of which may be repeated."""
NOT_BEGUN: Final = ("cannot be reached.", "was called.", "not found in namespace default.")
"""What the hub says of a call of a worker's function that certainly did not begin."""
TOLL_PAUSE_S: Final = 0.1
WORKER_CALLERS: Final = 8 if REPLICAS_S else 3
TOLL_PAYERS: Final = 4 if REPLICAS_S else 2
"""A soak has the machine to itself; the short form shares it with other tests."""
CROWD: Final = program.MAX_RUNNING + 16
"""Clients of one principal, more than may run."""
CARRIERS: Final = 2
"""How many replicas have a worker: calls at the third always cross replicas."""


class Runner:
    """Starts tasks or makes calls one after the other, and records the outcome of each."""

    def __init__(self, mill: Mill, visitor: Visitor, url: str, name: str) -> None:
        self._mill = mill
        self._visitor = visitor
        self._url = url
        self._name = name
        self._numbers = count(1)

    def _next(self, tool: str) -> TaskRun:
        run = TaskRun(self._next_ticket(), tool, is_repeatable=tool == REPEATABLE)
        self._mill.evidence.runs.append(run)
        return run

    def _next_ticket(self) -> str:
        return f"{self._name}-{next(self._numbers)}"

    async def _call(self, tool: str, ticket: str) -> Json:
        return await self._visitor.stateless(self._url, "tools/call", {"name": tool, "arguments": {"ticket": ticket}})

    async def run_tasks(self) -> None:
        """Start a task, follow it to its end, and start the next; every other one may be run again."""
        for tool in cycle(("chore", REPEATABLE)):
            run = self._next(tool)
            async with self._mill.patient():
                run.task = await self._visitor.start_task(self._url, run.tool, ticket=run.ticket)
                run.is_acknowledged = True
                await self.follow(run)

    async def follow(self, run: TaskRun) -> None:
        """Look at a task until it is over; one that cannot be looked at now is looked at later."""
        while run.seen[-1:] == [] or run.seen[-1] not in (*FINAL, "missing"):
            async with self._mill.patient():
                try:
                    run.seen.append((await self._visitor.task(self._url, run.task))["status"])
                except Refused as refused:
                    if refused.error.get("code") != UNKNOWN_ID:
                        raise
                    run.seen.append("missing")
            await asyncio.sleep(PAUSE_S)

    async def call_tools(self) -> None:
        """Make one plain call after the other."""
        while True:
            run = self._next(ERRAND)
            async with self._mill.patient():
                run.is_acknowledged = not (await self._call(run.tool, run.ticket)).get("isError")
            await asyncio.sleep(PAUSE_S)

    async def call_workers(self) -> None:
        """Call a worker's function again and again; repeat a call that certainly did not begin unchanged."""
        while True:
            run = self._next(CARRY)
            while await self._is_refused(run):
                run.refusals += 1
                await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(PAUSE_S)

    async def _is_refused(self, run: TaskRun) -> bool:
        """Make a call; return whether the answer says that it did not begin."""
        async with self._mill.patient():
            try:
                result = await self._call(run.tool, run.ticket)
            except Refused as refused:
                if refused.error.get("code") != UNKNOWN_ID:
                    raise
                return True
            run.is_acknowledged = not result.get("isError")
            return not run.is_acknowledged and any(words in result["content"][0]["text"] for words in NOT_BEGUN)
        return False

    async def pay_tolls(self) -> None:
        """Make more calls than the rate limit admits."""
        while True:
            toll = Toll(self._next_ticket(), time.monotonic())
            self._mill.evidence.tolls.append(toll)
            async with self._mill.patient():
                await self._call("toll", toll.ticket)
            await asyncio.sleep(TOLL_PAUSE_S)

    async def hold_slots(self) -> None:
        """Make calls that take a while, one after the other."""
        while True:
            ticket = self._next_ticket()
            self._mill.evidence.holds[ticket] = Hold(time.monotonic())
            async with self._mill.patient():
                await self._call("hold", ticket)
            await asyncio.sleep(PAUSE_S)


def start_load(
    group: asyncio.TaskGroup, mill: Mill, visitor: Visitor, crowd: Visitor, url: str
) -> list[asyncio.Task[None]]:
    """All clients of workflows, tasks, tools, workers, rate limits and slots."""
    clients = [Miller(mill, f"{kind}-{n}", kind) for kind in program.KINDS for n in range(OF_EACH_KIND)]
    for kind in SHARED:
        shared = asyncio.get_running_loop().create_future()
        clients += [Miller(mill, f"{kind}-shared-{n}", kind, shared, is_first=not n) for n in range(3)]
    works: list[Callable[[], Awaitable[None]]] = [client.work for client in clients]
    works += [Runner(mill, visitor, url, f"task-{n}").run_tasks for n in range(6)]
    works += [Runner(mill, visitor, url, f"call-{n}").call_tools for n in range(2)]
    works += [Runner(mill, visitor, url, f"carry-{n}").call_workers for n in range(WORKER_CALLERS)]
    works += [Runner(mill, visitor, url, f"toll-{n}").pay_tolls for n in range(TOLL_PAYERS)]
    works += [Runner(mill, crowd, url, f"hold-{n}").hold_slots for n in range(CROWD)]
    return [group.create_task(_run(work)) for work in works]


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def cause_faults(cluster: Cluster, chance: random.Random, seconds: float) -> None:
    """Cause faults for some time, in turn and overlapping, each kind at least once."""
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
    """Wait until nothing moves by itself, at most a minute, and read the store.

    Unknown outcomes are resolved, and tasks are followed. A request sent before its client was stopped may still
    begin, so the cluster is at rest only if a later reading is the same.
    """
    store = Store(PostgresDatabase(cluster.postgres.url))
    evidence = mill.evidence
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_STUCK_S), visiting(CALL_S) as visitor:
                runner = Runner(mill, visitor, cluster.balancer.url, "")
                await asyncio.gather(*(runner.follow(run) for run in evidence.runs if run.task))
                earlier: dict[str, int] = {}
                while True:
                    found = {one.id: one for one in await store.instances.page(limit=1_000_000)}
                    evidence.histories = {one: await store.instances.history(one, limit=100_000) for one in found}
                    evidence.instances = found
                    moving = [one for one in found.values() if is_moving(one)]
                    versions = {one.id: one.version for one in found.values()}
                    if not moving and versions == earlier:
                        break
                    earlier = versions
                    for one in moving:
                        stands = await mill.look(one.id)
                        if stands.get("status") in ("unknown_outcome", "chain_failed"):
                            with suppress(*mill.gone):
                                await mill.resolve_instance(stands, chance)
                    await asyncio.sleep(REREAD_S)
        assert await store.check() == []
    finally:
        await store.close()


def read_ledger(folder: Path, mill: Mill) -> None:
    """Read the effects of the tools of all replicas."""
    lines = [line.split() for line in (folder / "effects").read_text().splitlines()]
    mill.evidence.ledger = [ticket for kind, ticket, _ in lines if kind == "once"]
    mill.evidence.ran = {ticket: float(moment) for kind, ticket, moment in lines if kind == "toll"}
    mill.evidence.effects = [Effect(*line) for line in lines if line[0] not in ("once", "toll", "begin", "end")]
    for kind, ticket, moment in lines:
        if kind == "begin":
            mill.evidence.holds[ticket].began = float(moment)
        elif kind == "end":
            mill.evidence.holds[ticket].ended = float(moment)


def summarize(mill: Mill, faults: Mapping[str, int]) -> Counter[str]:
    """How much was done."""
    evidence = mill.evidence
    repeated = {ticket for ticket, times in Counter(evidence.ledger).items() if times > 1}
    return Counter(
        {
            "faults": sum(faults.values()),
            "submits": sum(call.is_applied for call in evidence.calls),
            "submits without an answer": sum(bool(call.ticket) and not call.version for call in evidence.calls),
            "tasks": sum(bool(run.task) for run in evidence.runs),
            "tasks failed": sum(run.seen[-1:] == ["failed"] for run in evidence.runs),
            "tasks run again": len(repeated & {run.ticket for run in evidence.runs if run.is_repeatable}),
            "plain calls": sum(run.is_acknowledged and run.tool == ERRAND for run in evidence.runs),
            "worker calls": sum(run.is_acknowledged and run.tool == CARRY for run in evidence.runs),
            "worker calls refused": sum(run.refusals for run in evidence.runs),
            "worker calls without an answer": sum(
                not run.is_acknowledged and run.tool == CARRY for run in evidence.runs
            ),
            "calls under the rate limit": len(evidence.ran),
            "calls beyond it": len(evidence.tolls) - len(evidence.ran),
            "calls that held a slot": sum(hold.ended < inf for hold in evidence.holds.values()),
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
            asyncio.timeout(soak * 2 + 240),
            visiting(CALL_S) as visitor,
            visiting(CALL_S, program.CROWD_KEY) as crowd,
            three_replicas(tmp_path, bus, chance, carriers=CARRIERS) as cluster,
        ):
            if soak:
                cluster.freeze_s = 30.0
            mill = Mill(visitor, (*GONE, Refused, StoreError))
            mill.pause = PAUSE_S
            mill.opens(cluster.balancer.url)
            async with asyncio.TaskGroup() as group:
                clients = start_load(group, mill, visitor, crowd, cluster.balancer.url)
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
    some = ("submits", "tasks", "plain calls", "worker calls", "calls under the rate limit", "calls that held a slot")
    assert all(done[what] for what in some)
    wanted = {what: number * min(1, soak / FULL_SOAK_S) for what, number in LEAST.items()}
    too_few = {what: done[what] for what, number in wanted.items() if done[what] < number}
    assert not too_few, f"nothing is wrong, but it was too little to tell: {too_few} of {wanted}"
