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
from collections import Counter
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from waypost.capabilities.context import Caller
from waypost.errors import (
    ExecutorFailed,
    PolicyDenied,
    StaleVersion,
    StoreError,
    StoreUnavailable,
    WorkflowRefused,
    class_of,
)
from waypost.policy.audit import AuditLog, Record
from waypost.stores.instances import Reservation
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord
from waypost.workflows import transitions, views
from waypost.workflows.definitions import CANCEL, ENTER, TIMEOUT, Action, canonical
from waypost.workflows.executors.kind import Run
from waypost.workflows.executors.reliability import AttemptsFailed
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


class Recorder:
    """Adds audit records and counts ended instances; without an audit log it only counts."""

    def __init__(self, audit: AuditLog | None) -> None:
        self._audit = audit
        self.ended: Counter[str] = Counter()
        """Instances that ended in this process, by outcome."""

    def record_transition(self, instance: Instance, found: AppliedTransition) -> None:
        """Record a committed transition, and the end of the instance if it ended."""
        entry, after = found.entry, found.instance
        if self._audit is not None:
            action = {TIMEOUT: "workflow.timed_out", CANCEL: "workflow.cancelled"}.get(
                entry["transition"], "workflow.transitioned"
            )
            text = f"{entry['transition']}: {entry['from']} -> {entry['to']}"
            by_itself = entry.get("chained") or action == "workflow.timed_out"
            self._add(instance, entry["by"], "workflow" if by_itself else "mcp", action, text, "ok")
        if after.is_over:
            self.ended[after.body.outcome] += 1
            self._add(instance, entry["by"], "workflow", "workflow.completed", after.settled, after.body.outcome)

    def record_failed_move(self, instance: Instance, note: Data) -> None:
        """Record a move that did not succeed."""
        error = note.get("error") or {}
        text = f"{note['transition']}: {error.get('message') or note['outcome']}"
        self._add(instance, note["by"], "workflow", f"transition.{note['outcome']}", text, "error")

    def record_refusal(self, instance: Instance, caller: Caller, transition: str, error: WorkflowRefused) -> None:
        """Record a refused submit."""
        text, by = f"{transition}: {error.code}: {error.message}", caller.principal.id
        self._add(instance, by, caller.chain.type, "transition.rejected", text, "denied", "deny", _rule_of(error))

    def record_denial(self, name: str, caller: Caller, error: PolicyDenied | WorkflowRefused) -> None:
        """Record a policy denial before there is an instance."""
        if self._audit is None:
            return
        chain = caller.chain
        self._audit.add(
            Record(
                time.time(),
                caller.principal.id,
                chain.type,
                name,
                "deny",
                reason=error.message,
                rule=_rule_of(error),
                caller=chain.caller,
                depth=chain.depth,
                run=chain.run,
                outcome="denied",
            )
        )

    def record_action(self, instance: Instance, caller: Caller, action: str, reason: str) -> None:
        """Record another action of a caller."""
        self._add(instance, caller.principal.id, caller.chain.type, action, reason, "ok")

    def record_decision(self, instance: Instance, person: str, via: str, action: str, reason: str) -> None:
        """Record the decision of a person and the channel (`via`) it came by."""
        caller_type = "mcp" if via == "elicitation" else "console"
        self._add(instance, person, caller_type, action, f"a person, by {via}: {reason}", "ok")

    def _add(
        self,
        instance: Instance,
        principal: str,
        caller_type: str,
        action: str,
        reason: str,
        outcome: str,
        decision: str = "allow",
        rule: str = "",
    ) -> None:
        if self._audit is not None:
            name, text, run = instance.definition.tool_name, reason[:500], instance.id
            self._audit.add(
                Record(
                    time.time(), principal, caller_type, name, decision, action, text, rule, run=run, outcome=outcome
                )
            )


def _rule_of(error: PolicyDenied | WorkflowRefused) -> str:
    denial = error.__cause__ if isinstance(error, WorkflowRefused) else error
    return denial.rule if isinstance(denial, PolicyDenied) else ""


class Request(msgspec.Struct, frozen=True):
    """The request id of a submit and the digest of its arguments, by which a repeated submit is recognised."""

    id: str = ""
    digest: str = ""


class MoveResult(msgspec.Struct, frozen=True):
    """The instance after a move, the error if it failed, and the hop if it was part of a chain."""

    instance: Instance
    error: Data | None = None
    hop: Data | None = None


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


class Runner:
    """Runs the moves of instances and everything that follows from them.

    Replicas that share a store may all try to move an instance. The store decides: a reservation or a commit succeeds
    only with the version and the reservation token that the instance was read with.
    """

    def __init__(self, store: Store, cache: InstanceCache, recorder: Recorder, start_child: StartChild) -> None:
        self._store = store
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
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

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
        request: Request | None = None,
    ) -> MoveResult:
        """Run a move that was checked; raises `StaleVersion` if another caller moved the instance first."""
        action = instance.state.actions[move]
        pending_move = PendingMove(
            kind="executing", move=move, by=caller.principal, key="", arguments=arguments, chained=chained
        )
        if request is not None:
            pending_move = replace(pending_move, request=request.id, request_digest=request.digest)
        if action.is_pure:
            return await self.finish(instance, pending_move, {} if action.kind == "noop" else None)
        pending_move = replace(
            pending_move, key=_idempotency_key(action.key, instance.id, move), holder=self.holder, began=time.time()
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
            message = f"{move} was taken over by another process while it ran."
            raise WorkflowRefused(message, "STALE_WORKFLOW_VERSION") from None

    async def _wait_for_approval(
        self, instance: Instance, action: Action, pending_move: PendingMove, caller: Caller
    ) -> MoveResult:
        """Reserve the instance until the approval is given, rejected or expired."""
        approval = request_approval(instance, action, pending_move)
        pending_move = replace(pending_move, kind="approval", approval=approval, holder="")
        parked = await self.reserve(instance, pending_move, approval.expires_at, f"{approval.id}.0")
        self._recorder.record_action(parked, caller, "approval.requested", approval.digest)
        return MoveResult(parked)

    async def run(self, instance: Instance, caller: Caller) -> MoveResult:
        """Run the executor of a reserved move; a caller that disconnects does not stop it."""
        task = self.spawn(self._run(instance, caller), instance.id)
        try:
            # The shield: cancelling the caller must not cancel an executor whose effects cannot be undone.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            if instance.id in self._ending:
                await asyncio.shield(self._ending[instance.id])
        except StaleVersion:
            pass
        return await self._find_cancellation(instance)

    async def _find_cancellation(self, instance: Instance) -> MoveResult:
        """The result of a move whose instance was cancelled while it ran; raises `StaleVersion` in other cases."""
        pending_move, after = instance.pending_move, await self._cache.get(instance.id)
        if after is not None and after.is_over and pending_move is not None and not pending_move.chained:
            found = await self._store.instances.history(instance.id, instance.version, 1)
            if found and found[0].value["transition"] == CANCEL:
                return MoveResult(after, _interrupted_error(instance, pending_move, found[0].value))
        raise StaleVersion(f"Instance {instance.id} was moved by another process meanwhile.")

    async def _run(self, instance: Instance, caller: Caller) -> MoveResult:
        pending_move = instance.pending_move
        assert pending_move is not None
        executor = instance.state.actions[pending_move.move].runs
        assert executor is not None
        self.running[instance.token] = instance.id
        try:
            scope = instance.scope(pending_move.by, pending_move.arguments)
            run = Run(scope, pending_move.key, for_workflow(caller, instance.definition.id, instance.id))
            try:
                output, attempts = await executor.run(run)
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
        try:
            found = transitions.apply_transition(instance, pending_move, output, time.time(), proof, **details)
            await self._commit(instance, found, pending_move)
        except StoreError as error:
            if type(error) is not StoreError:
                raise
            # The store cannot encode the output as JSON.
            return await self.fail(instance, pending_move, ExecutorFailed(error.message))
        hop: Data | None = None
        if pending_move.chained:
            after = found.instance
            hop = {
                "fromState": instance.state.name,
                "transition": pending_move.move,
                "toState": after.state.name,
                "version": after.version,
            }
        return MoveResult(found.instance, hop=hop)

    async def interrupt(self, instance: Instance, found: AppliedTransition) -> Instance:
        """Commit a timeout or a cancellation, by which the pending move fails."""
        pending_move = instance.pending_move
        error = None if pending_move is None else _interrupted_error(instance, pending_move, found.entry)
        await self._commit(instance, found, pending_move, error)
        return found.instance

    async def _commit(
        self,
        instance: Instance,
        found: AppliedTransition,
        pending_move: PendingMove | None,
        error: Data | None = None,
    ) -> None:
        """Commit a transition, and retry while the store is unavailable.

        A move with a token has run an executor, whose effects cannot be undone: giving up would leave its outcome
        unknown. A move without a token has done nothing yet and fails at once.
        """
        after, entry, request = found.instance, found.entry, None
        if pending_move is not None and pending_move.request:
            request = _answer_request(after, pending_move, error)
        record = after.to_record(found.due_at, instance.version)
        for delay in (*_COMMIT_RETRY_DELAYS_S, None):
            try:
                await self._store.instances.commit(record, time.time(), entry, instance.token, request)
                break
            except StoreUnavailable:
                if delay is None or not instance.token:
                    raise
                await asyncio.sleep(delay)
            except StaleVersion:
                if await self._was_committed(instance, entry):
                    break
                self._cache.drop(instance.id)
                raise
        self._cache.keep(after)
        self._recorder.record_transition(instance, found)
        if after.is_over:
            self.announce_end(after)

    async def _was_committed(self, instance: Instance, entry: Data) -> bool:
        """Whether an earlier attempt was committed although its response was lost."""
        if "key" not in entry:
            return False
        found = await self._store.instances.history(instance.id, instance.version, 1)
        # The key alone proves nothing: another process may have committed the same move under the same key, after a
        # takeover or with other approvals. Only an identical entry is ours.
        return bool(found) and canonical(found[0].value) == canonical(entry)

    async def fail(self, instance: Instance, pending_move: PendingMove, error: ExecutorFailed) -> MoveResult:
        """Record a failed move; the instance stays in its state."""
        failure: Data = {
            "code": "CHAIN_FAILED" if pending_move.chained else "EXECUTOR_FAILED",
            "message": error.message,
            "errorClass": error.error_class,
            "attemptedTransition": pending_move.move,
        }
        noted = {"attempts": error.attempts} if isinstance(error, AttemptsFailed) and error.attempts else {}
        return await self.settle(instance, pending_move, failure, outcome="failed", **noted)

    async def settle(
        self, instance: Instance, pending_move: PendingMove, error: Data | None, *, outcome: str, **noted: Any
    ) -> MoveResult:
        """Release a move that did not succeed and add a note with the reason; a chain is halted by an error."""
        halts = pending_move.chained and error is not None
        after, due_at = transitions.keep_state(instance, error, halted=halts)
        note = {"transition": pending_move.move, "by": pending_move.by.id, "version": instance.version}
        note |= {"outcome": outcome, **noted} | ({} if error is None else {"error": error})
        request = _answer_request(after, pending_move, error) if pending_move.request else None
        try:
            await self._store.instances.settle(after.to_record(due_at), time.time(), note, instance.token, request)
        except StaleVersion:
            self._cache.drop(instance.id)
            raise
        self._cache.keep(after)
        self._recorder.record_failed_move(instance, note)
        return MoveResult(after, error)

    async def follow(self, taken: MoveResult, caller: Caller) -> Outcome:
        """Follow the chain after a move: entry actions and deterministic transitions, until a caller has to decide."""
        instance, chain = taken.instance, list[Data]()
        waits = instance.body.halted or instance.pending_move is not None
        if taken.error is not None or waits or not instance.body.pending:
            return Outcome(instance, chain, taken.error)
        self.busy.add(instance.id)
        try:
            while instance.body.pending and instance.pending_move is None and not instance.is_over:
                taken = await self._take_next(instance, caller, len(chain))
                instance = taken.instance
                if taken.hop is not None and taken.hop["transition"] != ENTER:
                    chain.append(taken.hop)
                if taken.error is not None:
                    return Outcome(instance, chain, taken.error)
        except StaleVersion:  # another process moved the instance and follows the chain there
            instance = await self._cache.get(instance.id) or instance
        finally:
            self.busy.discard(instance.id)
        return Outcome(instance, chain)

    async def _take_next(self, instance: Instance, caller: Caller, hops: int) -> MoveResult:
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
    ) -> MoveResult:
        """Reserve a move and start its child; a child that ends at once ends the move."""
        plan = action.child
        assert plan is not None
        child_id = _child_id(instance.id, pending_move.key)
        pending_move = replace(pending_move, kind="child", child=child_id, holder="")
        due = time.time() + min(CHILD_CHECK_S, plan.within or CHILD_CHECK_S)
        parked = await self.reserve(instance, pending_move, due)
        try:
            return await self._wait_for_child(parked, pending_move, caller)
        except StaleVersion:
            if pending_move.chained:
                raise
            # Another process woke the parent; a retry would start a second child.
            return MoveResult(await self._cache.get(instance.id) or instance)

    async def _wait_for_child(self, instance: Instance, pending_move: PendingMove, caller: Caller) -> MoveResult:
        """Start the child of a reserved move, or find it, and end the move if the child has ended."""
        plan = instance.state.actions[pending_move.move].child
        assert plan is not None
        given: Any = pending_move.arguments
        if plan.input is not None:
            given = plan.input.fill(instance.scope(pending_move.by, pending_move.arguments))
        depth = instance.body.depth + 1
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
            return await self.fail(instance, pending_move, ExecutorFailed(error.message, class_of(error)))
        finally:
            self._listeners.pop(pending_move.child, None)
        if listener.is_set() and not child.is_over:  # the child ended after it was read
            child = await self._cache.get(pending_move.child) or child
        return await self._end_wait(instance, pending_move, child) if child.is_over else MoveResult(instance)

    async def _end_wait(self, instance: Instance, pending_move: PendingMove, child: Instance) -> MoveResult:
        if child.body.outcome == "succeeded":
            return await self.finish(instance, pending_move, _child_output(child))
        message = f"Workflow {child.definition.id} ({child.id}) ended as {child.body.outcome} in {child.state.name}."
        return await self.fail(instance, pending_move, ExecutorFailed(message))

    def announce_end(self, child: Instance) -> None:
        """Notify what waits for an instance that ended: an executor in this process, or its parent."""
        listener, parent = self._listeners.get(child.id), child.body.parent
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

    async def _check_child(self, instance: Instance, pending_move: PendingMove, caller: Caller) -> MoveResult | None:
        """End the move of a parent whose child has ended or is late; `None` while it has to wait."""
        child = await self._cache.get(pending_move.child)
        plan = instance.state.actions[pending_move.move].child
        assert plan is not None
        if child is None:
            return await self._wait_for_child(instance, pending_move, caller)
        if child.is_over:
            return await self._end_wait(instance, pending_move, child)
        if plan.within is not None and pending_move.began + plan.within <= time.time():
            await self.end(child, "its time limit was exceeded")
            message = f"Workflow {plan.definition} did not end within {plan.within:g} s."
            return await self.fail(instance, pending_move, ExecutorFailed(message, "timeout"))
        again = time.time() + CHILD_CHECK_S
        due = again if plan.within is None else min(again, pending_move.began + plan.within)
        # Keep the token: the process that started the child commits with it when the child ends.
        await self.reserve(instance, pending_move, due, instance.token)
        return None

    async def run_child(self, definition: str, given: Data, key: str, caller: Caller, within: float | None) -> Data:
        """Run a child and wait for its end, for a `workflow` executor nested in another executor."""
        parent = await self._cache.get(caller.chain.run) if caller.chain.run else None
        depth = 1 if parent is None else parent.body.depth + 1
        child_id = _child_id(caller.chain.run or f"wf_{0:012x}", key)
        listener = self._listeners[child_id] = asyncio.Event()
        try:
            _check_depth(depth)
            async with asyncio.timeout(within):
                child = await self._start_child(definition, given, caller, child_id, None, depth)
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
                await self.end(late, "its time limit was exceeded")
            raise ExecutorFailed(f"Workflow {definition} did not end within {within:g} s.", "timeout") from None
        except WorkflowRefused as error:
            raise ExecutorFailed(error.message, class_of(error)) from None
        finally:
            self._listeners.pop(child_id, None)
        if child.body.outcome != "succeeded":
            raise ExecutorFailed(f"Workflow {definition} ended as {child.body.outcome} in {child.state.name}.")
        return _child_output(child)

    async def abandon(self, workflow_id: str, reason: str) -> None:
        """Cancel an instance whose caller is gone, if it was started."""
        instance = await self._cache.get(workflow_id)
        if instance is not None:
            await self.end(instance, reason)

    async def end(self, instance: Instance, reason: str, by: str = "") -> Instance:
        """Cancel an instance and its child; concurrent calls wait for the first one."""
        if instance.id in self._ending:
            await asyncio.shield(self._ending[instance.id])
            return await self._cache.get(instance.id) or instance
        ending = self._ending[instance.id] = asyncio.get_running_loop().create_future()
        try:
            return await self._end_now(instance, reason, by)
        finally:
            del self._ending[instance.id]
            ending.set_result(None)

    async def _end_now(self, instance: Instance, reason: str, by: str) -> Instance:
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
            owner, now = by or instance.body.owner.id, time.time()
            cancelled = transitions.interrupt(instance, None, CANCEL, owner, "cancelled", now, reason=reason)
            with suppress(StaleVersion):
                after = await self.interrupt(instance, cancelled)
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
    answer = views.answer_outcome(after, pending_move.by, error, [])
    return RequestRecord(after.id, pending_move.request, pending_move.request_digest, answer)


def _interrupted_error(instance: Instance, pending_move: PendingMove, entry: Data) -> Data:
    """The error of a move that was interrupted by a timeout or by the cancellation of its instance."""
    is_late, reason = entry["transition"] == TIMEOUT, entry.get("reason")
    why = f"{instance.id} timed out" if is_late else f"{instance.id} was cancelled"
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
    words = {"{workflowId}": workflow_id, "{transition}": move, "{correlationId}": secrets.token_hex(8)}
    for word, value in words.items():
        template = template.replace(word, value)
    return template


def _check_depth(depth: int) -> None:
    if depth > MAX_CHILD_DEPTH:
        raise WorkflowRefused(f"Child workflows are nested more than {MAX_CHILD_DEPTH} deep.")


def _child_output(child: Instance) -> Data:
    """The output of an ended child, as its parent gets it."""
    body = child.body
    return {"workflowId": child.id, "state": child.state.name, "outcome": body.outcome, "context": body.context}


def _child_id(parent_id: str, key: str) -> str:
    """The id of a child: it sorts with its parent, and is the same each time the same move is run."""
    return f"wf_{parent_id.removeprefix('wf_')[:12]}{hashlib.sha256(key.encode()).hexdigest()[:12]}"
