"""What goes on by itself: entering states, and following deterministic transitions until somebody has to decide."""

from __future__ import annotations

from typing import Any

import msgspec

from waypost.capabilities.context import Caller
from waypost.errors import StaleVersion
from waypost.workflows.landing import chosen
from waypost.workflows.live import Live
from waypost.workflows.moves import Moves, Taken
from waypost.workflows.records import ENTER, Held
from waypost.workflows.shelf import Shelf

Data = dict[str, Any]


class Outcome(msgspec.Struct, frozen=True):
    """How far it went: where the instance stands, the hops in between, and what stopped it."""

    live: Live
    chain: list[Data]
    error: Data | None = None


class Chains:
    """Lets instances go on by themselves."""

    def __init__(self, moves: Moves, shelf: Shelf) -> None:
        self._moves = moves
        self._shelf = shelf
        self.busy: set[str] = set()
        """Instances that are going on in this process right now."""

    async def go_on(self, taken: Taken, caller: Caller) -> Outcome:
        """Go on from where a move ended, as far as it goes."""
        live = taken.live
        if taken.error is not None or not live.body.pending or live.body.halted or live.held is not None:
            return Outcome(live, [], taken.error)
        self.busy.add(live.id)
        try:
            return await self._follow(live, caller)
        finally:
            self.busy.discard(live.id)

    async def _follow(self, live: Live, caller: Caller) -> Outcome:
        chain: list[Data] = []
        try:
            while live.body.pending and live.held is None and not live.is_over:
                found = self._next(live, caller, len(chain))
                if isinstance(found, dict):
                    taken = await self._halt(live, caller, found)
                else:
                    taken = await self._moves.take(live, found, {}, caller, chained=True)
                live = taken.live
                if taken.hop is not None and taken.hop["transition"] != ENTER:
                    chain.append(taken.hop)
                if taken.error is not None:
                    return Outcome(live, chain, taken.error)
        except StaleVersion:  # somebody else has it now, and it goes on there
            live = await self._shelf.get(live.id) or live
        return Outcome(live, chain)

    def _next(self, live: Live, caller: Caller, hops: int) -> str | Data:
        """The next move, or the error that stops the chain."""
        if live.body.pending == "enter":
            return ENTER
        most = live.definition.max_chain_depth
        if hops >= most:
            message = f"{most} transitions were taken in a row, which is as many as maxChainDepth allows."
            return {"code": "CHAIN_DEPTH_EXCEEDED", "message": message}
        return chosen(live, caller)

    async def _halt(self, live: Live, caller: Caller, error: Data) -> Taken:
        held = Held(kind="executing", move="", by=caller.principal, key="", chained=True)
        return await self._moves.settle(live, held, error, outcome="halted")
