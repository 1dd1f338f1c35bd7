"""Transitions as pure functions: which move is legal, and the instance and history entry that follow from it.

Nothing here waits, reads the store or writes to it.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from waypost.capabilities.principals import Principal
from waypost.errors import WorkflowRefused, shorten
from waypost.redaction import hide
from waypost.stores.database import MAX_KEY_BYTES, is_key
from waypost.workflows.definitions import ENTER, TIMEOUT, Action, Definition, TransitionPlan, digest, with_defaults
from waypost.workflows.instance import HUMAN, Approval, Body, Instance, Parent, PendingMove, is_system
from waypost.workflows.scope import MISSING, Proof

Data = dict[str, Any]


CHAIN_GRACE_S: Final = 5.0
"""How long a chain may pause before maintenance, maybe in another process, takes it up."""
_NO_ARGUMENTS: Final = digest({})
_CALL: Final = "call_"


def stale_version_error(instance: Instance, expected: int) -> WorkflowRefused:
    """The error for an expected version that is not the current one."""
    message = f"Expected workflow version {expected}, but current version is {instance.version}."
    return WorkflowRefused(message, "STALE_WORKFLOW_VERSION")


def check_request_id(request_id: str) -> None:
    """Raise if a request id cannot be a key of the store."""
    if not is_key(request_id):
        message = f"requestId takes at most {MAX_KEY_BYTES} bytes, and no NUL."
        raise WorkflowRefused(message, "INPUT_SCHEMA_VIOLATION", problems=[message])


def check_version(instance: Instance, expected: int) -> None:
    """Raise if the version is not the current one, or if a move from it is pending."""
    if instance.version != expected:
        raise stale_version_error(instance, expected)
    pending_move = instance.pending_move
    if pending_move is None:
        return
    if pending_move.approval is not None:
        raise WorkflowRefused(
            f"{pending_move.move} waits for the approval of a person with the role {pending_move.approval.role}.",
            "APPROVAL_PENDING",
            approval={"id": pending_move.approval.id},
        )
    if pending_move.kind == "unknown":
        message = f"It is unknown whether {pending_move.move} was done; resolve that first."
        raise WorkflowRefused(message, "UNKNOWN_OUTCOME", move=pending_move.move, idempotencyKey=pending_move.key)
    waits = f"waits for workflow {pending_move.child}" if pending_move.kind == "child" else "is being executed"
    raise WorkflowRefused(f"{pending_move.move} {waits}; version {expected} is taken.", "STALE_WORKFLOW_VERSION")


def find_legal_transition(instance: Instance, expected: int, name: str, principal: Principal) -> TransitionPlan:
    """The transition of that name, if the version, the state and the actor allow it; raises `WorkflowRefused`."""
    if instance.version != expected or instance.pending_move is not None:
        check_version(instance, expected)
    if instance.body.pending and not instance.is_over:
        _check_entered(instance)
    plan = None if instance.is_over else instance.state.transitions.get(name)
    if plan is None:
        where, legal = f"{instance.definition.id} has ended", list[str]()
        if not instance.is_over:
            where = f"{instance.state.name} has no transition {shorten(name)!r}"
            legal = [key for key, one in instance.state.transitions.items() if one.model.actor != "deterministic"]
        raise WorkflowRefused(f"{where}.", "INVALID_TRANSITION", legalTransitions=legal)
    actor = plan.model.actor
    if actor == "human" and HUMAN not in principal.roles:
        raise WorkflowRefused(f"{name} requires a person; {principal.id} lacks the role human.", "ACTOR_MISMATCH")
    if actor == "system" and not is_system(principal):
        raise WorkflowRefused(f"{name} requires the role system; {principal.id} lacks it.", "ACTOR_MISMATCH")
    return plan


def _check_entered(instance: Instance) -> None:
    """Raise while the entry action or the chain of the state has not finished."""
    if instance.goes_on:
        raise WorkflowRefused(
            f"{instance.definition.id} continues automatically from {instance.state.name}; "
            f"version {instance.version} is taken.",
            "STALE_WORKFLOW_VERSION",
        )
    halted = instance.body.halted
    if instance.body.pending == "enter" and halted is not None:
        why = {"errorClass": halted["errorClass"]} if "errorClass" in halted else {}
        message = f"The entry action of {instance.state.name} failed, and must succeed first: {halted['message']}"
        raise WorkflowRefused(message, "CHAIN_FAILED", **why)


def check_arguments(instance: Instance, plan: TransitionPlan, principal: Principal, arguments: Data) -> Data:
    """The arguments with defaults filled in; raises if they do not match the schema, or a guard does not hold."""
    if plan.schema is not None:
        arguments = with_defaults(plan.model.input_schema, arguments)
        if not plan.schema.is_valid(arguments):
            problems = plan.schema.problems(arguments)
            message = f"The arguments of {plan.name} do not match its schema: {'; '.join(problems)}"
            raise WorkflowRefused(message, "INPUT_SCHEMA_VIOLATION", problems=problems)
    if plan.guard_texts:
        check_guards(instance, plan, principal, arguments)
    return arguments


def check_guards(instance: Instance, plan: TransitionPlan, principal: Principal, arguments: Data) -> None:
    """Raise with the reasons if a guard of the transition does not hold."""
    scope = instance.scope(principal, arguments)
    if not plan.guards.holds(scope):
        # An expression may compare with a variable that stands for a secret.
        reasons = hide(plan.guards.failures(scope), instance.definition.context.secrets())
        why = "; ".join(reason["message"] for reason in reasons)
        raise WorkflowRefused(f"{plan.name} is not allowed now: {why}", "GUARD_REJECTED", guards=reasons)


class AppliedTransition(msgspec.Struct, frozen=True):
    """The instance after a transition, when it is due next, and its history entry; to be committed."""

    instance: Instance
    due_at: float
    entry: Data


def new_id() -> str:
    """A new instance id; ids of one process sort by creation time."""
    # Lists are in the order of ids, and many instances are started in one millisecond: what follows the milliseconds,
    # by which instances are selected, are the nanoseconds of that one.
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    return f"wf_{milliseconds:012x}{nanoseconds:05x}{secrets.randbits(28):07x}"


def create_instance(
    definition: Definition,
    given: Data,
    owner: Principal,
    workflow_id: str = "",
    parent: Parent | None = None,
    depth: int = 0,
    now: float | None = None,
) -> tuple[Instance, float]:
    """A new instance in its initial state, and the time at which maintenance looks at it."""
    now = time.time() if now is None else now
    state, model = definition.states[definition.initial], definition.model
    pending = state.pending[True]
    body = Body(
        digest=definition.digest,
        # Without claims: what a token says about a person is not stored.
        owner=Principal(owner.id, owner.roles, owner.permissions, owner.scopes),
        input=given,
        context=dict(model.initial_context),
        deadline=0.0 if model.timeout_ms is None else now + model.timeout_ms / 1000,
        pending=pending,
        parent=parent,
        depth=depth,
        started_at=now,
        outcome=state.status if state.model.terminal else "",
        ended_at=now if state.model.terminal else 0.0,
    )
    instance = Instance(
        id=workflow_id or new_id(), version=1, definition=definition, state=state, settled=state.status, body=body
    )
    return instance, 0.0 if state.model.terminal else now + CHAIN_GRACE_S if pending else body.deadline


def apply_transition(
    instance: Instance, pending_move: PendingMove, output: Any, now: float, proof: str | None = None, **details: Any
) -> AppliedTransition:
    """The instance after a transition or an entry action with the given executor output.

    `proof` is the evidence that the executor reported; `details` are added to the history entry.
    """
    action, plan = instance.state.actions[pending_move.move], instance.state.transitions.get(pending_move.move)
    written: Data = {}
    body = instance.body
    if action.output is not None:
        written = action.output(instance.scope(pending_move.by, pending_move.arguments, output))
        body = replace(body, context={**body.context, **written})
    target = instance.state.name
    if plan is not None:
        target = plan.model.target
        if plan.branches:
            scope = instance.scope(pending_move.by, pending_move.arguments, output)
            scope.context = body.context  # branches see what the move has written
            target = next((other for guard, other in plan.branches if guard.holds(scope)), target)
    entry: Data = {"transition": pending_move.move, "from": instance.state.name, "to": target, "by": pending_move.by.id}
    if pending_move.chained:
        entry["chained"] = True
    if plan is not None and plan.guard_texts:
        entry["guards"] = plan.guard_texts
    entry["argumentsDigest"] = digest(pending_move.arguments) if pending_move.arguments else _NO_ARGUMENTS
    if action.kind != "none":
        entry["executor"] = {"kind": action.kind, "outcome": "succeeded", **details}
    if pending_move.key:
        entry["key"] = pending_move.key
    entry["delta"] = written
    if pending_move.approval is not None:
        entry["approvals"] = pending_move.approval.given
        entry["approvalId"] = pending_move.approval.id
    kinds = action.evidence if proof is None else (*action.evidence, proof)
    if kinds:
        # Of an approval, the people who gave it are the givers, not the caller that asked for it.
        approvers = (
            [one["by"] for one in pending_move.approval.given]
            if pending_move.approval is not None
            else [pending_move.by.id]
        )
        proofs = [Proof(kind, by, instance.version + 1) for kind in kinds for by in approvers]
        older = body.evidence
        if target == instance.state.name:  # a repeated self-transition replaces its evidence, or the list would grow
            older = [one for one in older if one.kind != proof or one.by not in approvers]
        body = replace(body, evidence=[*older, *proofs])
    return _arrive(instance, target, body, entry, now, enters=pending_move.move != ENTER)


def interrupt(
    instance: Instance, target: str | None, move: str, by: str, status: str, now: float, **details: Any
) -> AppliedTransition:
    """The instance after a timeout or a cancellation: in the target state, or ended in its state."""
    entry = {"transition": move, "from": instance.state.name, "to": target or instance.state.name, "by": by, **details}
    if target is not None:
        body = replace(instance.body, deadline=0.0)  # or the target state would time out at once
        applied = _arrive(instance, target, body, entry, now, enters=True)
        state = applied.instance.state.model
        if not (state.terminal and state.outcome is None and status == "timed_out"):
            return applied
        # The default of a terminal state is success, and a timeout is none: only the state can say that it is one.
        ended = replace(applied.instance.body, outcome="failed")
        return replace(applied, instance=replace(applied.instance, settled=status, body=ended))
    outcome = "cancelled" if status == "cancelled" else "failed"
    body = replace(instance.body, pending="", halted=None, failure=None, outcome=outcome, ended_at=now)
    after = replace(
        instance, version=instance.version + 1, settled=status, body=body, pending_move=None, token="", until=0.0
    )
    return AppliedTransition(after, 0.0, entry)


def _arrive(instance: Instance, target: str, body: Body, entry: Data, now: float, *, enters: bool) -> AppliedTransition:
    state = instance.state if target == instance.state.name else instance.definition.states[target]
    terminal, pending = state.model.terminal, state.pending[enters]
    changes: Data = {}
    # Most moves change none of this, and comparing costs less than a copy of the body.
    if body.pending != pending:
        changes["pending"] = pending
    if body.halted is not None or body.failure is not None:
        changes["halted"] = changes["failure"] = None
    if terminal:
        changes |= {"outcome": state.status, "ended_at": now}
    if changes:
        body = replace(body, **changes)
    # A chain is due soon: maintenance takes it up if this process ends before it has followed it.
    due_at = 0.0 if terminal else now + CHAIN_GRACE_S if pending else body.deadline
    after = Instance(
        id=instance.id,
        version=instance.version + 1,
        definition=instance.definition,
        state=state,
        settled=state.status,
        body=body,
    )
    return AppliedTransition(after, due_at, entry)


def keep_state(instance: Instance, error: Data | None, *, halted: bool) -> tuple[Instance, float]:
    """The instance after a failed move, in the same state and version, and when it is due next."""
    changes = {"halted": error, "failure": None} if halted else {"failure": error}
    body = replace(instance.body, **changes)
    settled = "chain_failed" if halted else instance.settled
    after = replace(instance, settled=settled, body=body, pending_move=None, token="", until=0.0)
    return after, body.deadline


def clear_halt(instance: Instance) -> Instance:
    """The instance with the error removed that halted its chain."""
    body = replace(instance.body, halted=None, failure=None)
    return replace(instance, settled=instance.state.status, body=body)


def choose_chained(instance: Instance, principal: Principal) -> str | Data:
    """The deterministic transition to take, a guarded one first; an error if none or several are possible."""
    scope = instance.scope(principal, {})
    guarded = [plan for plan in instance.state.chained if plan.guard_texts]
    holding = [plan for plan in guarded if plan.guards.holds(scope)]
    if not holding:
        holding = [plan for plan in instance.state.chained if not plan.guard_texts]
    if len(holding) == 1:
        return holding[0].name
    names = ", ".join(plan.name for plan in holding or instance.state.chained)
    return {
        "code": "CHAIN_FAILED",
        "message": f"{'More than one' if holding else 'None'} of the deterministic transitions out of "
        f"{instance.state.name} can be taken: {names}.",
        "candidates": [plan.name for plan in holding],
    }


def request_approval(instance: Instance, action: Action, pending_move: PendingMove, now: float) -> Approval:
    """The approval that a move has to wait for, with the digest of what approvers are shown."""
    model = action.human
    assert model is not None
    plan = instance.state.transitions.get(pending_move.move)
    presents: Any = {"arguments": pending_move.arguments, "context": instance.body.context}
    if action.presents is not None:
        filled = action.presents.fill(instance.scope(pending_move.by, pending_move.arguments))
        presents = None if filled is MISSING else filled
    prompt = model.prompt or (plan.title if plan is not None else f"Enter {instance.state.name}")
    # With the id and the version: a digest that an approver saw must never fit another request that shows the same.
    shown = [instance.id, instance.version, pending_move.move, prompt, presents]
    return Approval(
        # The id contains that of the instance, so that an approval is found without an index of its own.
        id=f"ap_{instance.id.removeprefix('wf_')}_{secrets.token_hex(6)}",
        role=model.role,
        queue=model.queue,
        needed=model.approvals,
        prompt=prompt,
        presents=presents,
        digest=f"sha256:{digest(shown)}",
        requested_at=now,
        expires_at=now + model.expires_ms / 1000,
    )


def interrupted_error(instance: Instance, pending_move: PendingMove, entry: Data) -> Data:
    """The error of a move that was interrupted by a timeout or by the cancellation of its instance."""
    is_late, reason = entry["transition"] == TIMEOUT, entry.get("reason")
    why = f"{instance.id} timed out" if is_late else f"{instance.id} was cancelled"
    return {
        "code": "EXECUTOR_FAILED",
        "message": f"{why} before {pending_move.move} ended{f': {reason}' if reason else '.'}",
        "errorClass": "timeout" if is_late else "permanent_error",
        "attemptedTransition": pending_move.move,
    }


def idempotency_key(template: str, workflow_id: str, move: str) -> str:
    """The key that executors send to what they call.

    It is stored with the reservation and stays the same when the move is run again, so that the other side can
    recognise the repetition.
    """
    words = {"{workflowId}": workflow_id, "{transition}": move, "{correlationId}": secrets.token_hex(8)}
    for word, value in words.items():
        template = template.replace(word, value)
    return template


def child_output(child: Instance) -> Data:
    """The output of an ended child, as its parent gets it."""
    body = child.body
    return {"workflowId": child.id, "state": child.state.name, "outcome": body.outcome, "context": body.context}


def call_key() -> str:
    """The idempotency key of a call that no instance makes; like the id of an instance, it begins with its time."""
    return f"{_CALL}{new_id().removeprefix('wf_')}{secrets.token_hex(8)}"


def child_id(parent_id: str, key: str) -> str:
    """The id of a child: it sorts with its parent, and is the same each time the same move is run.

    Without a parent instance, `parent_id` is the `call_key` of the call.
    """
    began = parent_id.removeprefix("wf_").removeprefix(_CALL)[:12]
    return f"wf_{began}{hashlib.sha256(key.encode()).hexdigest()[:12]}"
