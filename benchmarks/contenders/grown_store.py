"""Waypost's store on a file that is there already: asked for a block of reads and moves, one at a time."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import uvloop

from benchmarks.stores import moves
from benchmarks.stores.child import answer_questions
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

SEED = 11


class GrownStore:
    """The store, and the versions of those instances that were moved."""

    def __init__(self, path: Path, count: int) -> None:
        self._store = Store(SqliteDatabase(path))
        self._count = count
        self._random = random.Random(SEED)
        self._versions: dict[str, int] = {}

    async def open(self) -> None:
        await self._store.open()

    async def measure(self, reads: int, commits: int) -> dict[str, Any]:
        """The seconds of each read and each move of instances picked at random, and the memory in use afterwards."""
        return {
            "get": [await self._timed(self._read) for _ in range(reads)],
            "submit": [await self._timed(self._move) for _ in range(commits)],
            "rss_mb": _rss_mb(),
        }

    async def close(self) -> None:
        await self._store.close()

    async def _timed(self, action: Callable[[str], Awaitable[None]]) -> float:
        name = moves.name_of(self._random.randrange(self._count))
        began = perf_counter()
        await action(name)
        return perf_counter() - began

    async def _read(self, name: str) -> None:
        if await self._store.instances.get(name) is None:
            raise LookupError(name)

    async def _move(self, name: str) -> None:
        version = self._versions.get(name, 1)
        await moves.commit(self._store, name, version)
        self._versions[name] = version + 1


def _rss_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    store = GrownStore(Path(sys.argv[1]), int(sys.argv[2]))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(store.open())

        def answer(question: Any) -> Any:
            return runner.run(store.measure(question["reads"], question["commits"]))

        answer_questions(answer)
        runner.run(store.close())


if __name__ == "__main__":
    main()
