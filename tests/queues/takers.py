"""Processes that take jobs and die with them."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from multiprocessing.connection import Connection
from typing import Final

from tests.queues.conftest import Place

ENDING: Final = 60.0
_context: Final = multiprocessing.get_context("forkserver")


async def _take_and_hang(place: Place, lease: float, limit: int, pipe: Connection) -> None:
    async with place.opened() as queue:
        taken = await queue(lease=lease).take(limit, within=ENDING)
        pipe.send([delivery.id for delivery in taken])
        await asyncio.Event().wait()


def _run(place: Place, lease: float, limit: int, pipe: Connection) -> None:
    asyncio.run(_take_and_hang(place, lease, limit, pipe))


def take_and_kill(place: Place, lease: float, limit: int) -> list[str]:
    """Let a process take jobs, kill it, and return the ids of the jobs."""
    pipe, theirs = _context.Pipe(duplex=False)
    process = _context.Process(target=_run, args=(place, lease, limit, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        taken: list[str] = pipe.recv()
        process.kill()
        process.join(ENDING)
        assert process.exitcode == -signal.SIGKILL
        return taken
    finally:
        process.kill()
        process.join(ENDING)
        process.close()
        pipe.close()
