"""Human approvals: list what waits for a decision, approve, reject, expire.

An approval is bound to the digest of what was shown. The instance cannot change while it waits, and an approver may
send the digest that they saw; a different digest is refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from waypost.capabilities.principals import Principal
from waypost.errors import StaleVersion, WorkflowRefused
from waypost.stores.store import Store
from waypost.workflows.instance import (
    HUMAN,
    Approval,
    Instance,
    InstanceCache,
    PendingMove,
    detached_caller,
    may_decide,
)
from waypost.workflows.runner import Outcome, Runner
from waypost.workflows.views import Recorder, describe_approval, format_time

Data = dict[str, Any]


_MAX_ATTEMPTS: Final = 10
_PAGE_SIZE: Final = 200


def instance_id_of(approval_id: str) -> str:
    """The id of the instance that an approval belongs to."""
    return f"wf_{approval_id.removeprefix('ap_').partition('_')[0]}"


def describe_pending(instance: Instance, approval: Approval) -> Data:
    """A pending approval as approvers see it."""
    assert instance.pending_move is not None
    return {
        **describe_approval(approval),
        "workflowId": instance.id,
        "definitionId": instance.definition.id,
        "state": instance.state.name,
        "transition": instance.pending_move.move,
        "title": instance.definition.title,
        "targets": _targets_of(instance, instance.pending_move.move),
        "requestedBy": instance.pending_move.by.id,
        "requestedAt": format_time(approval.requested_at),
        "queue": approval.queue,
        "given": approval.given,
    }


def _targets_of(instance: Instance, move: str) -> list[str]:
    """The states that a move may lead to; an entry action leads nowhere."""
    plan = instance.state.transitions.get(move)
    return [] if plan is None else list(dict.fromkeys(plan.targets))


def _contested(approval_id: str) -> WorkflowRefused:
    message = f"{approval_id} is being decided by several people at once; try again."
    return WorkflowRefused(message, "STALE_WORKFLOW_VERSION")


class Approvals:
    """Lists pending approvals and records decisions."""

    def __init__(self, store: Store, cache: InstanceCache, runner: Runner, recorder: Recorder) -> None:
        self._store = store
        self._cache = cache
        self._runner = runner
        self._recorder = recorder

    async def waiting(self) -> list[Data]:
        """All pending approvals, the oldest first."""
        found: list[tuple[float, Data]] = []
        after, now = "", self._store.now()
        while page := await self._store.instances.reserved(after, _PAGE_SIZE):
            for record in page:
                instance = await self._cache.restore(record)
                pending_move = instance.pending_move
                approval = None if pending_move is None else pending_move.approval
                if approval is not None and approval.expires_at > now:
                    found.append((approval.requested_at, describe_pending(instance, approval)))
            after = page[-1].id
        return [described for _, described in sorted(found, key=lambda one: one[0])]

    async def approve(
        self, approval_id: str, person: Principal, via: str, reason: str = "", digest: str | None = None
    ) -> Outcome:
        """Approve; with enough approvals the move is committed and the chain continues."""
        for _ in range(_MAX_ATTEMPTS):
            instance, pending_move, approval = await self._find(approval_id, person, digest)
            if any(one["by"] == person.id for one in approval.given):
                message = f"{person.id} has already approved {approval_id}; another person has to."
                raise WorkflowRefused(message, "APPROVAL_GIVEN")
            decision = {"by": person.id, "at": self._store.now(), "reason": reason, "via": via}
            approval = msgspec.structs.replace(approval, given=[*approval.given, decision])
            pending_move = msgspec.structs.replace(pending_move, approval=approval)
            try:
                outcome = await self._apply(instance, pending_move, approval)
            except StaleVersion:
                continue  # another approval or a timeout came first: decide about what is there now
            self._recorder.record_decision(
                instance, person.id, via, "approval.approved", f"{approval.digest} {reason}".strip()
            )
            return outcome
        raise _contested(approval_id)

    async def _apply(self, instance: Instance, pending_move: PendingMove, approval: Approval) -> Outcome:
        if len(approval.given) < approval.needed:
            # The token counts the approvals: of two concurrent approvals one fails, and is tried again on top.
            token = f"{approval.id}.{len(approval.given)}"
            return Outcome(await self._runner.reserve(instance, pending_move, approval.expires_at, token))
        output = {
            "requestId": approval.id,
            "queue": approval.queue,
            "status": "approved",
            "approved": True,
            "digest": approval.digest,
            "approvers": [one["by"] for one in approval.given],
            "reason": approval.given[-1]["reason"],
        }
        taken = await self._runner.finish(instance, pending_move, output)
        return await self._runner.follow(taken, detached_caller(pending_move.by, instance.id))

    async def reject(
        self, approval_id: str, person: Principal, via: str, reason: str = "", digest: str | None = None
    ) -> Outcome:
        """Reject; the instance stays in its state."""
        for _ in range(_MAX_ATTEMPTS):
            instance, pending_move, approval = await self._find(approval_id, person, digest)
            message = f"{person.id} rejected {pending_move.move}{f': {reason}' if reason else '.'}"
            error = {"code": "APPROVAL_REJECTED", "message": message, "decidedBy": person.id, "reason": reason}
            try:
                taken = await self._fail(
                    instance, pending_move, "rejected", error, decidedBy=person.id, via=via, reason=reason
                )
            except StaleVersion:
                continue  # one of several approvals came first, and a rejection outweighs it; or it is decided
            self._recorder.record_decision(
                instance, person.id, via, "approval.rejected", f"{approval.digest} {reason}".strip()
            )
            return taken
        raise _contested(approval_id)

    async def expire(self, instance: Instance, pending_move: PendingMove) -> Outcome:
        """Fail a move whose approval was not decided in time."""
        message = f"The approval of {pending_move.move} expired without a decision."
        return await self._fail(instance, pending_move, "expired", {"code": "APPROVAL_EXPIRED", "message": message})

    async def _fail(
        self, instance: Instance, pending_move: PendingMove, outcome: str, error: Data, **noted: Any
    ) -> Outcome:
        """Release a move whose approval was rejected or expired."""
        assert pending_move.approval is not None
        error = {**error, "attemptedTransition": pending_move.move, "approvalId": pending_move.approval.id}
        if pending_move.chained:
            error["code"] = "CHAIN_FAILED"
        noted |= {"approvalId": pending_move.approval.id, "digest": pending_move.approval.digest}
        return await self._runner.settle(instance, pending_move, error, outcome=outcome, **noted)

    async def _find(
        self, approval_id: str, person: Principal, digest: str | None
    ) -> tuple[Instance, PendingMove, Approval]:
        instance = await self._cache.get(instance_id_of(approval_id), person)
        pending_move = None if instance is None else instance.pending_move
        approval = None if pending_move is None else pending_move.approval
        is_visible = instance is not None and (instance.is_open_to(person) or HUMAN in person.roles)
        # In this order: a person without the role learns nothing about the state of the approval.
        if instance is None or pending_move is None or approval is None or approval.id != approval_id or not is_visible:
            message = f"There is no pending approval {approval_id}; it has been decided, or does not exist."
            # Only people who may see the instance, or who decide about others like it, learn that it existed.
            raise WorkflowRefused(message, "APPROVAL_SETTLED" if is_visible else "UNKNOWN_APPROVAL")
        if not may_decide(approval.role, person):
            raise WorkflowRefused(f"Deciding about {approval_id} requires the role {approval.role}.", "POLICY_DENIED")
        # A decision must not win against a timeout that is due and that maintenance has not applied yet.
        if 0 < instance.body.deadline <= self._store.now():
            raise WorkflowRefused(f"{instance.id} has timed out.", "APPROVAL_EXPIRED")
        if approval.expires_at <= self._store.now():
            with suppress(StaleVersion):  # another process expired it first
                await self.expire(instance, pending_move)
            raise WorkflowRefused(f"{approval_id} has expired; submit the transition again.", "APPROVAL_EXPIRED")
        if digest is not None and digest != approval.digest:
            message = f"{approval_id} has changed since it was shown; read it again."
            raise WorkflowRefused(message, "APPROVAL_CHANGED")
        return instance, pending_move, approval
