"""Ending instances before their time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from waypost.errors import StaleVersion
from waypost.workflows import landing
from waypost.workflows.live import Live
from waypost.workflows.moves import Moves
from waypost.workflows.records import CANCEL
from waypost.workflows.shelf import Shelf

PATIENCE: Final = 10.0
"""Seconds that running moves have to end when they are to stop."""
_REPEATS: Final = 4


class Ending:
    """Stops what runs for an instance, and ends it where it stands."""

    def __init__(self, shelf: Shelf, moves: Moves, tasks: Mapping[asyncio.Task[Any], str]) -> None:
        self._shelf = shelf
        self._moves = moves
        self._tasks = tasks

    async def abandon(self, workflow_id: str, reason: str) -> None:
        """End an instance that nobody waits for any more, if it was started at all."""
        live = await self._shelf.get(workflow_id)
        if live is not None:
            await self.end(live, reason)

    async def end(self, live: Live, reason: str, by: str = "") -> Live:
        """End an instance, after what runs for it; whoever waits for that is told when it is over."""
        if live.id in self._moves.ending:
            await asyncio.shield(self._moves.ending[live.id])
            return await self._shelf.get(live.id) or live
        ending = self._moves.ending[live.id] = asyncio.get_running_loop().create_future()
        try:
            return await self._end_now(live, reason, by)
        finally:
            del self._moves.ending[live.id]
            ending.set_result(None)

    async def _end_now(self, live: Live, reason: str, by: str) -> Live:
        for _ in range(_REPEATS):
            running = [task for task, workflow_id in self._tasks.items() if workflow_id == live.id]
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running, timeout=PATIENCE)
            live = await self._shelf.get(live.id) or live
            if live.is_over:
                break
            now = time.time()
            told = landing.divert(live, None, CANCEL, by or live.body.owner.id, "cancelled", now, reason=reason)
            with suppress(StaleVersion):
                after = await self._moves.divert(live, told)
                if live.held is not None and live.held.child and (child := await self._shelf.get(live.held.child)):
                    await self.end(child, reason, by)
                return after
        return live
