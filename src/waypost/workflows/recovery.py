"""Applying what is due: timeouts, expiries, and moves whose process is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

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
    ) -> None:
        self._shelf = shelf
        self._moves = moves
        self._chains = chains
        self._gates = gates
        self._spawn = spawn
        self._cancel = cancel

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
            if live.until < now or is_gone(held.holder):
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
