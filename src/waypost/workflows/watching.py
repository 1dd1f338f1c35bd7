"""Looks after what nobody asks for: timeouts, expiries, chains that stopped, moves whose process is gone."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Final

from waypost.errors import StaleVersion, StoreError
from waypost.stores.instances import Instance
from waypost.stores.store import Store
from waypost.workflows.callers import absent
from waypost.workflows.engine import Engine
from waypost.workflows.landing import chosen
from waypost.workflows.live import Live
from waypost.workflows.moves import LEASE, Taken
from waypost.workflows.records import ENTER

EVERY: Final = 0.5
"""Seconds between two looks."""
_RENEW: Final = LEASE / 3
_MOST: Final = 100
_PATIENCE: Final = 1.0
"""Seconds that what is seen to may take before the next is looked at."""
_log: Final = logging.getLogger(__name__)


class Watch:
    """Keeps the instances of a store going, as one of the hubs that share it."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._task: asyncio.Task[None] | None = None
        self._seeing: set[str] = set()

    def start(self) -> None:
        """Begin, with what an earlier process left behind."""
        if self._task is None:
            self._engine.recovery.begin()
            self._task = asyncio.get_running_loop().create_task(self._keep_looking())

    async def stop(self) -> None:
        """Look no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _keep_looking(self) -> None:
        recovered, renewed = False, time.monotonic()
        while True:
            if not recovered and await self._is_used():
                recovered = True
                await self._safely(self.recover())
            await asyncio.sleep(EVERY)
            if not recovered:
                continue
            if put_off := self._engine.recovery.put_off:
                put_off.clear()
                await self._safely(self.recover())
            if time.monotonic() - renewed >= _RENEW:
                renewed = time.monotonic()
                await self._safely(self._renew())
            await self._safely(self.look())

    async def _is_used(self) -> bool:
        """Whether there is a store to look into; looking must not be what makes one."""
        store = self._store
        try:
            return store.is_open or (store.database.is_durable and bool(await store.database.schema_version()))
        except StoreError:
            return True

    async def _safely(self, looking: object) -> None:
        try:
            await looking  # type: ignore[misc]  # a coroutine of this class
        except StoreError as error:
            _log.warning("workflows were not looked after: %s", error.message)
        except Exception:
            _log.exception("workflows were not looked after")

    async def recover(self) -> None:
        """Find moves and chains that an earlier process left behind, whatever time they have left."""
        after = ""
        while page := await self._store.instances.reserved(after, _MOST):
            await self._see_to(page)
            after = page[-1].id
        await self.look(ahead=LEASE)

    async def look(self, ahead: float = 0.0) -> None:
        """See to everything that is due."""
        instances, now = self._store.instances, time.time()
        await self._see_to(await instances.due(now + ahead, _MOST))
        await self._see_to(await instances.abandoned(now, _MOST))

    async def _see_to(self, page: list[Instance]) -> None:
        """See to all of them at once: what one takes up may run for long, and one that is damaged harms no other."""
        fresh = [one for one in page if one.id not in self._seeing]
        if tasks := [self._engine.spawn(self._see_once(one)) for one in fresh]:
            await asyncio.wait(tasks, timeout=_PATIENCE)

    async def _see_once(self, instance: Instance) -> None:
        self._seeing.add(instance.id)
        try:
            await self._see(instance)
        finally:
            self._seeing.discard(instance.id)

    async def _see(self, instance: Instance) -> None:
        engine = self._engine
        live = await engine.shelf.live(instance)
        if live.id in engine.chains.busy or live.token in engine.moves.running:
            return
        with suppress(StaleVersion):
            if live.held is not None and live.held.kind == "child" and not 0 < live.body.deadline <= time.time():
                await engine.children.wake(live.id)
                return
            outcome = await engine.recovery.up_to_date(live)
            if outcome.live.version == live.version and outcome.live.goes_on and not self._is_early(outcome.live):
                engine.chains.busy.add(live.id)
                engine.spawn(engine.chains.go_on(Taken(outcome.live), absent(live.body.owner, live.id)), live.id)

    def _is_early(self, live: Live) -> bool:
        move = ENTER if live.body.pending == "enter" else chosen(live, absent(live.body.owner, live.id))
        return isinstance(move, str) and self._engine.recovery.is_early(live, move)

    async def _renew(self) -> None:
        until = time.time() + LEASE
        for token, workflow_id in list(self._engine.moves.running.items()):
            await self._store.instances.renew(workflow_id, token, until)
