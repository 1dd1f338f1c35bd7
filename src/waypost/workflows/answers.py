"""Answers about instances: flat data, with links whose arguments can be submitted unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from waypost.capabilities.principals import Principal
from waypost.errors import WorkflowRefused, shorten
from waypost.workflows.definitions import TransitionPlan
from waypost.workflows.instance import Instance, is_system
from waypost.workflows.records import RESUME, PendingMove
from waypost.workflows.scope import MISSING

Data = dict[str, Any]

RESOLUTIONS: Final = {
    "retry": "Run it again, with the same idempotency key",
    "succeeded": "It was done: go on",
    "failed": "It was not done: stay here",
}


class Answer(msgspec.Struct, frozen=True):
    """The answer to a workflow call; `refused` marks an error."""

    data: Data
    refused: bool = False


def describe_instance(instance: Instance, principal: Principal, chain: Sequence[Data] = ()) -> Data:
    """Describe an instance: state, context, pending move, errors and links."""
    definition, body = instance.definition, instance.body
    answer: Data = {
        "workflowId": instance.id,
        "definitionId": definition.id,
        "definitionVersion": definition.model.version,
        "state": instance.state.name,
        "version": instance.version,
        "status": instance.status,
        "context": body.context,
    }
    if instance.is_over:
        answer["terminal"] = True
        answer["outcome"] = body.outcome
    elif instance.state.guidance is not None:
        answer["guidance"] = instance.state.guidance
    if body.evidence:
        answer["evidence"] = [{"kind": proof.kind, "by": proof.by, "version": proof.version} for proof in body.evidence]
    if chain:
        answer["chain"] = list(chain)
    if instance.pending_move is not None:
        answer |= _describe_pending(instance.pending_move)
    elif not instance.is_over:
        if body.halted is not None:
            answer["error"] = body.halted
        if body.failure is not None:
            answer["lastError"] = body.failure
    answer["links"] = links(instance, principal)
    return answer


def _describe_pending(pending_move: PendingMove) -> Data:
    data: Data = {"transition": pending_move.move}
    if pending_move.approval is not None:
        approval = pending_move.approval
        data["approval"] = {
            "id": approval.id,
            "expiresAt": format_time(approval.expires_at),
            "role": approval.role,
            "needed": approval.needed,
            "given": len(approval.given),
            "prompt": approval.prompt,
            "presents": approval.presents,
            "digest": approval.digest,
        }
    if pending_move.child:
        data["child"] = {"workflowId": pending_move.child}
    if pending_move.kind == "unknown":
        data["error"] = {
            "code": "UNKNOWN_OUTCOME",
            "message": f"Nobody knows whether {pending_move.move} was done: "
            "the hub stopped while it ran. Follow a link.",
            "attemptedTransition": pending_move.move,
            "idempotencyKey": pending_move.key,
        }
    return data


def refusal_answer(instance: Instance, principal: Principal, code: str, message: str, **details: Any) -> Answer:
    """The answer to a refused call: the error, and the links of the instance."""
    return Answer(
        {
            "workflowId": instance.id,
            "definitionId": instance.definition.id,
            "state": instance.state.name,
            "version": instance.version,
            "error": {"code": code, "message": message, **details},
            "links": _with_self(instance, links(instance, principal)),
        },
        refused=True,
    )


def no_instance_error(error: WorkflowRefused, *leads: Data, **about: Any) -> Answer:
    """The answer to a refused call without an instance; `about` repeats the ids given, `leads` are more links."""
    about = {key: shorten(value) if isinstance(value, str) else value for key, value in about.items()}
    named = about.get("definitionId")
    near = error.details.get("nearest", [named] if named else [])
    links = [{"rel": "explain", "method": "workflow.explain", "args": {"definitionId": name}} for name in near]
    details = {"code": error.code, "message": error.message, **error.details}
    return Answer(
        {**about, "error": details, "links": [*links, *leads]},
        refused=True,
    )


def answer_outcome(instance: Instance, principal: Principal, error: Data | None, chain: Sequence[Data]) -> Answer:
    """The answer after a move and its chain."""
    return (
        Answer(describe_instance(instance, principal, chain))
        if error is None
        else failure_answer(instance, principal, error, chain)
    )


def failure_answer(instance: Instance, principal: Principal, error: Data, chain: Sequence[Data] = ()) -> Answer:
    """The answer after a move or chain that failed."""
    answer = describe_instance(instance, principal, chain)
    answer.pop("lastError", None)
    answer["error"] = error
    answer["links"] = _with_self(instance, answer["links"])
    return Answer(answer, refused=True)


def format_time(at: float) -> str:
    """A timestamp as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def self_link(workflow_id: str) -> Data:
    """The link to an instance itself."""
    return {"rel": "self", "method": "workflow.get", "args": {"workflowId": workflow_id}}


def _with_self(instance: Instance, found: list[Data]) -> list[Data]:
    return found if any(link["rel"] == "self" for link in found) else [self_link(instance.id), *found]


def links(instance: Instance, principal: Principal) -> list[Data]:
    """The calls that are possible next, with their arguments."""
    if instance.is_over:
        return []
    if instance.pending_move is not None:
        return _pending_links(instance, instance.pending_move)
    if instance.goes_on:
        return [self_link(instance.id)]
    found = [resume_link(instance)] if instance.body.halted else []
    if instance.body.pending == "enter":  # no transition is possible before the entry action has run
        return found
    found += [
        {**plan.link, "args": _submit_arguments(instance, plan.name, _prefill(instance, plan, principal))}
        for plan in instance.state.transitions.values()
        if _is_shown(instance, plan, principal)
    ]
    return found


def _pending_links(instance: Instance, pending_move: PendingMove) -> list[Data]:
    if pending_move.kind != "unknown":
        found = [self_link(instance.id)]
        if pending_move.child:
            found.append({"rel": "child", "method": "workflow.get", "args": {"workflowId": pending_move.child}})
        return found
    return [
        {
            "rel": "resolve",
            "title": title,
            "method": "workflow.submit",
            "args": _submit_arguments(instance, pending_move.move, pending_move.arguments) | {"resolve": resolution},
        }
        for resolution, title in RESOLUTIONS.items()
    ]


def resume_link(instance: Instance) -> Data:
    """The link that resumes a halted chain."""
    return {
        "rel": "resume",
        "title": "Go on from here",
        "method": "workflow.submit",
        "args": _submit_arguments(instance, RESUME, {}),
    }


def _submit_arguments(instance: Instance, transition: str, arguments: Data) -> Data:
    return {
        "workflowId": instance.id,
        "expectedVersion": instance.version,
        "transition": transition,
        "arguments": arguments,
    }


def _is_shown(instance: Instance, plan: TransitionPlan, principal: Principal) -> bool:
    actor = plan.model.actor
    if actor == "deterministic" or (actor == "system" and not is_system(principal)):
        return False
    return not instance.state.links_by_guards or plan.guards.holds(instance.scope(principal, {}))


def _prefill(instance: Instance, plan: TransitionPlan, principal: Principal) -> Data:
    if plan.prefill is None:
        return {}
    filled = plan.prefill.fill(instance.scope(principal, {}))
    return {} if filled is MISSING else filled
