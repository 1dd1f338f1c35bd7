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
from waypost.workflows.definitions import Action, Definition, TransitionPlan, with_defaults
from waypost.workflows.instance import HUMAN, Live, is_system, settled_status
from waypost.workflows.records import ENTER, WAITING, Approval, Body, Held, Parent, Pending, digest
from waypost.workflows.scope import MISSING, Proof

Data = dict[str, Any]


def stale(live: Live, expected: int) -> WorkflowRefused:
    """That a version is over."""
    message = f"Expected workflow version {expected}, but current version is {live.version}."
    return WorkflowRefused(message, "STALE_WORKFLOW_VERSION")


def check_request_id(request_id: str) -> None:
    """Refuse an id that no answer can be kept under."""
    if not is_key(request_id):
        message = f"requestId takes at most {MAX_KEY_BYTES} bytes, and no NUL."
        raise WorkflowRefused(message, "INPUT_SCHEMA_VIOLATION", problems=[message])


def check_version(live: Live, expected: int) -> None:
    """Refuse a version that is over, or that somebody is moving on from right now."""
    if live.version != expected:
        raise stale(live, expected)
    held = live.held
    if held is None:
        return
    if held.kind == "approval":
        assert held.approval is not None
        raise WorkflowRefused(
            f"{held.move} waits for a person with the role {held.approval.role}.",
            "APPROVAL_PENDING",
            approval={"id": held.approval.id},
        )
    if held.kind == "unknown":
        raise WorkflowRefused(
            f"Nobody knows whether {held.move} was done; resolve that first.", "UNKNOWN_OUTCOME", move=held.move
        )
    waits = f"waits for workflow {held.child}" if held.kind == "child" else "is being executed"
    raise WorkflowRefused(f"{held.move} {waits}; version {expected} is taken.", "STALE_WORKFLOW_VERSION")


def check_entered(live: Live) -> None:
    """Refuse what would go around the entry into the state, or around what goes on by itself right now."""
    if live.is_over:
        return
    if live.goes_on:
        message = f"{live.definition.id} goes on by itself from {live.state.name}; version {live.version} is taken."
        raise WorkflowRefused(message, "STALE_WORKFLOW_VERSION")
    halted = live.body.halted
    if live.body.pending == "enter" and halted is not None:
        why = {"errorClass": halted["errorClass"]} if "errorClass" in halted else {}
        message = f"{live.state.name} has not been entered, and nothing can be done there before: {halted['message']}"
        raise WorkflowRefused(message, "CHAIN_FAILED", **why)


def found(live: Live, name: str) -> TransitionPlan:
    """The transition of that name, if it leads out of here."""
    plan = None if live.is_over else live.state.transitions.get(name)
    if plan is None:
        where = (
            f"{live.definition.id} has ended"
            if live.is_over
            else f"{live.state.name} has no transition {shorten(name)!r}"
        )
        raise WorkflowRefused(f"{where}.", "INVALID_TRANSITION", legalTransitions=_legal(live))
    return plan


def _legal(live: Live) -> list[str]:
    return [] if live.is_over else [n for n, p in live.state.transitions.items() if p.model.actor != "deterministic"]


def check_actor(plan: TransitionPlan, principal: Principal) -> None:
    """Refuse what only people, or only the system, may do."""
    actor = plan.model.actor
    if actor == "human" and HUMAN not in principal.roles:
        raise WorkflowRefused(
            f"{plan.name} takes a person, with the role human; {principal.id} is none.", "ACTOR_MISMATCH"
        )
    if actor == "system" and not is_system(principal):
        raise WorkflowRefused(f"{plan.name} is the system's; {principal.id} is not.", "ACTOR_MISMATCH")


def admitted(plan: TransitionPlan, arguments: Data) -> Data:
    """The arguments with their defaults, if they fit."""
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


def check_guards(live: Live, plan: TransitionPlan, principal: Principal, arguments: Data) -> None:
    """Refuse what a guard is against, and say which one and why."""
    if not plan.guard_texts:
        return
    scope = live.scope(principal, arguments)
    if plan.guards.holds(scope):
        return
    reasons = plan.guards.failures(scope)
    told = "; ".join(reason["message"] for reason in reasons)
    raise WorkflowRefused(f"{plan.name} is not allowed now: {told}", "GUARD_REJECTED", guards=reasons)


GRACE: Final = 5.0
"""Seconds after which somebody else looks whether a chain goes on."""
_NO_ARGUMENTS: Final = digest({})


class Landing(msgspec.Struct, frozen=True):
    """The outcome of a move, to be committed."""

    live: Live
    due_at: float
    entry: Data


def new_id() -> str:
    """An id for an instance: ids sort as they were made."""
    return f"wf_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(6)}"


def begin(
    definition: Definition,
    given: Data,
    owner: Principal,
    workflow_id: str = "",
    parent: Parent | None = None,
    depth: int = 0,
) -> tuple[Live, float]:
    """A new instance in its initial state, and when it is due."""
    now = time.time()
    state, model = definition.state(definition.initial), definition.model
    pending: Pending = ""
    if not state.model.terminal:
        pending = "enter" if state.enter is not None else "chain" if state.chained else ""
    status = settled_status(state)
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
    live = Live(id=workflow_id or new_id(), version=1, definition=definition, state=state, settled=status, body=body)
    return live, 0.0 if state.model.terminal else now + GRACE if pending else body.deadline


def land(
    live: Live, held: Held, action: Action, output: Any, now: float, proof: str | None = None, **told: Any
) -> Landing:
    """Follow a transition, or finish entering a state, with the output of what was run.

    `proof` is the evidence that running it was; `told` adds to the history.
    """
    plan = live.plan(held.move)
    written: Data = {}
    body = live.body
    if action.output is not None:
        written = action.output.apply(live.scope(held.by, held.arguments, output))
        body = replace(body, context={**body.context, **written})
    target = live.state.name
    if plan is not None:
        target = plan.model.target
        if plan.branches:
            scope = live.scope(held.by, held.arguments, output)
            scope.context = body.context
            target = next((other for guard, other in plan.branches if guard.holds(scope)), target)
    entry: Data = {"transition": held.move, "from": live.state.name, "to": target, "by": held.by.id}
    if held.chained:
        entry["chained"] = True
    if plan is not None and plan.guard_texts:
        entry["guards"] = plan.guard_texts
    entry["argumentsDigest"] = digest(held.arguments) if held.arguments else _NO_ARGUMENTS
    if action.kind != "none":
        entry["executor"] = {"kind": action.kind, "outcome": "succeeded", **told}
    if held.key:
        entry["key"] = held.key
    entry["delta"] = written
    if held.approval is not None:
        entry["approvals"] = held.approval.given
        entry["approvalId"] = held.approval.id
    kinds = action.evidence if proof is None else (*action.evidence, proof)
    if kinds:
        approvers = [one["by"] for one in held.approval.given] if held.approval is not None else [held.by.id]
        proofs = [Proof(kind, by, live.version + 1) for kind in kinds for by in approvers]
        older = body.evidence
        if target == live.state.name:  # what is done again and again proves it once, or it would grow without end
            older = [one for one in older if one.kind != proof or one.by not in approvers]
        body = replace(body, evidence=[*older, *proofs])
    return _arrive(live, target, body, entry, now, enters=held.move != ENTER)


def divert(live: Live, target: str | None, move: str, by: str, status: str, now: float, **told: Any) -> Landing:
    """Go to a state because the time is over, or end where it stands."""
    entry = {"transition": move, "from": live.state.name, "to": target or live.state.name, "by": by, **told}
    if target is not None:
        body = msgspec.structs.replace(live.body, deadline=0.0)
        return _arrive(live, target, body, entry, now, enters=True)
    outcome = "cancelled" if status == "cancelled" else "failed"
    body = msgspec.structs.replace(live.body, pending="", halted=None, failure=None, outcome=outcome, ended_at=now)
    after = replace(live, version=live.version + 1, settled=status, body=body, held=None, token="", until=0.0)
    return Landing(after, 0.0, entry)


def _arrive(live: Live, target: str, body: Body, entry: Data, now: float, *, enters: bool) -> Landing:
    state = live.state if target == live.state.name else live.definition.state(target)
    terminal = state.model.terminal
    pending: Pending = ""
    if not terminal:
        pending = "enter" if enters and state.enter is not None else "chain" if state.chained else ""
    status = settled_status(state)
    changes: Data = {}
    if body.pending != pending:
        changes["pending"] = pending
    if body.halted is not None or body.failure is not None:
        changes["halted"] = changes["failure"] = None
    if terminal:
        changes |= {"outcome": status, "ended_at": now}
    if changes:
        body = msgspec.structs.replace(body, **changes)
    due_at = 0.0 if terminal else now + GRACE if pending else body.deadline
    after = Live(
        id=live.id, version=live.version + 1, definition=live.definition, state=state, settled=status, body=body
    )
    return Landing(after, due_at, entry)


def stay(live: Live, error: Data | None, *, halted: bool) -> tuple[Live, float]:
    """The instance after a move that came to nothing, and when it is due again."""
    changes = {"halted": error, "failure": None} if halted else {"failure": error}
    body = msgspec.structs.replace(live.body, **changes)
    settled = "chain_failed" if halted else live.settled
    after = replace(live, settled=settled, body=body, held=None, token="", until=0.0)
    return after, body.deadline


def resumed(live: Live) -> Live:
    """The instance, with what goes on by itself free to go on."""
    body = msgspec.structs.replace(live.body, halted=None, failure=None)
    return replace(live, settled=WAITING, body=body)


def hop(before: Live, held: Held, after: Live) -> Data:
    """A hop of a chain, as answers tell it."""
    return {
        "fromState": before.state.name,
        "transition": held.move,
        "toState": after.state.name,
        "version": after.version,
    }


def chosen(live: Live, caller: Caller) -> str | Data:
    """The one deterministic transition that can be taken: a guarded one that holds, else the one without guards."""
    scope = live.scope(caller.principal, {})
    guarded = [plan for plan in live.state.chained if plan.guard_texts]
    holding = [plan for plan in guarded if plan.guards.holds(scope)]
    if not holding:
        holding = [plan for plan in live.state.chained if not plan.guard_texts]
    if len(holding) == 1:
        return holding[0].name
    return {
        "code": "CHAIN_FAILED",
        "message": f"{'None' if not holding else 'More than one'} of the transitions out of {live.state.name} can be "
        f"taken by itself: {_names(holding or live.state.chained)}.",
        "candidates": [plan.name for plan in holding],
    }


def _names(plans: list[TransitionPlan] | tuple[TransitionPlan, ...]) -> str:
    return ", ".join(plan.name for plan in plans)


def asked(live: Live, action: Action, held: Held) -> Approval:
    """The question to people that a move stops at."""
    model = action.human
    assert model is not None
    plan = live.plan(held.move)
    presents: Any = {"arguments": held.arguments, "context": live.body.context}
    if action.presents is not None:
        filled = action.presents.fill(live.scope(held.by, held.arguments))
        presents = None if filled is MISSING else filled
    prompt = model.prompt or (plan.title if plan is not None else f"Enter {live.state.name}")
    shown = [live.id, live.version, held.move, prompt, presents]
    now = time.time()
    return Approval(
        id=f"ap_{live.id.removeprefix('wf_')}_{secrets.token_hex(6)}",
        role=model.role,
        queue=model.queue,
        needed=model.approvals,
        prompt=prompt,
        presents=presents,
        digest=f"sha256:{digest(shown)}",
        requested_at=now,
        expires_at=now + model.expires_ms / 1000,
    )
