"""What a caller may see of a workflow: explanations of definitions, transitions and allowed moves.

Capabilities that are hidden from the caller are masked; the policy's reasons for a denial are included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from waypost.capabilities.context import Caller
from waypost.capabilities.principals import Principal
from waypost.config.models import Transition
from waypost.errors import WorkflowRefused, shorten
from waypost.redaction import HIDDEN, is_secret_name
from waypost.workflows import transitions
from waypost.workflows.access import Dependencies, Rights, step_tools
from waypost.workflows.definitions import Definition, TransitionPlan, tool_name
from waypost.workflows.instance import Instance, for_workflow
from waypost.workflows.records import PROXY

Data = dict[str, Any]


DENIED: Final = "POLICY_DENIED"


def describe_definition(found: Definition) -> Data:
    """Describe a definition: its states, transitions and input schema."""
    model = found.model
    states: Data = {}
    for name in found.names:
        state = found.state(name)
        shown: Data = {"terminal": True} if state.model.terminal else {"transitions": list(state.transitions)}
        if state.model.terminal and state.model.outcome:
            shown["outcome"] = state.model.outcome
        if state.model.description:
            shown["description"] = state.model.description
        states[name] = shown
    return {
        "definitionId": found.id,
        "definitionVersion": model.version,
        "title": found.title,
        "description": model.description,
        "initialState": found.initial,
        "inputSchema": found.input_schema,
        "states": states,
    }


def describe_transition(found: Definition, name: str) -> Data:
    """Describe a transition, in every state that has one of that name."""
    rows = []
    for state in found.names:
        plan = found.state(state).transitions.get(name)
        if plan is not None:
            rows.append({"state": state, "from": state, **_describe_transition(plan.name, plan.model)})
    if not rows:
        known = sorted({key for state in found.names for key in found.state(state).transitions})
        raise WorkflowRefused(
            f"{found.id} has no transition {shorten(name)!r}; it has {', '.join(known)}.", "INVALID_TRANSITION"
        )
    if len(rows) == 1:
        return {"definitionId": found.id, "transition": name, **rows[0]}
    return {"definitionId": found.id, "transition": name, "transitions": rows}


def _describe_transition(name: str, model: Transition) -> Data:
    return {
        "title": model.title or name,
        "description": model.description,
        "target": model.target,
        "actor": model.actor,
        "guards": msgspec.to_builtins(model.guards),
        "inputSchema": model.input_schema,
        "executor": mask_secrets(executor_to_data(model.executor)),
        "branches": msgspec.to_builtins(model.branches),
    }


def executor_to_data(executor: Any) -> Any:
    """An executor as plain data, without default values."""
    if executor is None:
        return None
    model = type(executor)
    given = {
        field.encode_name: getattr(executor, field.name)
        for field in msgspec.structs.fields(model)
        if field.required or getattr(executor, field.name) != field.default
        if not (field.default_factory is not msgspec.NODEFAULT and not getattr(executor, field.name))
    }
    return {"kind": model.__struct_config__.tag, **msgspec.to_builtins(given)}


def mask_secrets(value: Any, key: str = "") -> Any:
    """A value with its secrets masked: environments, headers, and fields with the name of a secret."""
    if isinstance(value, dict):
        inside = key in ("env", "headers") or is_secret_name(key)
        return {
            name: HIDDEN if inside or _is_secret(name, item) else mask_secrets(item, name)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [HIDDEN if _is_secret(key, item) else mask_secrets(item, key) for item in value]
    return value


def _is_secret(name: str, value: Any) -> bool:
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return is_plain and is_secret_name(name) and name != "idempotencyKey"


def check_instance(instance: Instance, definition_id: str) -> None:
    """Raise if a definition id is given that is not the instance's own."""
    own = instance.definition.id
    if definition_id and definition_id != own:
        message = f"{instance.id} is an instance of {own}, not of {shorten(definition_id)}; leave out one of the two."
        raise WorkflowRefused(message, "DEFINITION_MISMATCH", nearest=[own])


def list_allowed(instance: Instance, principal: Principal, check: Callable[[TransitionPlan], None]) -> Data:
    """Which transitions a principal may take now, and why not the others; `check` raises policy denials."""
    rows = []
    for name, plan in instance.state.transitions.items():
        reasons: list[Any] = []
        try:
            transitions.check_version(instance, instance.version)
            transitions.check_entered(instance)
            transitions.get_transition(instance, name)
            transitions.check_actor(plan, principal)
            check(plan)
            transitions.check_guards(instance, plan, principal, {})
        except WorkflowRefused as refused:
            reasons = [{"code": refused.code, "message": refused.message, **refused.details}]
        rows.append({"transition": name, "allowed": not reasons, "reasons": reasons})
    return {"workflowId": instance.id, "state": instance.state.name, "version": instance.version, "allowed": rows}


class WorkflowView:
    """Workflows as one caller may see them: hidden ones left out, denials explained."""

    def __init__(self, rights: Rights, caller: Caller, needs: Dependencies) -> None:
        self._rights = rights
        self._caller = caller
        self._needs = needs

    def finds(self, definition: Definition) -> bool:
        """Whether the caller finds a workflow in lists; the built-in one if its capability is found."""
        return all(self._rights.finds(name, self._caller) for name in self._names(definition))

    def _names(self, definition: Definition) -> Iterator[str]:
        if definition.id != PROXY:
            yield tool_name(definition.id)
            return
        for plan in definition.state(definition.initial).transitions.values():
            yield from self._needs.of(plan.model.executor)

    def check(self, definition: Definition) -> None:
        """Raise if the policy always denies a workflow to the caller."""
        if reason := self._rights.against(tool_name(definition.id), self._caller, steady=True):
            raise WorkflowRefused(reason, DENIED, nearest=[])

    def definition(self, found: Definition) -> Data:
        """Describe a definition, and why the policy would deny its start now."""
        reason = self._rights.against(tool_name(found.id), self._caller)
        return describe_definition(found) | _denial(reason)

    def transition(self, found: Definition, name: str) -> Data:
        """Describe a transition with hidden executors masked, and why the policy would deny it now."""
        data = describe_transition(found, name)
        for one in data.get("transitions", [data]):
            reason = self._against(found, found.state(one["state"]).transitions[name], one["state"])
            one |= {"executor": self.masked(one["executor"]), **_denial(reason)}
        return data

    def allowed(self, instance: Instance) -> Data:
        """Which transitions the caller may take now, and why not the others."""

        def check(plan: TransitionPlan) -> None:
            if reason := self._against(instance.definition, plan, instance.state.name, instance.id):
                raise WorkflowRefused(reason, DENIED)

        return list_allowed(instance, self._caller.principal, check)

    def masked(self, data: Any) -> Any:
        """Data with the executors and steps masked whose capability is hidden from the caller."""
        if isinstance(data, list):
            return [self.masked(one) for one in data]
        if not isinstance(data, dict):
            return data
        if not all(self._rights.finds(name, self._caller) for name in self._needs.own(data)):
            return {key: value if key in ("kind", "position") else HIDDEN for key, value in data.items()}
        return {key: self.masked(value) for key, value in data.items()}

    def _against(self, definition: Definition, plan: TransitionPlan, state: str, run: str = "") -> str:
        """Why the policy denies a transition: the workflow, or a capability that it calls; empty if allowed."""
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
