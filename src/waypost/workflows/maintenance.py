"""Periodic maintenance of instances: timeouts, expired approvals, interrupted chains, moves of dead processes.

`Recovery` brings one instance up to date; `Watch` finds the instances that need it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.capabilities.context import Caller
from waypost.errors import StaleVersion, StoreError
from waypost.stores.instances import Instance
from waypost.stores.store import Store
from waypost.workflows import transitions
from waypost.workflows.approvals import Gates
from waypost.workflows.instance import Live, Shelf, absent, is_gone
from waypost.workflows.records import ENTER, FOREVER, TIMEOUT, Held
from waypost.workflows.runner import LEASE, Chains, Moves, Outcome, Taken
from waypost.workflows.transitions import chosen

if TYPE_CHECKING:
    from waypost.workflows.engine import Engine

PATIENCE: Final = 30.0
"""Seconds after the start within which what a move calls may still be missing: workers and servers come later."""


class Recovery:
    """Brings instances up to date, whoever looks at them first."""

    def __init__(
        self,
        shelf: Shelf,
        moves: Moves,
        chains: Chains,
        gates: Gates,
        spawn: Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]],
        cancel: Callable[[Live, str], Awaitable[Live]],
        is_ready: Callable[[Live, str], bool],
    ) -> None:
        self._shelf = shelf
        self._moves = moves
        self._chains = chains
        self._gates = gates
        self._spawn = spawn
        self._cancel = cancel
        self._is_ready = is_ready
        self._patient_until = 0.0
        self.put_off: set[str] = set()
        """Instances that are looked at again soon, because what they call is not there yet."""

    def begin(self) -> None:
        """Be patient from now on."""
        self._patient_until = time.monotonic() + PATIENCE

    def is_early(self, live: Live, move: str) -> bool:
        """Whether a move calls what is not there, but may yet come."""
        if time.monotonic() >= self._patient_until or self._is_ready(live, move):
            return False
        self.put_off.add(live.id)
        return True

    async def up_to_date(self, live: Live) -> Outcome:
        """An instance with everything applied that is due: timeouts, expiries, moves whose process is gone."""
        now = time.time()
        if live.is_over or (live.held is None and not 0 < live.body.deadline <= now):
            return Outcome(live, [])
        try:
            return await self._look(live, now)
        except StaleVersion:
            return Outcome(await self._shelf.get(live.id) or live, [])

    async def _look(self, live: Live, now: float) -> Outcome:
        held = live.held
        if held is not None and held.kind == "executing":
            if (live.until < now or is_gone(held.holder)) and not self._waits(live, held):
                live = await self._take_over(live, held)
            return Outcome(live, [])
        if 0 < live.body.deadline <= now and (held is None or held.kind != "unknown"):
            leads = live.definition.model.on_timeout
            target = None if leads is None else leads.target
            told = transitions.divert(live, target, TIMEOUT, live.body.owner.id, "timed_out", now)
            after = await self._moves.divert(live, told)
            if held is not None and held.child and (child := await self._shelf.get(held.child)):
                await self._cancel(child, f"{live.id} waits for it no more")
            return await self._chains.go_on(Taken(after), absent(live.body.owner, live.id))
        if held is not None and held.approval is not None and held.approval.expires_at <= now:
            return Outcome((await self._gates.expire(live, held)).live, [])
        return Outcome(live, [])

    def _waits(self, live: Live, held: Held) -> bool:
        return live.action(held.move).idempotent and self.is_early(live, held.move)

    async def _take_over(self, live: Live, held: Held) -> Live:
        """Decide about a move whose process is gone: run it again if that does no harm, else leave it to people."""
        if live.action(held.move).idempotent:
            held = msgspec.structs.replace(held, holder=self._moves.holder)
            live = await self._moves.reserve(live, held)
            self._spawn(self._again(live, absent(held.by, live.id)), live.id)
            return live
        held = msgspec.structs.replace(held, kind="unknown", holder="")
        return await self._moves.reserve(live, held, FOREVER)

    async def _again(self, live: Live, caller: Caller) -> Outcome:
        return await self._chains.go_on(await self._moves.run(live, caller), caller)


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
