"""Hubs that race for one workflow instance, in this process or in others."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Literal

from waypost import Context, Hub
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import FROM_OUTSIDE, Principal
from waypost.config.models import Workflow
from waypost.errors import WorkflowRefused
from waypost.kinds import convert
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.workflows import workflows as workflows  # imported once, for all forked processes
from waypost.workflows.views import Answer

ADA: Final = DetachedCaller(Principal("ada"), FROM_OUTSIDE)
QUORUM: Final = 3
ENDING: Final = 60.0
Json = dict[str, Any]

_context: Final = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.chaos.racers", "tests.chaos.writers"])


@dataclass(frozen=True)
class Track:
    """The store of a race, and the file to which each run writes a line."""

    where: Path | str
    runs: Path

    def store(self) -> Store:
        """A connection to the store."""
        database = PostgresDatabase(self.where) if isinstance(self.where, str) else SqliteDatabase(self.where)
        return Store(database)

    def keys(self) -> list[str]:
        """A line for each run: the idempotency key."""
        return self.runs.read_text().splitlines() if self.runs.exists() else []


def race(runs: Path) -> Workflow:
    """The workflow of the race: one transition for each way to take it."""
    append = {"kind": "cli", "command": "/bin/sh", "args": ["-c", 'echo "$IDEMPOTENCY_KEY" >> "$0"', str(runs)]}
    moves = {
        "move": {"target": "done"},
        "note": {"target": "done", "executor": {"kind": "capability", "capability": "note"}},
        "program": {"target": "done", "executor": append},
        "agree": {"target": "done", "executor": {"kind": "human", "approvals": QUORUM}},
    }
    states = {
        "open": {"transitions": moves},
        "done": {"transitions": {"back": {"target": "open", "output": {"back": True}}}},
    }
    return convert({"initialState": "open", "states": states}, Workflow)


@asynccontextmanager
async def racing_hub(track: Track) -> AsyncIterator[Hub]:
    """A hub on the track, running."""
    hub = Hub("race", version="1.0.0", store=track.store())

    @hub.tool
    async def note(ctx: Context) -> str:
        """Write a line."""
        with track.runs.open("a") as file:
            file.write(f"{ctx.idempotency_key}\n")
        return "noted"

    hub.workflow("race", race(track.runs))
    await hub.start()
    try:
        yield hub
    finally:
        await hub.stop()


@dataclass(frozen=True)
class Orders:
    """The concurrent calls of a racer: submits with these request ids, or approvals by these principals."""

    track: Track
    what: Literal["submit", "approve"]
    about: str
    """The instance, or the approval."""
    names: Sequence[str]
    transition: str = ""


async def all_at_once(hub: Hub, orders: Orders) -> list[Json]:
    """Make all calls at once and return their answers."""
    one = submitted if orders.what == "submit" else approved
    return await asyncio.gather(*(one(hub, orders, name) for name in orders.names))


async def submitted(hub: Hub, orders: Orders, request_id: str) -> Json:
    """The answer to a submit on version 1."""
    engine = hub.workflows.engine
    return read_answer(await engine.submit(orders.about, 1, orders.transition, {}, ADA, request_id=request_id))


async def approved(hub: Hub, orders: Orders, person: str) -> Json:
    """The answer to an approval."""
    try:
        await hub.workflows.engine.approvals.approve(orders.about, Principal(person, ("human",)), "cli")
    except WorkflowRefused as error:
        return {"by": person, "error": {"code": error.code}}
    return {"by": person}


def read_answer(answer: Answer) -> Json:
    """An answer, checked to be a result or a proper refusal."""
    assert answer.refused == ("error" in answer.data)
    return answer.data


def _run(orders: Orders, pipe: Connection) -> None:
    asyncio.run(_race(orders, pipe))


async def _race(orders: Orders, pipe: Connection) -> None:
    async with racing_hub(orders.track) as hub:
        await hub.store.open()
        pipe.send("ready")
        pipe.recv()
        pipe.send(await all_at_once(hub, orders))


@contextmanager
def racer(orders: Orders) -> Iterator[Connection]:
    """A process that reports that it is ready, waits for a message, and sends its answers."""
    pipe, theirs = _context.Pipe()
    process = _context.Process(target=_run, args=(orders, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        assert pipe.recv() == "ready"
        yield pipe
        process.join(ENDING)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join(ENDING)
        process.close()
        pipe.close()


def two_processes(first: Orders, second: Orders) -> list[Json]:
    """The answers of a race between two processes."""
    with racer(first) as one, racer(second) as other:
        for pipe in (one, other):
            pipe.send("go")
        return [answer for pipe in (one, other) for answer in pipe.recv()]
