"""Applying what is due: timeouts, expiries, and moves whose process is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import msgspec

from waypost.capabilities.context import Caller
from waypost.errors import StaleVersion
from waypost.workflows import landing
from waypost.workflows.callers import absent
from waypost.workflows.chaining import Chains, Outcome
from waypost.workflows.gates import Gates
from waypost.workflows.holders import is_gone
from waypost.workflows.live import Live
from waypost.workflows.moves import Moves, Taken
from waypost.workflows.records import FOREVER, TIMEOUT, Held
from waypost.workflows.shelf import Shelf

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
            told = landing.divert(live, target, TIMEOUT, live.body.owner.id, "timed_out", now)
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
