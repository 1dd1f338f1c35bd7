"""What has to be right before a transition is taken: request id, version, entry, transition, actor, schema, guards."""

from __future__ import annotations

from typing import Any

from waypost.capabilities.principals import Principal
from waypost.errors import WorkflowRefused, shorten
from waypost.stores.records import MAX_KEY_BYTES, is_key
from waypost.workflows.definition import TransitionPlan, with_defaults
from waypost.workflows.live import HUMAN, Live, is_system

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
