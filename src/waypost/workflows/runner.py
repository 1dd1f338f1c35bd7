"""Run moves of instances: reserve, run, commit; then follow the chain, wait for children, end instances.

A move without an executor commits at once, with the version as the fence. A move with an executor reserves the
instance first, so that only one process runs it. A move that waits for approval or for another workflow keeps its
reservation.

The parent of a child workflow names the child in its reservation. The child's id is derived from the idempotency key,
so a move that is run again after a crash finds the same child. The end of a child wakes its parent; `maintenance`
checks parents whose child ended while no process was running.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from waypost.capabilities.context import Caller
from waypost.errors import ExecutorFailed, StaleVersion, StoreError, StoreUnavailable, WorkflowRefused, class_of
from waypost.stores.instances import Reservation
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord
from waypost.workflows import answers, transitions
from waypost.workflows.audit import Recorder
from waypost.workflows.definitions import Action
from waypost.workflows.executors.kind import Run
from waypost.workflows.executors.reliability import AttemptsFailed
from waypost.workflows.instance import Live, Shelf, absent, for_workflow
from waypost.workflows.records import CANCEL, ENTER, TIMEOUT, Held, Parent, canonical
from waypost.workflows.scope import MISSING
from waypost.workflows.transitions import Landing, asked, chosen

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
            found = transitions.land(live, held, action, output, time.time(), proof, **told)
            await self._commit(live, found, held, None)
        except StoreError as error:
            if type(error) is not StoreError:
                raise
            return await self.fail(live, held, ExecutorFailed(error.message))  # an output that is no JSON
        hop = transitions.hop(live, held, found.live) if held.chained else None
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
        after, due_at = transitions.stay(live, error, halted=halts)
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


DEEPEST: Final = 8
LOOK_AGAIN: Final = 60.0
_LISTEN: Final = 2.0
"""Seconds after which somebody who waits for a child looks whether it ended elsewhere."""


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
            told = transitions.divert(live, None, CANCEL, by or live.body.owner.id, "cancelled", now, reason=reason)
            with suppress(StaleVersion):
                after = await self._moves.divert(live, told)
                if live.held is not None and live.held.child and (child := await self._shelf.get(live.held.child)):
                    await self.end(child, reason, by)
                return after
        return live
