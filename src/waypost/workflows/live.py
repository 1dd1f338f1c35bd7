"""An instance in memory, at one version, with the definition it runs by."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waypost.capabilities.principals import Principal
from waypost.stores.instances import Instance
from waypost.workflows.definition import Action, Definition, StatePlan, TransitionPlan
from waypost.workflows.records import ENTER, WAITING, Body, Held
from waypost.workflows.scope import Scope

HUMAN: Final = "human"
ADMIN: Final = "admin"
SYSTEM: Final = "system"
ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "timed_out"})

_STATUS: Final = {
    "executing": "executing",
    "approval": "waiting_for_approval",
    "child": "waiting_for_workflow",
    "unknown": "unknown_outcome",
}


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """An instance as it stands, or as it will stand once a commit holds."""

    id: str
    version: int
    definition: Definition
    state: StatePlan
    settled: str
    """Its status when no move is on its way."""
    body: Body
    held: Held | None = None
    token: str = ""
    until: float = 0.0

    @property
    def status(self) -> str:
        """What it is doing or waiting for."""
        if self.held is not None:
            return _STATUS[self.held.kind]
        return "going_on" if self.goes_on else self.settled

    @property
    def goes_on(self) -> bool:
        """Whether something happens next that nobody has to ask for."""
        return bool(self.body.pending) and self.body.halted is None and not self.is_over and self.held is None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.settled in ENDED

    def scope(self, principal: Principal, arguments: dict[str, Any], output: Any = None) -> Scope:
        """What its guards and mappings look at."""
        body = self.body
        return Scope(
            body.context,
            arguments,
            body.input,
            id=self.id,
            state=self.state.name,
            version=self.version,
            principal=principal,
            evidence=body.evidence,
            output=output,
        )

    def plan(self, move: str) -> TransitionPlan | None:
        """The transition of that name out of its state; none for entering the state."""
        return None if move == ENTER else self.state.transitions[move]

    def action(self, move: str) -> Action:
        """What a move of that name does here."""
        plan = self.plan(move)
        if plan is not None:
            return plan.action
        assert self.state.enter is not None
        return self.state.enter

    def stored(self, due_at: float, version: int = 0) -> Instance:
        """As the store takes it; `version` is the one it moves on from, where it moves."""
        return Instance(
            id=self.id,
            version=version or self.version,
            definition=self.definition.id,
            principal=self.body.owner.id,
            state=self.state.name,
            status=self.settled,
            due_at=due_at,
            value=self.body,
        )

    def is_open_to(self, principal: Principal) -> bool:
        """Whether somebody may see it and act in it: who started it, operators, and people where people are needed."""
        if principal.id == self.body.owner.id or ADMIN in principal.roles:
            return True
        if self.held is not None and self.held.approval is not None:
            return self.held.approval.role in principal.roles
        return HUMAN in principal.roles and any(plan.model.actor == "human" for plan in self.state.transitions.values())


def settled_status(state: StatePlan) -> str:
    """The status of an instance that has come to a state."""
    return (state.model.outcome or "succeeded") if state.model.terminal else WAITING


def is_system(principal: Principal) -> bool:
    """Whether somebody acts for the system."""
    return SYSTEM in principal.roles or ADMIN in principal.roles
