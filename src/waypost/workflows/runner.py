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
from waypost.workflows import transitions, views
from waypost.workflows.audit import Recorder
from waypost.workflows.definitions import CANCEL, ENTER, TIMEOUT, Action, canonical
from waypost.workflows.executors.kind import Run
from waypost.workflows.executors.reliability import AttemptsFailed
from waypost.workflows.instance import Instance, InstanceCache, Parent, PendingMove, detached_caller, for_workflow
from waypost.workflows.scope import MISSING
from waypost.workflows.transitions import AppliedTransition, choose_chained, request_approval

LEASE_S: Final = 30.0
"""How long a reservation lasts; `maintenance` renews it while the move runs."""
_COMMIT_RETRY_DELAYS_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Delays between attempts to commit a finished move while the store is unavailable."""
_log: Final = logging.getLogger(__name__)

Data = dict[str, Any]


MAX_CHILD_DEPTH: Final = 8
CHILD_CHECK_S: Final = 60.0
_CHILD_WAIT_S: Final = 2.0
"""How often an executor that waits for a child checks whether it ended in another process."""
STOP_TIMEOUT_S: Final = 10.0
"""How long cancelled moves may take to end."""
_MAX_END_ATTEMPTS: Final = 4


class Request(msgspec.Struct, frozen=True):
    """The request id of a submit and the digest of its arguments, by which a repeated submit is recognised."""

    id: str = ""
    digest: str = ""


class MoveResult(msgspec.Struct, frozen=True):
    """The instance after a move, the error if it failed, and the hop if it was part of a chain."""

    instance: Instance
    error: Data | None = None
    hop: Data | None = None


class Moves:
    """Reserves, runs and commits moves; the store lets one process at a time move an instance."""

    def __init__(
        self,
        store: Store,
        cache: InstanceCache,
        recorder: Recorder,
        holder: str,
        spawn: Callable[[Coroutine[Any, Any, MoveResult], str], asyncio.Task[MoveResult]],
        ended: Callable[[Instance], None],
    ) -> None:
        self._store = store
        self._cache = cache
        self._recorder = recorder
        self.holder = holder
        self._spawn = spawn
        self._ended = ended
        self.running: dict[str, str] = {}
        """The moves that this process runs: reservation token to instance id."""
        self.ending: dict[str, asyncio.Future[None]] = {}
        """Instances that are being cancelled; each future completes when the cancellation is committed."""

    async def reserve(
        self, instance: Instance, pending_move: PendingMove, until: float | None = None, token: str = ""
    ) -> Instance:
        """Reserve an instance for a move; raises `StaleVersion` if it changed since it was read.

        The store compares the version and the token that `instance` was read with, so of several processes that try,
        one succeeds. A new token fences the previous holder: its commit fails, even if its executor still runs.
        """
        token, until = token or secrets.token_hex(12), until or time.time() + LEASE_S
        if pending_move.kind in ("approval", "child") and instance.body.deadline:
            until = min(until, instance.body.deadline)
        if not await self._store.instances.reserve(
            instance.id, instance.version, Reservation(token, until, pending_move), instance.token
        ):
            self._cache.drop(instance.id)
            raise StaleVersion(f"Instance {instance.id} is being moved by somebody else.")
        reserved = replace(instance, pending_move=pending_move, token=token, until=until)
        self._cache.keep(reserved)
        return reserved

    async def wait_for_approval(
        self, instance: Instance, action: Action, pending_move: PendingMove, caller: Caller
    ) -> MoveResult:
        """Park a move: reserve the instance until the approval is given, rejected or expired."""
        approval = request_approval(instance, action, pending_move)
        pending_move = replace(pending_move, kind="approval", approval=approval, holder="")
        parked = await self.reserve(instance, pending_move, approval.expires_at, f"{approval.id}.0")
        self._recorder.record_action(parked, caller, "approval.requested", approval.digest)
        return MoveResult(parked)

    async def run(self, instance: Instance, caller: Caller) -> MoveResult:
        """Run the executor of a reserved move; a caller that disconnects does not stop it."""
        task = self._spawn(self._run(instance, caller), instance.id)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            if instance.id in self.ending:
                await asyncio.shield(self.ending[instance.id])
        except StaleVersion:
            pass
        return await self._cut_off(instance)

    async def _cut_off(self, instance: Instance) -> MoveResult:
        """The result of a move whose instance was cancelled while it ran; raises `StaleVersion` in other cases."""
        pending_move, after = instance.pending_move, await self._cache.get(instance.id)
        if after is not None and after.is_over and pending_move is not None and not pending_move.chained:
            found = await self._store.instances.history(instance.id, instance.version, 1)
            if found and found[0].value["transition"] == CANCEL:
                return MoveResult(after, _interrupted_error(instance, pending_move, found[0].value))
        raise StaleVersion(f"Instance {instance.id} was moved on by others while it was moved.")

    async def _run(self, instance: Instance, caller: Caller) -> MoveResult:
        pending_move = instance.pending_move
        assert pending_move is not None
        action = instance.action(pending_move.move)
        assert action.runs is not None
        self.running[instance.token] = instance.id
        try:
            scope = instance.scope(pending_move.by, pending_move.arguments)
            run = Run(scope, pending_move.key, for_workflow(caller, instance.definition.id, instance.id))
            try:
                output, attempts = await action.runs.run(run)
            except ExecutorFailed as error:
                return await self.fail(instance, pending_move, error)
            except Exception as error:
                _log.exception("executor crashed: transition=%s instance=%s", pending_move.move, instance.id)
                return await self.fail(instance, pending_move, ExecutorFailed(f"{type(error).__name__}: {error}"))
            last = attempts[-1]
            details = {"ms": last["ms"], "attempts": attempts} if attempts[1:] else {"ms": last["ms"]}
            return await self.finish(instance, pending_move, output, proof=last.get("evidence"), **details)
        finally:
            self.running.pop(instance.token, None)

    async def finish(
        self, instance: Instance, pending_move: PendingMove, output: Any, proof: str | None = None, **details: Any
    ) -> MoveResult:
        """Commit a move whose executor succeeded; raises `StaleVersion` if the instance changed meanwhile."""
        action = instance.action(pending_move.move)
        try:
            found = transitions.apply_transition(instance, pending_move, action, output, time.time(), proof, **details)
            await self._commit(instance, found, pending_move, None)
        except StoreError as error:
            if type(error) is not StoreError:
                raise
            # The store cannot encode the output as JSON.
            return await self.fail(instance, pending_move, ExecutorFailed(error.message))
        hop = transitions.describe_hop(instance, pending_move, found.instance) if pending_move.chained else None
        return MoveResult(found.instance, hop=hop)

    async def _commit(
        self, instance: Instance, found: AppliedTransition, pending_move: PendingMove | None, error: Data | None
    ) -> None:
        request = None if pending_move is None else _answer_request(found.instance, pending_move, error)
        moved = found.instance.to_record(found.due_at, instance.version)
        await self._persistently(instance, found.entry, moved, request)
        self._cache.keep(found.instance)
        self._recorder.record_transition(instance, found)
        if found.instance.is_over:
            self._ended(found.instance)

    async def _persistently(self, instance: Instance, entry: Data, moved: Any, request: RequestRecord | None) -> None:
        """Commit, and retry while the store is unavailable.

        A move with a token has run an executor, whose effects cannot be undone: giving up would leave its outcome
        unknown. A move without a token has done nothing yet and fails at once.
        """
        for pause in (*_COMMIT_RETRY_DELAYS_S, None):
            try:
                await self._store.instances.commit(moved, time.time(), entry, instance.token, request)
                return
            except StoreUnavailable:
                if pause is None or not instance.token:
                    raise
                await asyncio.sleep(pause)
            except StaleVersion:
                if await self._was_committed(instance, entry):
                    return
                self._cache.drop(instance.id)
                raise

    async def _was_committed(self, instance: Instance, entry: Data) -> bool:
        """Whether an earlier attempt was committed although its response was lost."""
        if "key" not in entry:
            return False
        found = await self._store.instances.history(instance.id, instance.version, 1)
        # The key alone proves nothing: another process may have committed the same move under the same key, after a
        # takeover or with other approvals. Only an identical entry is ours.
        return bool(found) and canonical(found[0].value) == canonical(entry)

    async def divert(self, instance: Instance, found: AppliedTransition) -> Instance:
        """Commit a timeout or a cancellation, by which the pending move fails."""
        pending_move = instance.pending_move
        await self._commit(
            instance,
            found,
            pending_move,
            None if pending_move is None else _interrupted_error(instance, pending_move, found.entry),
        )
        return found.instance

    async def fail(self, instance: Instance, pending_move: PendingMove, error: ExecutorFailed) -> MoveResult:
        """Record a failed move; the instance stays in its state."""
        failure: Data = {
            "code": "CHAIN_FAILED" if pending_move.chained else "EXECUTOR_FAILED",
            "message": error.message,
            "errorClass": error.error_class,
            "attemptedTransition": pending_move.move,
        }
        attempts = error.attempts if isinstance(error, AttemptsFailed) else []
        return await self.settle(
            instance, pending_move, failure, outcome="failed", **({"attempts": attempts} if attempts else {})
        )

    async def settle(
        self, instance: Instance, pending_move: PendingMove, error: Data | None, *, outcome: str, **noted: Any
    ) -> MoveResult:
        """Release a move that did not succeed and add a note with the reason; a chain is halted by an error."""
        halts = pending_move.chained and error is not None
        after, due_at = transitions.keep_state(instance, error, halted=halts)
        note = {
            "transition": pending_move.move,
            "by": pending_move.by.id,
            "version": instance.version,
            "outcome": outcome,
            **noted,
        }
        if error is not None:
            note["error"] = error
        request = _answer_request(after, pending_move, error)
        try:
            await self._store.instances.settle(after.to_record(due_at), time.time(), note, instance.token, request)
        except StaleVersion:
            self._cache.drop(instance.id)
            raise
        self._cache.keep(after)
        self._recorder.record_failed_move(instance, note)
        return MoveResult(after, error)


def _answer_request(after: Instance, pending_move: PendingMove, error: Data | None) -> RequestRecord | None:
    """The answer to store with the move, in one transaction, so that a repeated request finds it."""
    if not pending_move.request:
        return None
    answer = views.answer_outcome(after, pending_move.by, error, [])
    return RequestRecord(after.id, pending_move.request, pending_move.request_digest, answer)


def _interrupted_error(instance: Instance, pending_move: PendingMove, entry: Data) -> Data:
    """The error of a move that was interrupted by a timeout or by the cancellation of its instance."""
    is_late, reason = entry["transition"] == TIMEOUT, entry.get("reason")
    why = f"The time of {instance.id} was over" if is_late else f"{instance.id} was cancelled"
    return {
        "code": "EXECUTOR_FAILED",
        "message": f"{why} before {pending_move.move} ended{f': {reason}' if reason else '.'}",
        "errorClass": "timeout" if is_late else "permanent_error",
        "attemptedTransition": pending_move.move,
    }


def _idempotency_key(template: str, workflow_id: str, move: str) -> str:
    """The key that executors send to what they call.

    It is stored with the reservation and stays the same when the move is run again, so that the other side can
    recognise the repetition.
    """
    correlation = secrets.token_hex(8)
    return (
        template.replace("{workflowId}", workflow_id)
        .replace("{transition}", move)
        .replace("{correlationId}", correlation)
    )


class Outcome(msgspec.Struct, frozen=True):
    """The instance after a move and its chain, the hops of the chain, and the error that stopped it."""

    instance: Instance
    chain: list[Data]
    error: Data | None = None


class StartChild(Protocol):
    """Starts an instance with a given id, or returns the existing one."""

    def __call__(
        self, definition: str, given: Data, caller: Caller, workflow_id: str, parent: Parent | None, depth: int
    ) -> Awaitable[Instance]: ...


class Children:
    """Starts child workflows, and ends the moves of parents that wait for them."""

    def __init__(
        self,
        cache: InstanceCache,
        moves: Moves,
        begin: StartChild,
        cancel: Callable[[Instance, str], Awaitable[Instance]],
    ) -> None:
        self._cache = cache
        self._moves = moves
        self._begin = begin
        self._cancel = cancel
        self._listeners: dict[str, asyncio.Event] = {}

    async def begin(self, instance: Instance, action: Action, pending_move: PendingMove, caller: Caller) -> MoveResult:
        """Reserve a move and start its child; a child that ends at once ends the move."""
        plan = action.child
        assert plan is not None
        child_id = _child_id(instance.id, pending_move.key)
        pending_move = msgspec.structs.replace(pending_move, kind="child", child=child_id, holder="")
        parked = await self._moves.reserve(
            instance, pending_move, time.time() + min(CHILD_CHECK_S, plan.within or CHILD_CHECK_S)
        )
        try:
            return await self.wait_for(parked, pending_move, caller)
        except StaleVersion:
            if pending_move.chained:
                raise
            # Another process woke the parent; a retry would start a second child.
            return MoveResult(await self._cache.get(instance.id) or instance)

    async def wait_for(self, instance: Instance, pending_move: PendingMove, caller: Caller) -> MoveResult:
        """Start the child of a reserved move, or find it, and end the move if the child has ended."""
        plan = instance.action(pending_move.move).child
        assert plan is not None
        given: Any = pending_move.arguments
        if plan.input is not None:
            given = plan.input.fill(instance.scope(pending_move.by, pending_move.arguments))
        listener = self._listeners[pending_move.child] = asyncio.Event()
        try:
            if instance.body.depth >= MAX_CHILD_DEPTH:
                raise WorkflowRefused(f"Workflows wait for each other more than {MAX_CHILD_DEPTH} deep.")
            child = await self._begin(
                plan.definition,
                {} if given is MISSING else given,
                caller,
                pending_move.child,
                Parent(instance.id),
                instance.body.depth + 1,
            )
        except WorkflowRefused as error:
            return await self._moves.fail(instance, pending_move, _to_executor_error(error))
        finally:
            self._listeners.pop(pending_move.child, None)
        if listener.is_set() and not child.is_over:  # the child ended after it was read
            child = await self._cache.get(pending_move.child) or child
        return await self._end(instance, pending_move, child) if child.is_over else MoveResult(instance)

    async def _end(self, instance: Instance, pending_move: PendingMove, child: Instance) -> MoveResult:
        if child.body.outcome == "succeeded":
            return await self._moves.finish(instance, pending_move, child_result(child))
        message = f"Workflow {child.definition.id} ({child.id}) ended as {child.body.outcome} in {child.state.name}."
        return await self._moves.fail(instance, pending_move, ExecutorFailed(message))

    def ended(self, child: Instance) -> bool:
        """Notify the waiter for a child that ended; false if none waits in this process."""
        listener = self._listeners.get(child.id)
        if listener is not None:
            listener.set()
        return listener is not None

    async def check(self, instance: Instance, pending_move: PendingMove, caller: Caller) -> MoveResult | None:
        """End the move of a parent whose child has ended or is late; `None` while it has to wait."""
        child = await self._cache.get(pending_move.child)
        plan = instance.action(pending_move.move).child
        assert plan is not None
        if child is None:
            return await self.wait_for(instance, pending_move, caller)
        if child.is_over:
            return await self._end(instance, pending_move, child)
        if plan.within is not None and pending_move.began + plan.within <= time.time():
            await self._cancel(child, "its time was over")
            message = f"Workflow {plan.definition} did not end within {plan.within:g} s."
            return await self._moves.fail(instance, pending_move, ExecutorFailed(message, "timeout"))
        again = time.time() + CHILD_CHECK_S
        due = again if plan.within is None else min(again, pending_move.began + plan.within)
        # Keep the token: the process that started the child commits with it when the child ends.
        await self._moves.reserve(instance, pending_move, due, instance.token)
        return None

    async def run(self, definition: str, given: Data, key: str, caller: Caller, within: float | None) -> Data:
        """Run a child and wait for its end, for a `workflow` executor nested in another executor."""
        parent = await self._cache.get(caller.chain.run) if caller.chain.run else None
        depth = 1 if parent is None else parent.body.depth + 1
        if depth > MAX_CHILD_DEPTH:
            raise ExecutorFailed(f"Workflows wait for each other more than {MAX_CHILD_DEPTH} deep.")
        child_id = _child_id(caller.chain.run or f"wf_{0:012x}", key)
        listener = self._listeners[child_id] = asyncio.Event()
        try:
            async with asyncio.timeout(within):
                child = await self._begin(definition, given, caller, child_id, None, depth)
                while not child.is_over:
                    if child.body.halted is not None:
                        raise ExecutorFailed(f"Workflow {definition} stopped: {child.body.halted['message']}")
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_CHILD_WAIT_S):
                            await listener.wait()
                    listener.clear()
                    child = await self._cache.get(child_id) or child
        except TimeoutError:
            if (late := await self._cache.get(child_id)) is not None:
                await self._cancel(late, "its time was over")
            raise ExecutorFailed(f"Workflow {definition} did not end within {within:g} s.", "timeout") from None
        except WorkflowRefused as error:
            raise _to_executor_error(error) from None
        finally:
            self._listeners.pop(child_id, None)
        if child.body.outcome != "succeeded":
            raise ExecutorFailed(f"Workflow {definition} ended as {child.body.outcome} in {child.state.name}.")
        return child_result(child)


def _to_executor_error(error: WorkflowRefused) -> ExecutorFailed:
    return ExecutorFailed(error.message, class_of(error))


def child_result(child: Instance) -> Data:
    """The output of an ended child, as its parent gets it."""
    return {
        "workflowId": child.id,
        "state": child.state.name,
        "outcome": child.body.outcome,
        "context": child.body.context,
    }


def _child_id(parent_id: str, key: str) -> str:
    """The id of a child: it sorts with its parent, and is the same each time the same move is run."""
    return f"wf_{parent_id.removeprefix('wf_')[:12]}{hashlib.sha256(key.encode()).hexdigest()[:12]}"


class Chains:
    """Takes moves and follows chains: entry actions and deterministic transitions, until a caller has to decide."""

    def __init__(self, moves: Moves, children: Children, cache: InstanceCache) -> None:
        self._moves = moves
        self._children = children
        self._cache = cache
        self.busy: set[str] = set()
        """Ids of the instances whose chain this process follows."""

    async def take(
        self,
        instance: Instance,
        move: str,
        arguments: Data,
        caller: Caller,
        *,
        chained: bool = False,
        request: Request | None = None,
    ) -> MoveResult:
        """Run a move that was checked; raises `StaleVersion` if another caller moved the instance first."""
        action = instance.action(move)
        pending_move = PendingMove(
            kind="executing", move=move, by=caller.principal, key="", arguments=arguments, chained=chained
        )
        if request is not None:
            pending_move = replace(pending_move, request=request.id, request_digest=request.digest)
        if action.is_pure:
            return await self._moves.finish(instance, pending_move, {} if action.kind == "noop" else None)
        pending_move = replace(
            pending_move,
            key=_idempotency_key(action.key, instance.id, move),
            holder=self._moves.holder,
            began=time.time(),
        )
        if action.human is not None:
            return await self._moves.wait_for_approval(instance, action, pending_move, caller)
        if action.child is not None:
            return await self._children.begin(instance, action, pending_move, caller)
        reserved = await self._moves.reserve(instance, pending_move)
        try:
            return await self._moves.run(reserved, caller)
        except StaleVersion:
            if chained:
                raise
            # The executor has run: `StaleVersion` would make the caller retry and run it a second time.
            message = f"{move} was taken over by others while it ran."
            raise WorkflowRefused(message, "STALE_WORKFLOW_VERSION") from None

    async def follow(self, taken: MoveResult, caller: Caller) -> Outcome:
        """Follow the chain after a move until it ends, waits or fails."""
        instance = taken.instance
        if (
            taken.error is not None
            or not instance.body.pending
            or instance.body.halted
            or instance.pending_move is not None
        ):
            return Outcome(instance, [], taken.error)
        self.busy.add(instance.id)
        try:
            return await self._follow(instance, caller)
        finally:
            self.busy.discard(instance.id)

    async def _follow(self, instance: Instance, caller: Caller) -> Outcome:
        chain: list[Data] = []
        try:
            while instance.body.pending and instance.pending_move is None and not instance.is_over:
                found = self._next(instance, caller, len(chain))
                if isinstance(found, dict):
                    taken = await self._halt(instance, caller, found)
                else:
                    taken = await self.take(instance, found, {}, caller, chained=True)
                instance = taken.instance
                if taken.hop is not None and taken.hop["transition"] != ENTER:
                    chain.append(taken.hop)
                if taken.error is not None:
                    return Outcome(instance, chain, taken.error)
        except StaleVersion:  # another process moved the instance and follows the chain there
            instance = await self._cache.get(instance.id) or instance
        return Outcome(instance, chain)

    async def wake(self, parent_id: str) -> None:
        """Continue a parent whose child has ended or has exceeded its time limit."""
        with suppress(StaleVersion):  # another process woke the parent
            parent = await self._cache.get(parent_id)
            if parent is None or parent.pending_move is None or parent.pending_move.kind != "child":
                return
            caller = detached_caller(parent.pending_move.by, parent.id)
            result = await self._children.check(parent, parent.pending_move, caller)
            if result is not None:
                await self.follow(result, caller)

    def _next(self, instance: Instance, caller: Caller, hops: int) -> str | Data:
        """The name of the next move, or the error that stops the chain."""
        if instance.body.pending == "enter":
            return ENTER
        most = instance.definition.max_chain_depth
        if hops >= most:
            message = f"{most} transitions were taken in a row, which is as many as maxChainDepth allows."
            return {"code": "CHAIN_DEPTH_EXCEEDED", "message": message}
        return choose_chained(instance, caller)

    async def _halt(self, instance: Instance, caller: Caller, error: Data) -> MoveResult:
        pending_move = PendingMove(kind="executing", move="", by=caller.principal, key="", chained=True)
        return await self._moves.settle(instance, pending_move, error, outcome="halted")


class Ending:
    """Cancels instances: stops their running moves, then commits the end."""

    def __init__(self, cache: InstanceCache, moves: Moves, tasks: Mapping[asyncio.Task[Any], str]) -> None:
        self._cache = cache
        self._moves = moves
        self._tasks = tasks

    async def abandon(self, workflow_id: str, reason: str) -> None:
        """Cancel an instance whose caller is gone, if it was started."""
        instance = await self._cache.get(workflow_id)
        if instance is not None:
            await self.end(instance, reason)

    async def end(self, instance: Instance, reason: str, by: str = "") -> Instance:
        """Cancel an instance and its child; concurrent calls wait for the first one."""
        if instance.id in self._moves.ending:
            await asyncio.shield(self._moves.ending[instance.id])
            return await self._cache.get(instance.id) or instance
        ending = self._moves.ending[instance.id] = asyncio.get_running_loop().create_future()
        try:
            return await self._end_now(instance, reason, by)
        finally:
            del self._moves.ending[instance.id]
            ending.set_result(None)

    async def _end_now(self, instance: Instance, reason: str, by: str) -> Instance:
        for _ in range(_MAX_END_ATTEMPTS):
            running = [task for task, workflow_id in self._tasks.items() if workflow_id == instance.id]
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running, timeout=STOP_TIMEOUT_S)
            instance = await self._cache.get(instance.id) or instance
            if instance.is_over:
                break
            now = time.time()
            cancelled = transitions.interrupt(
                instance, None, CANCEL, by or instance.body.owner.id, "cancelled", now, reason=reason
            )
            with suppress(StaleVersion):
                after = await self._moves.divert(instance, cancelled)
                if (
                    instance.pending_move is not None
                    and instance.pending_move.child
                    and (child := await self._cache.get(instance.pending_move.child))
                ):
                    await self.end(child, reason, by)
                return after
        return instance
