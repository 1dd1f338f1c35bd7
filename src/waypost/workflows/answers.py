"""What callers are told about an instance: flat answers, and links that can be followed as they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from waypost.capabilities.principals import Principal
from waypost.errors import WorkflowRefused, shorten
from waypost.workflows.definitions import TransitionPlan
from waypost.workflows.instance import Live, is_system
from waypost.workflows.records import RESUME, Held
from waypost.workflows.scope import MISSING

Data = dict[str, Any]

RESOLUTIONS: Final = {
    "retry": "Run it again, with the same idempotency key",
    "succeeded": "It was done: go on",
    "failed": "It was not done: stay here",
}


class Answer(msgspec.Struct, frozen=True):
    """The answer to a call about a workflow; `refused` when it was not done."""

    data: Data
    refused: bool = False


def standing(live: Live, principal: Principal, chain: Sequence[Data] = ()) -> Data:
    """How an instance stands, and what can be done next."""
    definition, body = live.definition, live.body
    answer: Data = {
        "workflowId": live.id,
        "definitionId": definition.id,
        "definitionVersion": definition.model.version,
        "state": live.state.name,
        "version": live.version,
        "status": live.status,
        "context": body.context,
    }
    if live.is_over:
        answer["terminal"] = True
        answer["outcome"] = body.outcome
    elif live.state.guidance is not None:
        answer["guidance"] = live.state.guidance
    if body.evidence:
        answer["evidence"] = [{"kind": proof.kind, "by": proof.by, "version": proof.version} for proof in body.evidence]
    if chain:
        answer["chain"] = list(chain)
    if live.held is not None:
        answer |= _on_its_way(live.held)
    elif not live.is_over:
        if body.halted is not None:
            answer["error"] = body.halted
        if body.failure is not None:
            answer["lastError"] = body.failure
    answer["links"] = links(live, principal)
    return answer


def _on_its_way(held: Held) -> Data:
    told: Data = {"transition": held.move}
    if held.approval is not None:
        approval = held.approval
        told["approval"] = {
            "id": approval.id,
            "expiresAt": moment(approval.expires_at),
            "role": approval.role,
            "needed": approval.needed,
            "given": len(approval.given),
            "prompt": approval.prompt,
            "presents": approval.presents,
            "digest": approval.digest,
        }
    if held.child:
        told["child"] = {"workflowId": held.child}
    if held.kind == "unknown":
        told["error"] = {
            "code": "UNKNOWN_OUTCOME",
            "message": f"Nobody knows whether {held.move} was done: the hub stopped while it ran. Follow a link.",
            "attemptedTransition": held.move,
            "idempotencyKey": held.key,
        }
    return told


def refusal(live: Live, principal: Principal, code: str, message: str, **details: Any) -> Answer:
    """That something was not done, and where to go from here."""
    return Answer(
        {
            "workflowId": live.id,
            "definitionId": live.definition.id,
            "state": live.state.name,
            "version": live.version,
            "error": {"code": code, "message": message, **details},
            "links": _with_self(live, links(live, principal)),
        },
        refused=True,
    )


def nowhere(error: WorkflowRefused, *leads: Data, **about: Any) -> Answer:
    """Return the refusal of a call without an instance; `about` repeats its ids, `leads` are links to go on with."""
    about = {key: shorten(value) if isinstance(value, str) else value for key, value in about.items()}
    named = about.get("definitionId")
    near = error.details.get("nearest", [named] if named else [])
    links = [{"rel": "explain", "method": "workflow.explain", "args": {"definitionId": name}} for name in near]
    told = {"code": error.code, "message": error.message, **error.details}
    return Answer(
        {**about, "error": told, "links": [*links, *leads]},
        refused=True,
    )


def outcome(live: Live, principal: Principal, error: Data | None, chain: Sequence[Data]) -> Answer:
    """How far a move and what followed it came."""
    return Answer(standing(live, principal, chain)) if error is None else failed(live, principal, error, chain)


def failed(live: Live, principal: Principal, error: Data, chain: Sequence[Data] = ()) -> Answer:
    """That something went wrong on the way, with how far it came."""
    answer = standing(live, principal, chain)
    answer.pop("lastError", None)
    answer["error"] = error
    answer["links"] = _with_self(live, answer["links"])
    return Answer(answer, refused=True)


def moment(at: float) -> str:
    """A time as answers tell it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_self(workflow_id: str) -> Data:
    """The link to an instance itself."""
    return {"rel": "self", "method": "workflow.get", "args": {"workflowId": workflow_id}}


def _with_self(live: Live, found: list[Data]) -> list[Data]:
    return found if any(link["rel"] == "self" for link in found) else [to_self(live.id), *found]


def links(live: Live, principal: Principal) -> list[Data]:
    """What can be done next, each a call that can be made as it is."""
    if live.is_over:
        return []
    if live.held is not None:
        return _ways_out(live, live.held)
    if live.goes_on:
        return [to_self(live.id)]
    found = [resume(live)] if live.body.halted else []
    if live.body.pending == "enter":  # nothing else can be done before the state is entered
        return found
    found += [
        {**plan.link, "args": _submit(live, plan.name, _prefilled(live, plan, principal))}
        for plan in live.state.transitions.values()
        if _is_shown(live, plan, principal)
    ]
    return found


def _ways_out(live: Live, held: Held) -> list[Data]:
    if held.kind != "unknown":
        found = [to_self(live.id)]
        if held.child:
            found.append({"rel": "child", "method": "workflow.get", "args": {"workflowId": held.child}})
        return found
    return [
        {
            "rel": "resolve",
            "title": title,
            "method": "workflow.submit",
            "args": _submit(live, held.move, held.arguments) | {"resolve": resolution},
        }
        for resolution, title in RESOLUTIONS.items()
    ]


def resume(live: Live) -> Data:
    """The link that lets a chain go on."""
    return {
        "rel": "resume",
        "title": "Go on from here",
        "method": "workflow.submit",
        "args": _submit(live, RESUME, {}),
    }


def _submit(live: Live, transition: str, arguments: Data) -> Data:
    return {"workflowId": live.id, "expectedVersion": live.version, "transition": transition, "arguments": arguments}


def _is_shown(live: Live, plan: TransitionPlan, principal: Principal) -> bool:
    actor = plan.model.actor
    if actor == "deterministic" or (actor == "system" and not is_system(principal)):
        return False
    return not live.state.links_by_guards or plan.guards.holds(live.scope(principal, {}))


def _prefilled(live: Live, plan: TransitionPlan, principal: Principal) -> Data:
    if plan.prefill is None:
        return {}
    filled = plan.prefill.fill(live.scope(principal, {}))
    return {} if filled is MISSING else filled
