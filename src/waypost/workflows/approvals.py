"""What people are asked to approve, and exactly what they are shown.

An approval is bound to the digest of what was shown. The instance cannot change while it waits, and whoever approves
may name the digest they saw; another one is refused.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

from waypost.workflows.answers import moment
from waypost.workflows.definition import Action
from waypost.workflows.live import Live
from waypost.workflows.records import Approval, Held, digest
from waypost.workflows.scope import MISSING

Data = dict[str, Any]


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


def workflow_of(approval_id: str) -> str:
    """The instance that an approval is about."""
    return f"wf_{approval_id.removeprefix('ap_').partition('_')[0]}"


def told_to_approvers(live: Live, approval: Approval) -> Data:
    """An approval as people see it."""
    assert live.held is not None
    return {
        "id": approval.id,
        "workflowId": live.id,
        "definitionId": live.definition.id,
        "state": live.state.name,
        "transition": live.held.move,
        "requestedBy": live.held.by.id,
        "requestedAt": moment(approval.requested_at),
        "expiresAt": moment(approval.expires_at),
        "role": approval.role,
        "queue": approval.queue,
        "needed": approval.needed,
        "given": approval.given,
        "prompt": approval.prompt,
        "presents": approval.presents,
        "digest": approval.digest,
    }
