"""What people are asked to approve, and exactly what they are shown.

An approval is bound to the digest of what was shown. The instance cannot change while it waits, and whoever approves
may name the digest they saw; another one is refused.
"""

from __future__ import annotations

from typing import Any

from waypost.workflows.answers import moment
from waypost.workflows.live import Live
from waypost.workflows.records import Approval

Data = dict[str, Any]


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
