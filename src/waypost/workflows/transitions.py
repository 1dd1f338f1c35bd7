"""Transitions as pure functions: which move is legal, and the instance and history entry that follow from it.

Nothing here waits, reads the store or writes to it.
"""

from __future__ import annotations

import secrets
import time
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from waypost.capabilities.context import Caller
from waypost.capabilities.principals import Principal
from waypost.errors import WorkflowRefused, shorten
from waypost.stores.records import MAX_KEY_BYTES, is_key
from waypost.workflows.definitions import ENTER, Action, Definition, TransitionPlan, digest, with_defaults
from waypost.workflows.instance import (
    HUMAN,
    WAITING,
    Approval,
    Body,
    Instance,
    Parent,
    Pending,
    PendingMove,
    is_system,
    status_in,
)
from waypost.workflows.scope import MISSING, Proof

Data = dict[str, Any]


CHAIN_GRACE_S: Final = 5.0
"""How long a chain may pause before maintenance, maybe in another process, takes it up."""
_NO_ARGUMENTS: Final = digest({})


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
    if pending_move.kind == "approval":
        assert pending_move.approval is not None
        raise WorkflowRefused(
            f"{pending_move.move} waits for a person with the role {pending_move.approval.role}.",
            "APPROVAL_PENDING",
            approval={"id": pending_move.approval.id},
        )
    if pending_move.kind == "unknown":
        raise WorkflowRefused(
            f"Nobody knows whether {pending_move.move} was done; resolve that first.",
            "UNKNOWN_OUTCOME",
            move=pending_move.move,
        )
    waits = f"waits for workflow {pending_move.child}" if pending_move.kind == "child" else "is being executed"
    raise WorkflowRefused(f"{pending_move.move} {waits}; version {expected} is taken.", "STALE_WORKFLOW_VERSION")


def check_entered(instance: Instance) -> None:
    """Raise while the entry action or the chain of the state has not finished."""
    if instance.is_over:
        return
    if instance.goes_on:
        raise WorkflowRefused(
            f"{instance.definition.id} goes on by itself from {instance.state.name}; "
            f"version {instance.version} is taken.",
            "STALE_WORKFLOW_VERSION",
        )
    halted = instance.body.halted
    if instance.body.pending == "enter" and halted is not None:
        why = {"errorClass": halted["errorClass"]} if "errorClass" in halted else {}
        message = (
            f"{instance.state.name} has not been entered, and nothing can be done there before: {halted['message']}"
        )
        raise WorkflowRefused(message, "CHAIN_FAILED", **why)


def get_transition(instance: Instance, name: str) -> TransitionPlan:
    """The transition of that name out of the current state; raises if there is none."""
    plan = None if instance.is_over else instance.state.transitions.get(name)
    if plan is None:
        where = (
            f"{instance.definition.id} has ended"
            if instance.is_over
            else f"{instance.state.name} has no transition {shorten(name)!r}"
        )
        raise WorkflowRefused(f"{where}.", "INVALID_TRANSITION", legalTransitions=_legal(instance))
    return plan


def _legal(instance: Instance) -> list[str]:
    return (
        []
        if instance.is_over
        else [n for n, p in instance.state.transitions.items() if p.model.actor != "deterministic"]
    )


def check_actor(plan: TransitionPlan, principal: Principal) -> None:
    """Raise if the transition is for people or for the system and the principal is neither."""
    actor = plan.model.actor
    if actor == "human" and HUMAN not in principal.roles:
        raise WorkflowRefused(
            f"{plan.name} takes a person, with the role human; {principal.id} is none.", "ACTOR_MISMATCH"
        )
    if actor == "system" and not is_system(principal):
        raise WorkflowRefused(f"{plan.name} is the system's; {principal.id} is not.", "ACTOR_MISMATCH")


def fill_arguments(plan: TransitionPlan, arguments: Data) -> Data:
    """The arguments with defaults filled in; raises if they do not match the schema."""
    if plan.schema is None:
        return arguments
    filled: Data = with_defaults(plan.model.input_schema, arguments)
    if not plan.schema.is_valid(filled):
        problems = plan.schema.problems(filled)
        raise WorkflowRefused(
            f"The arguments of {plan.name} do not fit: {'; '.join(problems)}",
            "INPUT_SCHEMA_VIOLATION",
            problems=problems,
        )
    return filled


def check_guards(instance: Instance, plan: TransitionPlan, principal: Principal, arguments: Data) -> None:
    """Raise with the reasons if a guard of the transition does not hold."""
    if not plan.guard_texts:
        return
    scope = instance.scope(principal, arguments)
    if plan.guards.holds(scope):
        return
    reasons = plan.guards.failures(scope)
    why = "; ".join(reason["message"] for reason in reasons)
    raise WorkflowRefused(f"{plan.name} is not allowed now: {why}", "GUARD_REJECTED", guards=reasons)


class AppliedTransition(msgspec.Struct, frozen=True):
    """The instance after a transition, when it is due next, and its history entry; to be committed."""

    instance: Instance
    due_at: float
    entry: Data


def new_id() -> str:
    """A new instance id; ids sort by creation time."""
    return f"wf_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(6)}"


def create_instance(
    definition: Definition,
    given: Data,
    owner: Principal,
    workflow_id: str = "",
    parent: Parent | None = None,
    depth: int = 0,
) -> tuple[Instance, float]:
    """A new instance in its initial state, and the time at which maintenance looks at it."""
    now = time.time()
    state, model = definition.state(definition.initial), definition.model
    pending: Pending = ""
    if not state.model.terminal:
        pending = "enter" if state.enter is not None else "chain" if state.chained else ""
    status = status_in(state)
    body = Body(
        digest=definition.digest,
        owner=Principal(owner.id, owner.roles, owner.permissions, owner.scopes),
        input=given,
        context=dict(model.initial_context),
        deadline=0.0 if model.timeout_ms is None else now + model.timeout_ms / 1000,
        pending=pending,
        parent=parent,
        depth=depth,
        started_at=now,
        outcome=status if state.model.terminal else "",
        ended_at=now if state.model.terminal else 0.0,
    )
    instance = Instance(
        id=workflow_id or new_id(), version=1, definition=definition, state=state, settled=status, body=body
    )
    return instance, 0.0 if state.model.terminal else now + CHAIN_GRACE_S if pending else body.deadline


def apply_transition(
    instance: Instance,
    pending_move: PendingMove,
    action: Action,
    output: Any,
    now: float,
    proof: str | None = None,
    **details: Any,
) -> AppliedTransition:
    """The instance after a transition or an entry action with the given executor output.

    `proof` is the evidence that the executor reported; `details` are added to the history entry.
    """
    plan = instance.plan(pending_move.move)
    written: Data = {}
    body = instance.body
    if action.output is not None:
        written = action.output.apply(instance.scope(pending_move.by, pending_move.arguments, output))
        body = replace(body, context={**body.context, **written})
    target = instance.state.name
    if plan is not None:
        target = plan.model.target
        if plan.branches:
            scope = instance.scope(pending_move.by, pending_move.arguments, output)
            scope.context = body.context
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
        body = msgspec.structs.replace(instance.body, deadline=0.0)
        return _arrive(instance, target, body, entry, now, enters=True)
    outcome = "cancelled" if status == "cancelled" else "failed"
    body = msgspec.structs.replace(instance.body, pending="", halted=None, failure=None, outcome=outcome, ended_at=now)
    after = replace(
        instance, version=instance.version + 1, settled=status, body=body, pending_move=None, token="", until=0.0
    )
    return AppliedTransition(after, 0.0, entry)


def _arrive(instance: Instance, target: str, body: Body, entry: Data, now: float, *, enters: bool) -> AppliedTransition:
    state = instance.state if target == instance.state.name else instance.definition.state(target)
    terminal = state.model.terminal
    pending: Pending = ""
    if not terminal:
        pending = "enter" if enters and state.enter is not None else "chain" if state.chained else ""
    status = status_in(state)
    changes: Data = {}
    if body.pending != pending:
        changes["pending"] = pending
    if body.halted is not None or body.failure is not None:
        changes["halted"] = changes["failure"] = None
    if terminal:
        changes |= {"outcome": status, "ended_at": now}
    if changes:
        body = msgspec.structs.replace(body, **changes)
    due_at = 0.0 if terminal else now + CHAIN_GRACE_S if pending else body.deadline
    after = Instance(
        id=instance.id,
        version=instance.version + 1,
        definition=instance.definition,
        state=state,
        settled=status,
        body=body,
    )
    return AppliedTransition(after, due_at, entry)


def keep_state(instance: Instance, error: Data | None, *, halted: bool) -> tuple[Instance, float]:
    """The instance after a failed move, in the same state and version, and when it is due next."""
    changes = {"halted": error, "failure": None} if halted else {"failure": error}
    body = msgspec.structs.replace(instance.body, **changes)
    settled = "chain_failed" if halted else instance.settled
    after = replace(instance, settled=settled, body=body, pending_move=None, token="", until=0.0)
    return after, body.deadline


def clear_halt(instance: Instance) -> Instance:
    """The instance with the error removed that halted its chain."""
    body = msgspec.structs.replace(instance.body, halted=None, failure=None)
    return replace(instance, settled=WAITING, body=body)


def describe_hop(before: Instance, pending_move: PendingMove, after: Instance) -> Data:
    """A hop of a chain for an answer."""
    return {
        "fromState": before.state.name,
        "transition": pending_move.move,
        "toState": after.state.name,
        "version": after.version,
    }


def choose_chained(instance: Instance, caller: Caller) -> str | Data:
    """The deterministic transition to take, a guarded one first; an error if none or several are possible."""
    scope = instance.scope(caller.principal, {})
    guarded = [plan for plan in instance.state.chained if plan.guard_texts]
    holding = [plan for plan in guarded if plan.guards.holds(scope)]
    if not holding:
        holding = [plan for plan in instance.state.chained if not plan.guard_texts]
    if len(holding) == 1:
        return holding[0].name
    return {
        "code": "CHAIN_FAILED",
        "message": f"{'None' if not holding else 'More than one'} of the transitions out of {instance.state.name} "
        f"can be taken by itself: {_names(holding or instance.state.chained)}.",
        "candidates": [plan.name for plan in holding],
    }


def _names(plans: list[TransitionPlan] | tuple[TransitionPlan, ...]) -> str:
    return ", ".join(plan.name for plan in plans)


def request_approval(instance: Instance, action: Action, pending_move: PendingMove) -> Approval:
    """The approval that a move has to wait for, with the digest of what approvers are shown."""
    model = action.human
    assert model is not None
    plan = instance.plan(pending_move.move)
    presents: Any = {"arguments": pending_move.arguments, "context": instance.body.context}
    if action.presents is not None:
        filled = action.presents.fill(instance.scope(pending_move.by, pending_move.arguments))
        presents = None if filled is MISSING else filled
    prompt = model.prompt or (plan.title if plan is not None else f"Enter {instance.state.name}")
    shown = [instance.id, instance.version, pending_move.move, prompt, presents]
    now = time.time()
    return Approval(
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
