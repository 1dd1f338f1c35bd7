"""Approvals: what waits for people, and what they decide; whoever has the role that is asked for may."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from waypost.api.operated import Operated, Operator
from waypost.api.routing import Route
from waypost.api.runs import Text, patiently
from waypost.workflows.answers import moment
from waypost.workflows.approvals import workflow_of
from waypost.workflows.chaining import Outcome
from waypost.workflows.live import ADMIN, Live


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why, and the digest of what was seen, if that is to be compared."""

    reason: Text = ""
    digest: Annotated[str, Meta(max_length=200)] | None = None


class Waiting(msgspec.Struct, frozen=True):
    """What waits for somebody, the oldest first."""

    approvals: list[dict[str, Any]]


class Decided(msgspec.Struct, frozen=True, rename="camel"):
    """What was decided, and how the run stands; `error` is what went wrong behind it."""

    id: str
    decision: Literal["approved", "rejected"]
    workflow_id: str
    state: str
    version: int
    status: str
    error: dict[str, Any] | None = None


async def list_approvals(hub: Operated, by: Operator) -> Waiting:
    """What waits for whoever asks; an operator sees all of it."""
    found = await hub.workflows.engine.gates.waiting()
    roles = by.principal.roles
    return Waiting([_told(one) for one in found if one["role"] in roles or ADMIN in roles])


async def approve(hub: Operated, id: str, body: Decision, by: Operator) -> Decided:
    """Say yes."""
    gates = hub.workflows.engine.gates
    return await _decided(hub, id, "approved", gates.approve(id, by.principal, by.via, body.reason, body.digest))


async def reject(hub: Operated, id: str, body: Decision, by: Operator) -> Decided:
    """Say no."""
    gates = hub.workflows.engine.gates
    return await _decided(hub, id, "rejected", gates.reject(id, by.principal, by.via, body.reason, body.digest))


async def _decided(
    hub: Operated, id: str, word: Literal["approved", "rejected"], work: Coroutine[Any, Any, Outcome]
) -> Decided:
    engine = hub.workflows.engine
    outcome = await patiently(engine, work)
    live: Live | None = outcome.live if outcome is not None else await engine.shelf.get(workflow_of(id))
    assert live is not None
    failure = None if outcome is None or word == "rejected" else outcome.error
    return Decided(id, word, live.id, live.state.name, live.version, live.status, failure)


def _told(approval: dict[str, Any]) -> dict[str, Any]:
    given = [{**one, "at": moment(one["at"])} for one in approval["given"]]
    return {**approval, "given": given}


_ID: Final = "ap_0199a1b2c3d4e5f60718293a_5f0c41aa7b21"
_WAITING: Final = {
    "id": _ID,
    "workflowId": "wf_0199a1b2c3d4e5f60718293a",
    "definitionId": "release",
    "state": "review",
    "transition": "ship",
    "requestedBy": "ci",
    "requestedAt": "2029-01-01T00:00:00.000Z",
    "expiresAt": "2029-01-08T00:00:00.000Z",
    "role": "human",
    "queue": "default",
    "needed": 1,
    "given": [],
    "prompt": "Ship it?",
    "presents": {"service": "shop"},
    "digest": "sha256:41aa",
}
_DONE: Final = Decided(_ID, "approved", "wf_0199a1b2c3d4e5f60718293a", "shipped", 4, "succeeded")

ROUTES: Final = (
    Route("GET", "/api/v1/approvals", list_approvals, "What waits for people", answer=Waiting([_WAITING]), open=True),
    Route(
        "POST",
        "/api/v1/approvals/{id}/approve",
        approve,
        "Approve",
        example=Decision("looks good", "sha256:41aa"),
        answer=_DONE,
        open=True,
    ),
    Route(
        "POST",
        "/api/v1/approvals/{id}/reject",
        reject,
        "Reject",
        example=Decision("not on a Friday"),
        answer=msgspec.structs.replace(_DONE, decision="rejected", state="review", status="waiting_for_action"),
        open=True,
    ),
)
