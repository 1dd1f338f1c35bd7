"""The work of a dead or stopped replica goes on elsewhere, and its own later writes change nothing."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.chaos.cluster import Cluster, three_replicas
from tests.chaos.conftest import AS_LONG_AS_IT_TAKES, REPLICAS_S
from tests.chaos.millers import GONE, Mill, can_go
from tests.chaos.test_hub_killed import LOST
from tests.chaos.test_workflows_killed import all_running, effects_in
from tests.chaos.visitor import Visitor, eventually, visiting
from waypost.runtime.replicas import DEAD_AFTER_S
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.store import Store

ENDS: Final = {"safe": 2, "chain": 6, "parent": 2}
"""The version that each kind reaches when another replica goes on with it."""
TAKEN_WITHIN_S: Final = DEAD_AFTER_S + 20.0
"""How long it may take to notice the death and to run everything, with room for a busy machine; a lease is 30 s."""
DEADLINE: Final = 240.0
STOPPED_S: Final = 60.0
"""In a soak."""


async def begin_work(mill: Mill, visitor: Visitor, url: str, folder: Path) -> tuple[dict[str, str], str]:
    """Let one replica run a move of each kind and a task, none of which ends; the ids."""
    (folder / "hold").touch()
    mill.opens(url)
    ids: dict[str, str] = {}
    for kind in (*ENDS, "unsafe"):
        stands = await mill.call("workflow.start", definitionId=kind, input={})
        ids[kind] = stands["workflowId"]
        submit = {**stands["links"][0]["args"], "arguments": {"ticket": kind}}
        asyncio.get_running_loop().create_task(_ignore_end(mill, submit))
    task = await visitor.start_task(url, "chore", ticket="task")
    await eventually(lambda: all_running(folder, len(ids) + 1), "not everything runs")
    return ids, task


async def _ignore_end(mill: Mill, submit: dict[str, Any]) -> None:
    with suppress(*GONE):
        await mill.call("workflow.submit", **submit)


async def check_taken_over(mill: Mill, visitor: Visitor, url: str, ids: dict[str, str], task: str) -> None:
    """Wait until another replica has finished the repeatable moves and reports the others as unknown."""
    began = time.monotonic()
    mill.opens(url)

    async def has_ended(kind: str) -> bool | None:
        stands = await mill.look(ids[kind])
        return (can_go(stands) and stands["version"] == ENDS[kind]) or None

    async def is_unknown() -> bool | None:
        return (await mill.look(ids["unsafe"]))["status"] == "unknown_outcome" or None

    await eventually(is_unknown, "the outcome of a move that is not idempotent is not unknown")
    for kind in ENDS:
        await eventually(partial(has_ended, kind), f"{kind} did not go on")
    assert time.monotonic() - began < TAKEN_WITHIN_S
    assert (await visitor.task_is(url, task, "failed"))["error"]["message"] == LOST


async def read_everything(cluster: Cluster) -> dict[str, Any]:
    """All instances with their histories and notes, and all tasks."""
    store = Store(PostgresDatabase(cluster.postgres.url))
    try:
        found = {}
        for one in await store.instances.page(limit=1000):
            history, notes = await store.instances.history(one.id), await store.instances.notes(one.id)
            found[one.id] = (one, history, notes)
        return {**found, "tasks": await store.tasks.page("anonymous", None, 100)}
    finally:
        await store.close()


@AS_LONG_AS_IT_TAKES
def test_the_work_of_a_killed_replica_goes_on_elsewhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            asyncio.timeout(DEADLINE),
            visiting() as visitor,
            three_replicas(tmp_path, "postgres", random.Random(7)) as cluster,
        ):
            mill, (first, second, _) = Mill(visitor), cluster.replicas
            ids, task = await begin_work(mill, visitor, first.hub.url, tmp_path)
            await first.end(signal.SIGKILL)
            (tmp_path / "hold").unlink()
            await check_taken_over(mill, visitor, second.hub.url, ids, task)

    asyncio.run(scenario())
    unsafe = [effect for effect in effects_in(tmp_path) if effect.kind != "safe"]
    assert sorted(effect.ticket for effect in unsafe) == ["task", "unsafe"]


@AS_LONG_AS_IT_TAKES
def test_a_replica_that_was_stopped_for_long_writes_nothing_when_it_goes_on(tmp_path: Path) -> None:
    """It still runs work that others have taken over, and learns of that only when it writes."""

    async def scenario() -> None:
        async with (
            asyncio.timeout(DEADLINE),
            visiting() as visitor,
            three_replicas(tmp_path, "postgres", random.Random(7)) as cluster,
        ):
            mill, (first, second, _) = Mill(visitor), cluster.replicas
            ids, task = await begin_work(mill, visitor, first.hub.url, tmp_path)
            first.hub.signal(signal.SIGSTOP)
            stopped = time.monotonic()
            (tmp_path / "hold").unlink()
            await check_taken_over(mill, visitor, second.hub.url, ids, task)
            if REPLICAS_S:
                await asyncio.sleep(stopped + STOPPED_S - time.monotonic())
            before = await read_everything(cluster)
            assert before["tasks"]
            first.hub.signal(signal.SIGCONT)
            await asyncio.to_thread(first.hub.wait_for, "was declared dead")
            await visitor.task_is(first.hub.url, task, "failed")
            await asyncio.sleep(1)  # time for what it still runs to end and to be written
            assert await read_everything(cluster) == before

    asyncio.run(scenario())
    unsafe = [effect for effect in effects_in(tmp_path) if effect.kind != "safe"]
    assert sorted(effect.ticket for effect in unsafe) == ["task", "unsafe"]
