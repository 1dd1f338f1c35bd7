"""What somebody may be told of a workflow: nothing that lists keep from them, and what rules are against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from waypost.capabilities.context import Caller
from waypost.errors import WorkflowRefused
from waypost.redaction import HIDDEN
from waypost.workflows import explanations
from waypost.workflows.access import Dependencies, Rights, step_tools
from waypost.workflows.callers import for_workflow
from waypost.workflows.definition import Definition, TransitionPlan
from waypost.workflows.library import tool_name
from waypost.workflows.live import Live
from waypost.workflows.records import PROXY

Data = dict[str, Any]

DENIED: Final = "POLICY_DENIED"


class Sight:
    """Workflows as one caller may see them."""

    def __init__(self, rights: Rights, caller: Caller, needs: Dependencies) -> None:
        self._rights = rights
        self._caller = caller
        self._needs = needs

    def finds(self, definition: Definition) -> bool:
        """Whether they find a workflow, as lists and searches do; that of a single capability is found with it."""
        return all(self._rights.finds(name, self._caller) for name in self._names(definition))

    def _names(self, definition: Definition) -> Iterator[str]:
        if definition.id != PROXY:
            yield tool_name(definition.id)
            return
        for plan in definition.state(definition.initial).transitions.values():
            yield from self._needs.of(plan.model.executor)

    def check(self, definition: Definition) -> None:
        """Refuse a workflow that rules are always against."""
        if reason := self._rights.against(tool_name(definition.id), self._caller, steady=True):
            raise WorkflowRefused(reason, DENIED, nearest=[])

    def definition(self, found: Definition) -> Data:
        """A workflow as a whole, and why it would not be started now."""
        reason = self._rights.against(tool_name(found.id), self._caller)
        return explanations.describe_definition(found) | _denial(reason)

    def transition(self, found: Definition, name: str) -> Data:
        """One transition, without what it runs where that is kept from them, and why it would not be taken now."""
        told = explanations.describe_transition(found, name)
        for one in told.get("transitions", [told]):
            reason = self._against(found, found.state(one["state"]).transitions[name], one["state"])
            one |= {"executor": self.masked(one["executor"]), **_denial(reason)}
        return told

    def allowed(self, live: Live) -> Data:
        """What they could do in an instance now, and what is against the rest."""

        def check(plan: TransitionPlan) -> None:
            if reason := self._against(live.definition, plan, live.state.name, live.id):
                raise WorkflowRefused(reason, DENIED)

        return explanations.list_allowed(live, self._caller.principal, check)

    def masked(self, told: Any) -> Any:
        """Executors and steps without those whose capability they do not find."""
        if isinstance(told, list):
            return [self.masked(one) for one in told]
        if not isinstance(told, dict):
            return told
        if not all(self._rights.finds(name, self._caller) for name in self._needs.own(told)):
            return {key: value if key in ("kind", "position") else HIDDEN for key, value in told.items()}
        return {key: self.masked(value) for key, value in told.items()}

    def _against(self, definition: Definition, plan: TransitionPlan, state: str, run: str = "") -> str:
        """Why rules would not let a transition be taken: what they say of the workflow, or of what it runs."""
        if definition.id != PROXY and (reason := self._rights.against(tool_name(definition.id), self._caller)):
            return reason
        inside = for_workflow(self._caller, definition.id, run)
        for used in (*self._needs.of(plan.model.executor), *step_tools(definition, state)):
            if reason := self._rights.against(used, inside):
                is_found = self._rights.finds(used, self._caller)
                return reason if is_found else "a rule is against what it runs"
        return ""


def _denial(reason: str) -> Data:
    return {"denied": {"code": DENIED, "message": reason}} if reason else {}
