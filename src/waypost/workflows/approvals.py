"""Human approvals: list what waits for a decision, approve, reject, expire.

An approval is bound to the digest of what was shown. The instance cannot change while it waits, and an approver may
send the digest that they saw; a different digest is refused.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

import msgspec

from waypost.capabilities.principals import Principal
from waypost.errors import StaleVersion, WorkflowRefused
from waypost.stores.store import Store
from waypost.workflows.answers import moment
from waypost.workflows.audit import Recorder
from waypost.workflows.instance import ADMIN, Live, Shelf, absent
from waypost.workflows.records import Approval, Held
from waypost.workflows.runner import Chains, Moves, Outcome, Taken

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


_TRIES: Final = 10
_PAGE: Final = 200


class Gates:
    """The approvals of a hub."""

    def __init__(self, store: Store, shelf: Shelf, moves: Moves, chains: Chains, recorder: Recorder) -> None:
        self._store = store
        self._shelf = shelf
        self._moves = moves
        self._chains = chains
        self._recorder = recorder

    async def waiting(self) -> list[Data]:
        """Everything that waits for people, the oldest first."""
        found: list[tuple[float, Data]] = []
        after, now = "", time.time()
        while page := await self._store.instances.reserved(after, _PAGE):
            for instance in page:
                live = await self._shelf.live(instance)
                held = live.held
                if held is not None and held.approval is not None and held.approval.expires_at > now:
                    found.append((held.approval.requested_at, told_to_approvers(live, held.approval)))
            after = page[-1].id
        return [told for _, told in sorted(found, key=lambda one: one[0])]

    async def approve(
        self, approval_id: str, person: Principal, via: str, reason: str = "", digest: str | None = None
    ) -> Outcome:
        """Say yes; with enough people saying so, the move is done and the instance goes on."""
        for _ in range(_TRIES):
            live, held, approval = await self._found(approval_id, person, digest)
            if any(one["by"] == person.id for one in approval.given):
                message = f"{person.id} has approved {approval_id} already; it takes somebody else."
                raise WorkflowRefused(message, "APPROVAL_GIVEN")
            decision = {"by": person.id, "at": time.time(), "reason": reason, "via": via}
            approval = msgspec.structs.replace(approval, given=[*approval.given, decision])
            held = msgspec.structs.replace(held, approval=approval)
            try:
                outcome = await self._agreed(live, held, approval)
            except StaleVersion:
                continue
            self._recorder.decided(live, person.id, via, "approval.approved", f"{approval.digest} {reason}".strip())
            return outcome
        message = f"{approval_id} is being decided by too many at once; try again."
        raise WorkflowRefused(message, "STALE_WORKFLOW_VERSION")

    async def _agreed(self, live: Live, held: Held, approval: Approval) -> Outcome:
        if len(approval.given) < approval.needed:
            token = f"{approval.id}.{len(approval.given)}"
            return Outcome(await self._moves.reserve(live, held, approval.expires_at, token), [])
        output = {
            "requestId": approval.id,
            "queue": approval.queue,
            "status": "approved",
            "approved": True,
            "digest": approval.digest,
            "approvers": [one["by"] for one in approval.given],
            "reason": approval.given[-1]["reason"],
        }
        taken = await self._moves.finish(live, held, output)
        return await self._chains.go_on(taken, absent(held.by, live.id))

    async def reject(
        self, approval_id: str, person: Principal, via: str, reason: str = "", digest: str | None = None
    ) -> Outcome:
        """Say no; the instance stays where it is."""
        live, held, approval = await self._found(approval_id, person, digest)
        told = f"{person.id} rejected {held.move}{f': {reason}' if reason else '.'}"
        error = {"code": "APPROVAL_REJECTED", "message": told, "decidedBy": person.id, "reason": reason}
        try:
            taken = await self._turn_down(live, held, "rejected", error, decidedBy=person.id, via=via, reason=reason)
        except StaleVersion:
            raise WorkflowRefused(f"{approval_id} is settled already.", "APPROVAL_SETTLED") from None
        self._recorder.decided(live, person.id, via, "approval.rejected", f"{approval.digest} {reason}".strip())
        return Outcome(taken.live, [], taken.error)

    async def expire(self, live: Live, held: Held) -> Taken:
        """Nobody decided in time."""
        told = f"Nobody decided about {held.move} in time."
        return await self._turn_down(live, held, "expired", {"code": "APPROVAL_EXPIRED", "message": told})

    async def _turn_down(self, live: Live, held: Held, outcome: str, error: Data, **noted: Any) -> Taken:
        assert held.approval is not None
        error = {**error, "attemptedTransition": held.move, "approvalId": held.approval.id}
        if held.chained:
            error["code"] = "CHAIN_FAILED"
        noted |= {"approvalId": held.approval.id, "digest": held.approval.digest}
        return await self._moves.settle(live, held, error, outcome=outcome, **noted)

    async def _found(self, approval_id: str, person: Principal, digest: str | None) -> tuple[Live, Held, Approval]:
        live = await self._shelf.get(workflow_of(approval_id))
        held = None if live is None else live.held
        approval = None if held is None else held.approval
        if live is None or held is None or approval is None or approval.id != approval_id:
            message = f"There is no approval {approval_id} that waits; it is settled, or never was."
            raise WorkflowRefused(message, "UNKNOWN_APPROVAL" if live is None else "APPROVAL_SETTLED")
        if approval.role not in person.roles and ADMIN not in person.roles:
            raise WorkflowRefused(f"It takes the role {approval.role} to decide about {approval_id}.", "POLICY_DENIED")
        if 0 < live.body.deadline <= time.time():
            raise WorkflowRefused(f"The time of {live.id} is over.", "APPROVAL_EXPIRED")
        if approval.expires_at <= time.time():
            with suppress(StaleVersion):  # somebody else saw it first
                await self.expire(live, held)
            raise WorkflowRefused(f"{approval_id} has expired; submit the transition again.", "APPROVAL_EXPIRED")
        if digest is not None and digest != approval.digest:
            message = f"What was shown for {approval_id} is not what would be approved; look at it again."
            raise WorkflowRefused(message, "APPROVAL_CHANGED")
        return live, held, approval
