"""People decide: what waits for them, and what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from waypost.capabilities.principals import Principal
from waypost.errors import StaleVersion, WorkflowRefused
from waypost.stores.store import Store
from waypost.workflows.approvals import told_to_approvers, workflow_of
from waypost.workflows.callers import absent
from waypost.workflows.chaining import Chains, Outcome
from waypost.workflows.live import ADMIN, Live
from waypost.workflows.moves import Moves, Taken
from waypost.workflows.recording import Recorder
from waypost.workflows.records import Approval, Held
from waypost.workflows.shelf import Shelf

Data = dict[str, Any]
_TRIES: Final = 10
_PAGE: Final = 200


class Gates:
    """The approvals of a hub."""

    def __init__(
        self, store: Callable[[], Store], shelf: Shelf, moves: Moves, chains: Chains, recorder: Recorder
    ) -> None:
        self._store = store
        self._shelf = shelf
        self._moves = moves
        self._chains = chains
        self._recorder = recorder

    async def waiting(self) -> list[Data]:
        """Everything that waits for people, the oldest first."""
        found: list[Data] = []
        after, now = "", time.time()
        while page := await self._store().instances.reserved(after, _PAGE):
            for instance in page:
                live = await self._shelf.live(instance)
                held = live.held
                if held is not None and held.approval is not None and held.approval.expires_at > now:
                    found.append(told_to_approvers(live, held.approval))
            after = page[-1].id
        return sorted(found, key=lambda one: one["requestedAt"])

    async def approve(
        self, approval_id: str, person: Principal, via: str, reason: str = "", digest: str | None = None
    ) -> Outcome:
        """Say yes; with enough people saying so, the move is done and the instance goes on."""
        for _ in range(_TRIES):
            live, held, approval = await self._found(approval_id, person, digest)
            if any(one["by"] == person.id for one in approval.given):
                raise _refused(f"{person.id} has approved {approval_id} already; it takes somebody else.")
            decision = {"by": person.id, "at": time.time(), "reason": reason, "via": via}
            approval = msgspec.structs.replace(approval, given=[*approval.given, decision])
            held = msgspec.structs.replace(held, approval=approval)
            try:
                outcome = await self._agreed(live, held, approval)
            except StaleVersion:
                continue
            self._recorder.decided(live, person.id, via, "approval.approved", f"{approval.digest} {reason}".strip())
            return outcome
        raise _refused(f"{approval_id} is being decided by too many at once; try again.")

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
        try:
            taken = await self._turn_down(live, held, "rejected", told, decidedBy=person.id, via=via, reason=reason)
        except StaleVersion:
            raise _refused(f"{approval_id} is settled already.") from None
        self._recorder.decided(live, person.id, via, "approval.rejected", f"{approval.digest} {reason}".strip())
        return Outcome(taken.live, [], taken.error)

    async def expire(self, live: Live, held: Held) -> Taken:
        """Nobody decided in time."""
        return await self._turn_down(live, held, "expired", f"Nobody decided about {held.move} in time.")

    async def _turn_down(self, live: Live, held: Held, outcome: str, told: str, **noted: Any) -> Taken:
        assert held.approval is not None
        error = {"code": "CHAIN_FAILED", "message": told, "attemptedTransition": held.move} if held.chained else None
        noted |= {"approvalId": held.approval.id, "digest": held.approval.digest}
        return await self._moves.settle(live, held, error, outcome=outcome, **noted)

    async def _found(self, approval_id: str, person: Principal, digest: str | None) -> tuple[Live, Held, Approval]:
        live = await self._shelf.get(workflow_of(approval_id))
        held = None if live is None else live.held
        approval = None if held is None else held.approval
        if live is None or held is None or approval is None or approval.id != approval_id:
            raise _refused(f"There is no approval {approval_id} that waits; it is settled, or never was.")
        if approval.role not in person.roles and ADMIN not in person.roles:
            raise WorkflowRefused(f"It takes the role {approval.role} to decide about {approval_id}.", "POLICY_DENIED")
        if 0 < live.body.deadline <= time.time():
            raise _refused(f"The time of {live.id} is over.")
        if approval.expires_at <= time.time():
            await self.expire(live, held)
            raise _refused(f"{approval_id} has expired; submit the transition again.")
        if digest is not None and digest != approval.digest:
            raise _refused(f"What was shown for {approval_id} is not what would be approved; look at it again.")
        return live, held, approval


def _refused(message: str) -> WorkflowRefused:
    return WorkflowRefused(message, "UNKNOWN_APPROVAL")
