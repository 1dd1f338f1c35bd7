"""Workflows that wait for other workflows.

The parent's move keeps its reservation and names the child, whose id follows from the idempotency key: run again after
a crash, the same child is found. When a child ends, its parent goes on; nothing polls for it, but for a look now and
then at parents whose child may have ended while nobody was there.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from waypost.capabilities.context import Caller
from waypost.errors import ExecutorFailed, StaleVersion, WorkflowRefused, class_of
from waypost.workflows.callers import absent
from waypost.workflows.chaining import Chains
from waypost.workflows.definition import Action
from waypost.workflows.live import Live
from waypost.workflows.moves import Moves, Taken
from waypost.workflows.records import Held, Parent
from waypost.workflows.scope import MISSING
from waypost.workflows.shelf import Shelf

DEEPEST: Final = 8
LOOK_AGAIN: Final = 60.0
_LISTEN: Final = 2.0
"""Seconds after which somebody who waits for a child looks whether it ended elsewhere."""

Data = dict[str, Any]


class Begin(Protocol):
    """Starts an instance under an id, or finds the one that has it."""

    def __call__(
        self, definition: str, given: Data, caller: Caller, workflow_id: str, parent: Parent | None, depth: int
    ) -> Awaitable[Live]: ...


class Children:
    """Starts children and hears of their ends."""

    def __init__(self, shelf: Shelf, begin: Begin, cancel: Callable[[Live, str], Awaitable[Live]]) -> None:
        self._shelf = shelf
        self._begin = begin
        self._cancel = cancel
        self._listeners: dict[str, asyncio.Event] = {}
        self.moves: Moves
        self.chains: Chains

    async def begin(self, live: Live, action: Action, held: Held, caller: Caller) -> Taken:
        """Start the child of a move; its end, if that comes at once, is the end of the move."""
        plan = action.child
        assert plan is not None
        child_id = _id_of(live.id, held.key)
        held = msgspec.structs.replace(held, kind="child", child=child_id, holder="")
        parked = await self.moves.reserve(live, held, time.time() + min(LOOK_AGAIN, plan.within or LOOK_AGAIN))
        try:
            return await self.wait_for(parked, held, caller)
        except StaleVersion:
            if held.chained:
                raise
            return Taken(await self._shelf.get(live.id) or live)  # somebody else woke it: trying again makes another

    async def wait_for(self, live: Live, held: Held, caller: Caller) -> Taken:
        """Start the child of a parked move unless it is there already, and end the move if the child has ended."""
        plan = live.action(held.move).child
        assert plan is not None
        given = held.arguments if plan.input is None else plan.input.fill(live.scope(held.by, held.arguments))
        listener = self._listeners[held.child] = asyncio.Event()
        try:
            if live.body.depth >= DEEPEST:
                raise WorkflowRefused(f"Workflows wait for each other more than {DEEPEST} deep.")
            child = await self._begin(
                plan.definition,
                {} if given is MISSING else given,
                caller,
                held.child,
                Parent(live.id),
                live.body.depth + 1,
            )
        except WorkflowRefused as error:
            return await self.moves.fail(live, held, _refused(error))
        finally:
            self._listeners.pop(held.child, None)
        if listener.is_set() and not child.is_over:  # it has ended since it was read
            child = await self._shelf.get(held.child) or child
        return await self._end(live, held, child) if child.is_over else Taken(live)

    async def _end(self, live: Live, held: Held, child: Live) -> Taken:
        if child.body.outcome == "succeeded":
            return await self.moves.finish(live, held, result_of(child))
        told = f"Workflow {child.definition.id} ({child.id}) ended as {child.body.outcome} in {child.state.name}."
        return await self.moves.fail(live, held, ExecutorFailed(told))

    def ended(self, child: Live) -> bool:
        """Hear of an end; true when somebody waits for it right here."""
        listener = self._listeners.get(child.id)
        if listener is not None:
            listener.set()
        return listener is not None

    async def wake(self, parent_id: str) -> None:
        """Let a parent go on whose child has ended, or has taken too long."""
        live = await self._shelf.get(parent_id)
        if live is None or live.held is None or live.held.kind != "child":
            return
        held, caller = live.held, absent(live.held.by, live.id)
        with suppress(StaleVersion):  # somebody else woke it
            child = await self._shelf.get(held.child)
            plan = live.action(held.move).child
            assert plan is not None
            if child is None:
                taken = await self.wait_for(live, held, caller)
            elif child.is_over:
                taken = await self._end(live, held, child)
            elif plan.within is not None and held.began + plan.within <= time.time():
                await self._cancel(child, "its time was over")
                told = f"Workflow {plan.definition} did not end within {plan.within:g} s."
                taken = await self.moves.fail(live, held, ExecutorFailed(told, "timeout"))
            else:
                # Under the same token, which whoever started the child needs when it ends at once.
                again = time.time() + LOOK_AGAIN
                due = again if plan.within is None else min(again, held.began + plan.within)
                await self.moves.reserve(live, held, due, live.token)
                return
            await self.chains.go_on(taken, caller)

    async def run(self, definition: str, given: Data, key: str, caller: Caller, within: float | None) -> Data:
        """Run a child to its end and wait for it, for an executor inside another one."""
        parent = await self._shelf.get(caller.chain.run) if caller.chain.run else None
        depth = 1 if parent is None else parent.body.depth + 1
        if depth > DEEPEST:
            raise ExecutorFailed(f"Workflows wait for each other more than {DEEPEST} deep.")
        child_id = _id_of(caller.chain.run or f"wf_{0:012x}", key)
        listener = self._listeners[child_id] = asyncio.Event()
        try:
            async with asyncio.timeout(within):
                child = await self._begin(definition, given, caller, child_id, None, depth)
                while not child.is_over:
                    if child.body.halted is not None:
                        raise ExecutorFailed(f"Workflow {definition} stopped: {child.body.halted['message']}")
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LISTEN):
                            await listener.wait()
                    listener.clear()
                    child = await self._shelf.get(child_id) or child
        except TimeoutError:
            if (late := await self._shelf.get(child_id)) is not None:
                await self._cancel(late, "its time was over")
            raise ExecutorFailed(f"Workflow {definition} did not end within {within:g} s.", "timeout") from None
        except WorkflowRefused as error:
            raise _refused(error) from None
        finally:
            self._listeners.pop(child_id, None)
        if child.body.outcome != "succeeded":
            raise ExecutorFailed(f"Workflow {definition} ended as {child.body.outcome} in {child.state.name}.")
        return result_of(child)


def _refused(error: WorkflowRefused) -> ExecutorFailed:
    return ExecutorFailed(error.message, class_of(error))


def result_of(child: Live) -> Data:
    """What a workflow that has ended gives to the one that waited for it."""
    return {
        "workflowId": child.id,
        "state": child.state.name,
        "outcome": child.body.outcome,
        "context": child.body.context,
    }


def _id_of(parent_id: str, key: str) -> str:
    """The id of a child: it sorts with its parent, and is the same whenever the same move is run."""
    return f"wf_{parent_id.removeprefix('wf_')[:12]}{hashlib.sha256(key.encode()).hexdigest()[:12]}"
