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
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from waypost.capabilities.context import Caller
from waypost.errors import ExecutorFailed, StaleVersion, StoreError, StoreUnavailable, WorkflowRefused, class_of
from waypost.loops import cancel_tasks, wait_for_event
from waypost.stores.instances import Reservation
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord
from waypost.workflows import transitions, views
from waypost.workflows.definitions import CANCEL, ENTER, Action, canonical
from waypost.workflows.executors.kind import Run
from waypost.workflows.executors.reliability import AttemptsFailed, can_retry, delay
from waypost.workflows.instance import (
    Instance,
    InstanceCache,
    Parent,
    PendingMove,
    detached_caller,
    for_workflow,
    identify_process,
)
from waypost.workflows.scope import MISSING
from waypost.workflows.transitions import AppliedTransition, choose_chained, request_approval
from waypost.workflows.views import Recorder

LEASE_S: Final = 30.0
"""How long a reservation lasts; `maintenance` renews it while the move runs."""
MAX_CHILD_DEPTH: Final = 8
CHILD_CHECK_S: Final = 60.0
"""How often a parent that waits for a child is checked."""
STOP_TIMEOUT_S: Final = 10.0
"""How long cancelled moves may take to end."""
_COMMIT_RETRY_DELAYS_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Delays between attempts to commit a finished move while the store is unavailable."""
_CHILD_WAIT_S: Final = 2.0
"""How often an executor that waits for a child checks whether it ended in another process."""
_MAX_END_ATTEMPTS: Final = 4
_log: Final = logging.getLogger(__name__)

Data = dict[str, Any]


class Request(msgspec.Struct, frozen=True):
    """The request id of a submit and the digest of its arguments, by which a repeated submit is recognised."""

    id: str = ""
    digest: str = ""


NO_REQUEST: Final = Request()
"""For a submit without a request id, and for moves that no submit made."""


class Outcome(msgspec.Struct, frozen=True):
    """The instance after a move or a chain of moves, why the last one failed, and the hops of the chain."""

    instance: Instance
    error: Data | None = None
    chain: Sequence[Data] = ()


StartChild = Callable[[str, Data, Caller, str, Parent | None, int], Awaitable[Instance]]
"""Starts an instance, or returns the existing one: definition, input, caller, id, parent, depth."""


class Runner:
    """Runs the moves of instances and everything that follows from them.

    Replicas that share a store may all try to move an instance. The store decides: a reservation or a commit succeeds
    only with the version and the reservation token that the instance was read with.
    """

    def __init__(self, store: Store, cache: InstanceCache, recorder: Recorder, start_child: StartChild) -> None:
        self._store = store
        self.now = store.database.now
        self._cache = cache
        self._recorder = recorder
        self._start_child = start_child
        self.holder = identify_process()
        """The name of this process in its reservations."""
        self._tasks: dict[asyncio.Task[Any], str] = {}
        """Running work, and the instance that it belongs to."""
        self.running: dict[str, str] = {}
        """The moves that this process runs: reservation token to instance id."""
        self.busy: set[str] = set()
        """Ids of the instances whose chain this process follows."""
        self._ending: dict[str, asyncio.Future[None]] = {}
        """Instances that are being cancelled; each future completes when the cancellation is committed."""
        self._listeners: dict[str, asyncio.Event] = {}
        """The children that this process waits for; the event is set when the child ends."""
        self._is_stopping = False

    @property
    def is_busy(self) -> bool:
        """Whether this process moves an instance."""
        return bool(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, Any], workflow_id: str = "") -> asyncio.Task[Any]:
        """Run work as a task of the engine, which continues when its caller disconnects."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = workflow_id
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("workflow task failed: %s: %s", type(error).__name__, error)

    async def stop(self, timeout_s: float) -> None:
        """Wait for running work, then cancel the rest; the next start recovers it."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        self._is_stopping = True
        await cancel_tasks(self._tasks)
        self._is_stopping = False  # the hub may be started again

    async def reserve(
        self, instance: Instance, pending_move: PendingMove, until: float | None = None, token: str = ""
    ) -> Instance:
        """Reserve an instance for a move; raises `StaleVersion` if it changed since it was read.

        The store compares the version and the token that `instance` was read with, so of several processes that try,
        one succeeds. A new token fences the previous holder: its commit fails, even if its executor still runs.
        """
        token, until = token or secrets.token_hex(12), until or self.now() + LEASE_S
        # Maintenance looks for timeouts only among instances without a reservation, and among expired reservations.
        if pending_move.kind in ("approval", "child") and instance.body.deadline:
            until = min(until, instance.body.deadline)
        if not await self._store.instances.reserve(
            instance.id, instance.version, Reservation(token, until, pending_move), instance.token
        ):
            self._cache.drop(instance.id)
            raise StaleVersion(f"Instance {instance.id} is being moved by another caller.")
        reserved = replace(instance, pending_move=pending_move, token=token, until=until)
        self._cache.keep(reserved)
        return reserved

    async def take(
        self,
        instance: Instance,
        move: str,
        arguments: Data,
        caller: Caller,
        *,
        chained: bool = False,
        request: Request = NO_REQUEST,
    ) -> Outcome:
        """Run a move that was checked; raises `StaleVersion` if another caller moved the instance first."""
        action = instance.state.actions[move]
        pending_move = PendingMove(
            kind="executing",
            move=move,
            by=caller.principal,
            key="",
            arguments=arguments,
            chained=chained,
            via=caller.chain.type if caller.chain.type != "console" else caller.chain.caller,
            request=request.id,
            request_digest=request.digest,
        )
        # Without effects outside, the commit alone is the fence: of several submits on one version one succeeds.
        if action.is_pure:
            return await self.finish(instance, pending_move, {} if action.kind == "noop" else None)
        pending_move = replace(
            pending_move,
            key=transitions.idempotency_key(action.key, instance.id, move),
            holder=self.holder,
            began=self.now(),
        )
        if action.human is not None:
            return await self._wait_for_approval(instance, action, pending_move, caller)
        if action.child is not None:
            return await self._begin_child(instance, action, pending_move, caller)
        reserved = await self.reserve(instance, pending_move)
        try:
            return await self.run(reserved, caller)
        except StaleVersion:
            if chained:
                raise
            # The executor has run: `StaleVersion` would make the caller retry and run it a second time.
            return await self._find_takeover(reserved, pending_move)

    async def _find_takeover(self, instance: Instance, pending_move: PendingMove) -> Outcome:
        """The result of a move that another process took over while it ran here: where it stands there."""
        after = await self._cache.get(instance.id)
        if after is not None and after.pending_move is not None and after.pending_move.key == pending_move.key:
            return Outcome(after)
        found = await self._store.instances.history(instance.id, instance.version, 1)
        if after is not None and found and found[0].value.get("key") == pending_move.key:
            return Outcome(after)
        message = f"{pending_move.move} was taken over by another process while it ran, and did not move the instance."
        raise WorkflowRefused(message, "STALE_WORKFLOW_VERSION")

    async def take_once(
        self, instance: Instance, due_at: float, entry: Data, move: str, arguments: Data, caller: Caller
    ) -> Outcome:
        """Store a new instance with a move reserved, run the move, and remove the instance when it ends.

        One write before the executor runs and one after it, as for any move: a crash in between leaves the instance
        with its reservation, and `maintenance` takes it over.
        """
        key = transitions.idempotency_key(instance.state.actions[move].key, instance.id, move)
        now, token = self.now(), secrets.token_hex(12)
        pending_move = PendingMove(
            kind="executing",
            move=move,
            by=caller.principal,
            key=key,
            arguments=arguments,
            holder=self.holder,
            began=now,
            via=caller.chain.way_in,
            once=True,
        )
        record = replace(instance.to_record(due_at), reservation=Reservation(token, now + LEASE_S, pending_move))
        await self._store.instances.start(record, now, entry)
        reserved = replace(instance, pending_move=pending_move, token=token, until=now + LEASE_S)
        try:
            return await self.run(reserved, caller)
        except StaleVersion:
            message = f"{move} was taken over by another process while it ran; workflow.get shows its outcome."
            raise WorkflowRefused(message, "STALE_WORKFLOW_VERSION", workflowId=instance.id) from None

    async def _wait_for_approval(
        self, instance: Instance, action: Action, pending_move: PendingMove, caller: Caller
    ) -> Outcome:
        """Reserve the instance until the approval is given, rejected or expired."""
        approval = request_approval(instance, action, pending_move, self.now())
        pending_move = replace(pending_move, kind="approval", approval=approval, holder="")
        # The token counts the approvals, see `Approvals._apply`.
        reserved = await self.reserve(instance, pending_move, approval.expires_at, f"{approval.id}.0")
        self._recorder.record_action(reserved, caller, "approval.requested", approval.digest)
        return Outcome(reserved)

    async def run(self, instance: Instance, caller: Caller) -> Outcome:
        """Run the executor of a reserved move; a caller that disconnects does not stop it."""
        task = self.spawn(self._run(instance, caller), instance.id)
        try:
            # The shield: cancelling the caller must not cancel an executor whose effects cannot be undone.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            if instance.id in self._ending:  # `end` stops the executor first, and commits then
                await asyncio.shield(self._ending[instance.id])
        except StaleVersion:
            pass
        return await self._find_cancellation(instance)

    async def _find_cancellation(self, instance: Instance) -> Outcome:
        """The result of a move whose instance was cancelled while it ran; raises `StaleVersion` in other cases."""
        pending_move, after = instance.pending_move, await self._cache.get(instance.id)
        if after is not None and after.is_over and pending_move is not None and not pending_move.chained:
            found = await self._store.instances.history(instance.id, instance.version, 1)
            if found and found[0].value["transition"] == CANCEL:
                return Outcome(after, transitions.interrupted_error(instance, pending_move, found[0].value))
        raise StaleVersion(f"Instance {instance.id} was moved by another process meanwhile.")

    async def _run(self, instance: Instance, caller: Caller) -> Outcome:
        pending_move = instance.pending_move
        assert pending_move is not None
        action = instance.state.actions[pending_move.move]
        executor = action.runs or action.fallback
        assert executor is not None
        # From here on maintenance renews the lease of this move, and leaves its instance alone.
        self.running[instance.token] = instance.id
        try:
            scope = instance.scope(pending_move.by, pending_move.arguments)
            run = Run(scope, pending_move.key, for_workflow(caller, instance.definition.id, instance.id))
            try:
                output, attempts = await executor.run(run)
            except ExecutorFailed as error:
                return await self.fail(instance, pending_move, error)
            # A bug must end the move too: left reserved, it would be run again, or wait as an unknown outcome, after
            # the lease.
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
    ) -> Outcome:
        """Commit a move whose executor succeeded; raises `StaleVersion` if the instance changed meanwhile."""
        try:
            found = transitions.apply_transition(instance, pending_move, output, self.now(), proof, **details)
            await self._commit(instance, found, pending_move)
        except StoreError as error:
            # A subclass says that the store is unavailable or the version stale; the class itself, that the output
            # cannot be stored as JSON, which no other attempt would change.
            if type(error) is not StoreError:
                raise
            return await self.fail(instance, pending_move, ExecutorFailed(error.message))
        after = found.instance
        if not pending_move.chained or pending_move.move == ENTER:
            return Outcome(after)
        names = {"fromState": instance.state.name, "transition": pending_move.move, "toState": after.state.name}
        return Outcome(after, chain=[{**names, "version": after.version}])

    async def interrupt(self, instance: Instance, found: AppliedTransition, via: str = "workflow") -> Instance:
        """Commit a timeout or a cancellation, by which the pending move fails."""
        pending_move = instance.pending_move
        error = None if pending_move is None else transitions.interrupted_error(instance, pending_move, found.entry)
        await self._commit(instance, found, pending_move, error, via)
        return found.instance

    async def _commit(
        self,
        instance: Instance,
        found: AppliedTransition,
        pending_move: PendingMove | None,
        error: Data | None = None,
        via: str = "",
    ) -> None:
        """Commit a transition, and retry while the store is unavailable.

        A move with a token has run an executor, whose effects cannot be undone: giving up would leave its outcome
        unknown. A move without a token has done nothing yet and fails at once.
        """
        after, entry, request = found.instance, found.entry, None
        if pending_move is not None and pending_move.request:
            request = _answer_request(after, pending_move, error)
        record, before = after.to_record(found.due_at, instance.version), (instance.state.name, instance.settled)
        # A single call that succeeded leaves nothing; one that was interrupted stays, to show its outcome.
        removes = pending_move is not None and pending_move.once and error is None
        for pause in (*_COMMIT_RETRY_DELAYS_S, None):
            try:
                if removes:
                    await self._store.instances.remove_new(instance.id, instance.token)
                else:
                    await self._store.instances.commit(record, self.now(), entry, instance.token, request, before)
                break
            except StoreUnavailable:
                if pause is None or not instance.token:
                    raise
                await asyncio.sleep(pause)
            except StaleVersion:
                if await self._was_committed(instance, entry, removed=removes):
                    break
                self._cache.drop(instance.id)
                raise
        if not removes:
            self._cache.keep(after)
        self._recorder.record_transition(instance, found, via or (pending_move.via if pending_move else "workflow"))
        if after.is_over:
            self.announce_end(after)

    async def _was_committed(self, instance: Instance, entry: Data, *, removed: bool) -> bool:
        """Whether an earlier attempt was committed although its response was lost."""
        if removed:  # another process may take a reserved instance over, but does not remove it
            return await self._store.instances.get(instance.id) is None
        if "key" not in entry:
            return False
        found = await self._store.instances.history(instance.id, instance.version, 1)
        # The key alone proves nothing: another process may have committed the same move under the same key, after a
        # takeover or with other approvals. Only an identical entry is ours.
        return bool(found) and canonical(found[0].value) == canonical(entry)

    async def fail(self, instance: Instance, pending_move: PendingMove, error: ExecutorFailed, **noted: Any) -> Outcome:
        """Record a failed move; the instance stays in its state."""
        failure: Data = {
            "code": "CHAIN_FAILED" if pending_move.chained else "EXECUTOR_FAILED",
            "message": error.message,
            "errorClass": error.error_class,
            "attemptedTransition": pending_move.move,
        }
        if isinstance(error, AttemptsFailed) and error.attempts:
            noted["attempts"] = error.attempts
        return await self.settle(instance, pending_move, failure, outcome="failed", **noted)

    async def settle(
        self, instance: Instance, pending_move: PendingMove, error: Data | None, *, outcome: str, **noted: Any
    ) -> Outcome:
        """Release a move that did not succeed and add a note with the reason; a chain is halted by an error."""
        halts = pending_move.chained and error is not None
        after, due_at = transitions.keep_state(instance, error, halted=halts)
        note = {"transition": pending_move.move, "by": pending_move.by.id, "version": instance.version}
        note |= {"outcome": outcome, **noted} | ({} if error is None else {"error": error})
        request = _answer_request(after, pending_move, error) if pending_move.request else None
        try:
            if pending_move.once:
                await self._store.instances.remove_new(instance.id, instance.token)
            else:
                await self._store.instances.settle(after.to_record(due_at), self.now(), note, instance.token, request)
                self._cache.keep(after)
        except StaleVersion:
            self._cache.drop(instance.id)
            raise
        self._recorder.record_failed_move(instance, note)
        return Outcome(after, error)

    async def follow(self, taken: Outcome, caller: Caller) -> Outcome:
        """Follow the chain after a move: entry actions and deterministic transitions, until a caller has to decide."""
        instance, chain = taken.instance, list[Data]()
        waits = instance.body.halted or instance.pending_move is not None
        if taken.error is not None or waits or not instance.body.pending:
            return Outcome(instance, taken.error)
        self.busy.add(instance.id)  # or maintenance would take the chain for one that a crash interrupted
        try:
            while instance.body.pending and instance.pending_move is None and not instance.is_over:
                taken = await self._take_next(instance, caller, len(chain))
                instance = taken.instance
                chain += taken.chain
                if taken.error is not None:
                    return Outcome(instance, taken.error, chain)
        except StaleVersion:  # another process moved the instance and follows the chain there
            instance = await self._cache.get(instance.id) or instance
        finally:
            self.busy.discard(instance.id)
        return Outcome(instance, chain=chain)

    async def _take_next(self, instance: Instance, caller: Caller, hops: int) -> Outcome:
        """Take the next move of a chain, or halt the chain if there is none."""
        if instance.body.pending == "enter":
            return await self.take(instance, ENTER, {}, caller, chained=True)
        most = instance.definition.max_chain_depth
        if hops >= most:
            message = f"The chain stopped after {most} transitions, the limit that maxChainDepth sets."
            found: str | Data = {"code": "CHAIN_DEPTH_EXCEEDED", "message": message}
        else:
            found = choose_chained(instance, caller.principal)
        if isinstance(found, str):
            return await self.take(instance, found, {}, caller, chained=True)
        pending_move = PendingMove(kind="executing", move="", by=caller.principal, key="", chained=True)
        return await self.settle(instance, pending_move, found, outcome="halted")

    async def _begin_child(
        self, instance: Instance, action: Action, pending_move: PendingMove, caller: Caller
    ) -> Outcome:
        """Reserve a move and start its child; a child that ends at once ends the move."""
        plan = action.child
        assert plan is not None
        child_id = transitions.child_id(instance.id, pending_move.key)
        pending_move = replace(pending_move, kind="child", child=child_id, holder="")
        due = self.now() + _check_after(action)
        # Before the child exists: after a crash in between, maintenance finds the parent and starts the child.
        reserved = await self.reserve(instance, pending_move, due)
        try:
            return await self._wait_for_child(reserved, pending_move, caller)
        except StaleVersion:
            if pending_move.chained:
                raise
            # Another process woke the parent; a retry would start a second child.
            return Outcome(await self._cache.get(instance.id) or instance)

    async def _wait_for_child(self, instance: Instance, pending_move: PendingMove, caller: Caller) -> Outcome:
        """Start the child of a reserved move, or find it, and end the move if the child has ended."""
        plan = instance.state.actions[pending_move.move].child
        assert plan is not None
        given: Any = pending_move.arguments
        if plan.input is not None:
            given = plan.input.fill(instance.scope(pending_move.by, pending_move.arguments))
        depth = instance.body.depth + 1
        # Before the child is started: it may end, and say so, before `_start_child` returns.
        listener = self._listeners[pending_move.child] = asyncio.Event()
        try:
            _check_depth(depth)
            child = await self._start_child(
                plan.definition,
                {} if given is MISSING else given,
                caller,
                pending_move.child,
                Parent(instance.id),
                depth,
            )
        except WorkflowRefused as error:
            failure = ExecutorFailed(error.message, class_of(error))
            return await self._fail_child(instance, pending_move, failure, caller)
        finally:
            self._listeners.pop(pending_move.child, None)
        if listener.is_set() and not child.is_over:  # the child ended after it was read
            child = await self._cache.get(pending_move.child) or child
        return await self._end_wait(instance, pending_move, child, caller) if child.is_over else Outcome(instance)

    async def _end_wait(
        self, instance: Instance, pending_move: PendingMove, child: Instance, caller: Caller
    ) -> Outcome:
        if child.body.outcome == "succeeded":
            plan = instance.state.actions[pending_move.move].child
            assert plan is not None
            return await self.finish(instance, pending_move, transitions.child_output(child), plan.evidence)
        message = f"Workflow {child.definition.id} ({child.id}) ended as {child.body.outcome} in {child.state.name}."
        return await self._fail_child(instance, pending_move, ExecutorFailed(message), caller)

    async def _fail_child(
        self, instance: Instance, pending_move: PendingMove, error: ExecutorFailed, caller: Caller
    ) -> Outcome:
        """Start another child, or else run the fallbacks, or else end the move; the instance is reserved for it."""
        action, tries = instance.state.actions[pending_move.move], pending_move.tries + 1
        if can_retry(action.retry, tries, error):
            child_id = transitions.child_id(instance.id, f"{pending_move.key}#{tries}")
            began = self.now() + (pause := delay(action.retry, tries))
            pending_move = replace(pending_move, child=child_id, tries=tries, began=began)
            # When a pause is over, maintenance wakes the parent, and finds that the child does not exist.
            reserved = await self.reserve(instance, pending_move, began if pause else began + _check_after(action))
            return Outcome(reserved) if pause else await self._wait_for_child(reserved, pending_move, caller)
        if action.fallback is not None:
            pending_move = replace(pending_move, kind="executing", child="", holder=self.holder)
            return await self.run(await self.reserve(instance, pending_move), caller)
        return await self.fail(instance, pending_move, error)

    def announce_end(self, child: Instance) -> None:
        """Notify what waits for an instance that ended: an executor in this process, or its parent."""
        listener, parent = self._listeners.get(child.id), child.body.parent
        # What listens ends the parent's move itself; waking the parent too would race with it for the reservation.
        if listener is not None:
            listener.set()
        elif parent is not None:
            self.spawn(self.wake(parent.id))

    async def wake(self, parent_id: str) -> None:
        """Continue a parent whose child has ended or has exceeded its time limit."""
        with suppress(StaleVersion):  # another process woke the parent
            parent = await self._cache.get(parent_id)
            if parent is None or parent.pending_move is None or parent.pending_move.kind != "child":
                return
            caller = detached_caller(parent.pending_move.by, parent.id)
            result = await self._check_child(parent, parent.pending_move, caller)
            if result is not None:
                await self.follow(result, caller)

    async def _check_child(self, instance: Instance, pending_move: PendingMove, caller: Caller) -> Outcome | None:
        """End the move of a parent whose child has ended or is late; `None` while it has to wait."""
        child = await self._cache.get(pending_move.child)
        plan = instance.state.actions[pending_move.move].child
        assert plan is not None
        if child is None:  # not started yet: after a crash, or because the pause before another attempt is not over
            is_early = pending_move.began > self.now()
            return None if is_early else await self._wait_for_child(instance, pending_move, caller)
        if child.is_over:
            return await self._end_wait(instance, pending_move, child, caller)
        if plan.within is not None and pending_move.began + plan.within <= self.now():
            await self.end(child, "its time limit was exceeded")
            failure = ExecutorFailed(f"Workflow {plan.definition} did not end within {plan.within:g} s.", "timeout")
            return await self._fail_child(instance, pending_move, failure, caller)
        again = self.now() + CHILD_CHECK_S
        due = again if plan.within is None else min(again, pending_move.began + plan.within)
        # Keep the token: the process that started the child commits with it when the child ends.
        await self.reserve(instance, pending_move, due, instance.token)
        return None

    async def run_child(self, definition: str, given: Data, key: str, caller: Caller, within: float | None) -> Data:
        """Run a child and wait for its end, for a `workflow` executor nested in another executor.

        A deadline of the other executor, a part of it that failed, or a cancellation end the child too.
        """
        parent = await self._cache.get(caller.chain.run) if caller.chain.run else None
        depth = 1 if parent is None else parent.body.depth + 1
        child_id = await self._choose_child(caller.chain.run or key, key)
        # Without a parent in the store: only this executor waits. After a crash the outer move is run again under the
        # same key, and finds the same child.
        listener = self._listeners[child_id] = asyncio.Event()
        try:
            _check_depth(depth)
            async with asyncio.timeout(within):
                child = await self._start_child(definition, given, caller, child_id, None, depth)
                while not child.is_over:
                    if child.body.halted is not None:
                        raise ExecutorFailed(f"Workflow {definition} stopped: {child.body.halted['message']}")
                    await wait_for_event(listener, _CHILD_WAIT_S)
                    listener.clear()
                    child = await self._cache.get(child_id) or child
        except TimeoutError:
            if (late := await self._cache.get(child_id)) is not None:
                await self.end(late, "its time limit was exceeded")
            raise ExecutorFailed(f"Workflow {definition} did not end within {within:g} s.", "timeout") from None
        except asyncio.CancelledError:
            # Not when the hub stops: the next start runs the move again, which waits for the same child.
            if not self._is_stopping:
                ending = self.abandon(child_id, "what waited for it was stopped")
                await asyncio.shield(self.spawn(ending))
            raise
        except WorkflowRefused as error:
            raise ExecutorFailed(error.message, class_of(error)) from None
        finally:
            self._listeners.pop(child_id, None)
        if child.body.outcome != "succeeded":
            raise ExecutorFailed(f"Workflow {definition} ended as {child.body.outcome} in {child.state.name}.")
        return transitions.child_output(child)

    async def _choose_child(self, parent_id: str, key: str) -> str:
        """The id of the child for a key; another one for another attempt after the child was cancelled."""
        for number in count():
            child_id = transitions.child_id(parent_id, f"{key}#{number}" if number else key)
            child = await self._cache.get(child_id)
            if child is None or child.body.outcome != "cancelled":
                break
        return child_id

    async def abandon(self, workflow_id: str, reason: str) -> None:
        """Cancel an instance whose caller is gone, if it was started."""
        instance = await self._cache.get(workflow_id)
        if instance is not None:
            await self.end(instance, reason)

    async def end(self, instance: Instance, reason: str, by: str = "", via: str = "workflow") -> Instance:
        """Cancel an instance and its child; concurrent calls wait for the first one."""
        if instance.id in self._ending:
            await asyncio.shield(self._ending[instance.id])
            return await self._cache.get(instance.id) or instance
        ending = self._ending[instance.id] = asyncio.get_running_loop().create_future()
        try:
            return await self._end_now(instance, reason, by, via)
        finally:
            del self._ending[instance.id]
            ending.set_result(None)

    async def _end_now(self, instance: Instance, reason: str, by: str, via: str) -> Instance:
        for _ in range(_MAX_END_ATTEMPTS):
            # Stop the executor before the commit: a cancelled instance must not have effects afterwards.
            running = [task for task, workflow_id in self._tasks.items() if workflow_id == instance.id]
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running, timeout=STOP_TIMEOUT_S)
            instance = await self._cache.get(instance.id) or instance
            if instance.is_over:
                break
            owner, now = by or instance.body.owner.id, self.now()
            cancelled = transitions.interrupt(instance, None, CANCEL, owner, "cancelled", now, reason=reason)
            with suppress(StaleVersion):  # a move was committed at the same moment: cancel what it led to
                after = await self.interrupt(instance, cancelled, via)
                # After its parent, which the end of the child would otherwise wake.
                await self.end_child(instance, reason, by)
                return after
        return instance

    async def end_child(self, instance: Instance, reason: str, by: str = "") -> None:
        """Cancel the child that an instance waited for, if there is one."""
        pending_move = instance.pending_move
        if pending_move is not None and pending_move.child and (child := await self._cache.get(pending_move.child)):
            await self.end(child, reason, by)


def _answer_request(after: Instance, pending_move: PendingMove, error: Data | None) -> RequestRecord:
    """The answer to store with the move, in one transaction, so that a repeated request finds it."""
    answer = views.describe_instance(after, pending_move.by, error=error)
    return RequestRecord(after.id, pending_move.request, pending_move.request_digest, answer)


def _check_after(action: Action) -> float:
    """After how long a parent whose child was just started is checked for the first time."""
    return min(CHILD_CHECK_S, (action.child and action.child.within) or CHILD_CHECK_S)


def _check_depth(depth: int) -> None:
    if depth > MAX_CHILD_DEPTH:
        raise WorkflowRefused(f"Child workflows are nested more than {MAX_CHILD_DEPTH} deep.")
