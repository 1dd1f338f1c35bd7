"""A move of an instance: reserved, run, committed; or settled when it comes to nothing.

Who only moves on commits at once: the version is the fence. Whoever runs something reserves first, so that of many
who try only one runs it. A move that has to wait, for people or for another workflow, keeps its reservation.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from waypost.capabilities.context import Caller
from waypost.errors import ExecutorFailed, StaleVersion, StoreError, StoreUnavailable, WorkflowRefused
from waypost.stores.instances import Reservation
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord
from waypost.workflows import answers, landing
from waypost.workflows.callers import for_workflow
from waypost.workflows.definition import Action
from waypost.workflows.executors.kind import Run
from waypost.workflows.executors.reliability import AttemptsFailed
from waypost.workflows.landing import Landing, asked
from waypost.workflows.live import Live
from waypost.workflows.recording import Recorder
from waypost.workflows.records import CANCEL, TIMEOUT, Held, canonical
from waypost.workflows.shelf import Shelf

LEASE: Final = 30.0
"""Seconds for which a move is held at a time."""
_PATIENCE: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts to commit what was done, while the store cannot be reached."""
_log: Final = logging.getLogger(__name__)

Data = dict[str, Any]


class Request(msgspec.Struct, frozen=True):
    """A submit that can be recognised when it comes again."""

    id: str = ""
    digest: str = ""


class Taken(msgspec.Struct, frozen=True):
    """How a move ended: where the instance stands now, and what went wrong."""

    live: Live
    error: Data | None = None
    hop: Data | None = None


class Moves:
    """Takes moves, one at a time for each instance."""

    def __init__(
        self,
        store: Store,
        shelf: Shelf,
        recorder: Recorder,
        holder: str,
        spawn: Callable[[Coroutine[Any, Any, Taken], str], asyncio.Task[Taken]],
        begin_child: Callable[[Live, Action, Held, Caller], Coroutine[Any, Any, Taken]],
        ended: Callable[[Live], None],
    ) -> None:
        self._store = store
        self._shelf = shelf
        self._recorder = recorder
        self.holder = holder
        self._spawn = spawn
        self._begin_child = begin_child
        self._ended = ended
        self.running: dict[str, str] = {}
        """The moves this process is running: instance by token."""
        self.ending: dict[str, asyncio.Future[None]] = {}
        """Instances that are being ended right now, while their moves are stopped."""

    async def take(
        self,
        live: Live,
        move: str,
        arguments: Data,
        caller: Caller,
        *,
        chained: bool = False,
        request: Request | None = None,
    ) -> Taken:
        """Take a move that is allowed; `StaleVersion` when somebody else was first."""
        action = live.action(move)
        held = Held(kind="executing", move=move, by=caller.principal, key="", arguments=arguments, chained=chained)
        if request is not None:
            held = replace(held, request=request.id, request_digest=request.digest)
        if action.is_pure:
            return await self.finish(live, held, {} if action.kind == "noop" else None)
        held = replace(held, key=_key(action.key, live.id, move), holder=self.holder, began=time.time())
        if action.human is not None:
            return await self._wait_for_people(live, action, held, caller)
        if action.child is not None:
            return await self._begin_child(live, action, held, caller)
        reserved = await self.reserve(live, held)
        try:
            return await self.run(reserved, caller)
        except StaleVersion:
            if chained:
                raise
            told = f"{move} was taken over by others while it ran."  # trying again would do it twice
            raise WorkflowRefused(told, "STALE_WORKFLOW_VERSION") from None

    async def reserve(self, live: Live, held: Held, until: float | None = None, token: str = "") -> Live:
        """Be the one who moves an instance on, in place of whoever held it in `live`."""
        token, until = token or secrets.token_hex(12), until or time.time() + LEASE
        if held.kind in ("approval", "child") and live.body.deadline:
            until = min(until, live.body.deadline)
        if not await self._store.instances.reserve(live.id, live.version, Reservation(token, until, held), live.token):
            self._shelf.drop(live.id)
            raise StaleVersion(f"Instance {live.id} is being moved by somebody else.")
        reserved = replace(live, held=held, token=token, until=until)
        self._shelf.keep(reserved)
        return reserved

    async def _wait_for_people(self, live: Live, action: Action, held: Held, caller: Caller) -> Taken:
        approval = asked(live, action, held)
        held = replace(held, kind="approval", approval=approval, holder="")
        parked = await self.reserve(live, held, approval.expires_at, f"{approval.id}.0")
        self._recorder.note(parked, caller, "approval.requested", approval.digest)
        return Taken(parked)

    async def run(self, live: Live, caller: Caller) -> Taken:
        """Run what a reserved move runs; it goes on when whoever waits for it leaves."""
        task = self._spawn(self._run(live, caller), live.id)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            if live.id in self.ending:
                await asyncio.shield(self.ending[live.id])
        except StaleVersion:
            pass
        return await self._cut_off(live)

    async def _cut_off(self, live: Live) -> Taken:
        """How a move ended that somebody else ended while it ran; `StaleVersion` unless the instance was cancelled."""
        held, after = live.held, await self._shelf.get(live.id)
        if after is not None and after.is_over and held is not None and not held.chained:
            found = await self._store.instances.history(live.id, live.version, 1)
            if found and found[0].value["transition"] == CANCEL:
                return Taken(after, _lost(live, held, found[0].value))
        raise StaleVersion(f"Instance {live.id} was moved on by others while it was moved.")

    async def _run(self, live: Live, caller: Caller) -> Taken:
        held = live.held
        assert held is not None
        action = live.action(held.move)
        assert action.runs is not None
        self.running[live.token] = live.id
        try:
            scope = live.scope(held.by, held.arguments)
            run = Run(scope, held.key, for_workflow(caller, live.definition.id, live.id))
            try:
                output, attempts = await action.runs.run(run)
            except ExecutorFailed as error:
                return await self.fail(live, held, error)
            except Exception as error:
                _log.exception("the executor of %s in %s crashed", held.move, live.id)
                return await self.fail(live, held, ExecutorFailed(f"{type(error).__name__}: {error}"))
            last = attempts[-1]
            told = {"ms": last["ms"], "attempts": attempts} if attempts[1:] else {"ms": last["ms"]}
            return await self.finish(live, held, output, proof=last.get("evidence"), **told)
        finally:
            self.running.pop(live.token, None)

    async def finish(self, live: Live, held: Held, output: Any, proof: str | None = None, **told: Any) -> Taken:
        """Commit a move that was done; `StaleVersion` when the instance is not where it was any more."""
        action = live.action(held.move)
        try:
            found = landing.land(live, held, action, output, time.time(), proof, **told)
            await self._commit(live, found, held, None)
        except StoreError as error:
            if type(error) is not StoreError:
                raise
            return await self.fail(live, held, ExecutorFailed(error.message))  # an output that is no JSON
        hop = landing.hop(live, held, found.live) if held.chained else None
        return Taken(found.live, hop=hop)

    async def _commit(self, live: Live, found: Landing, held: Held | None, error: Data | None) -> None:
        request = None
        if held is not None and held.request:
            answer = answers.outcome(found.live, held.by, error, [])
            request = RequestRecord(live.id, held.request, held.request_digest, answer)
        moved = found.live.stored(found.due_at, live.version)
        await self._persistently(live, found.entry, moved, request)
        self._shelf.keep(found.live)
        self._recorder.moved(live, found)
        if found.live.is_over:
            self._ended(found.live)

    async def _persistently(self, live: Live, entry: Data, moved: Any, request: RequestRecord | None) -> None:
        """Commit; what was done outside must not be forgotten because the store was away for a moment."""
        for pause in (*_PATIENCE, None):
            try:
                await self._store.instances.commit(moved, time.time(), entry, live.token, request)
                return
            except StoreUnavailable:
                if pause is None or not live.token:
                    raise
                await asyncio.sleep(pause)
            except StaleVersion:
                if await self._was_committed(live, entry):
                    return
                self._shelf.drop(live.id)
                raise

    async def _was_committed(self, live: Live, entry: Data) -> bool:
        """Whether the entry is there after all, from an attempt whose outcome nobody heard."""
        if "key" not in entry:
            return False
        found = await self._store.instances.history(live.id, live.version, 1)
        # Others may have ended the same move under the same key: after a takeover, or with other approvals.
        return bool(found) and canonical(found[0].value) == canonical(entry)

    async def divert(self, live: Live, found: Landing) -> Live:
        """Commit something else than a transition: a timeout, an end; the move on its way came to nothing by that."""
        held = live.held
        await self._commit(live, found, held, None if held is None else _lost(live, held, found.entry))
        return found.live

    async def fail(self, live: Live, held: Held, error: ExecutorFailed) -> Taken:
        """Settle a move that failed: the instance stays where it is."""
        told: Data = {
            "code": "CHAIN_FAILED" if held.chained else "EXECUTOR_FAILED",
            "message": error.message,
            "errorClass": error.error_class,
            "attemptedTransition": held.move,
        }
        attempts = error.attempts if isinstance(error, AttemptsFailed) else []
        return await self.settle(live, held, told, outcome="failed", **({"attempts": attempts} if attempts else {}))

    async def settle(self, live: Live, held: Held, error: Data | None, *, outcome: str, **noted: Any) -> Taken:
        """End a move that came to nothing, with a note of why; a chain that was on its way is halted."""
        halts = held.chained and error is not None
        after, due_at = landing.stay(live, error, halted=halts)
        note = {"transition": held.move, "by": held.by.id, "version": live.version, "outcome": outcome, **noted}
        if error is not None:
            note["error"] = error
        request = None
        if held.request:
            answer = answers.outcome(after, held.by, error, [])
            request = RequestRecord(live.id, held.request, held.request_digest, answer)
        try:
            await self._store.instances.settle(after.stored(due_at), time.time(), note, live.token, request)
        except StaleVersion:
            self._shelf.drop(live.id)
            raise
        self._shelf.keep(after)
        self._recorder.settled(live, note)
        return Taken(after, error)


def _lost(live: Live, held: Held, entry: Data) -> Data:
    """The error of a move that did not end before its instance did, or before the time was over."""
    is_late, reason = entry["transition"] == TIMEOUT, entry.get("reason")
    why = f"The time of {live.id} was over" if is_late else f"{live.id} was cancelled"
    return {
        "code": "EXECUTOR_FAILED",
        "message": f"{why} before {held.move} ended{f': {reason}' if reason else '.'}",
        "errorClass": "timeout" if is_late else "permanent_error",
        "attemptedTransition": held.move,
    }


def _key(template: str, workflow_id: str, move: str) -> str:
    correlation = secrets.token_hex(8)
    return (
        template.replace("{workflowId}", workflow_id)
        .replace("{transition}", move)
        .replace("{correlationId}", correlation)
    )
