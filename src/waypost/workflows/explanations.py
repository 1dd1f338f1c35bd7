"""Explanations: what a workflow would do, without doing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from waypost.capabilities.principals import Principal
from waypost.config.workflows import Transition
from waypost.errors import WorkflowRefused, shorten
from waypost.redaction import HIDDEN, is_secret_name
from waypost.workflows import submitting
from waypost.workflows.definition import Definition, TransitionPlan
from waypost.workflows.live import Live

Data = dict[str, Any]


def describe_definition(found: Definition) -> Data:
    """A workflow as a whole."""
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
    """One transition; several where states share its name."""
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
        return {"definitionId": found.id, "describe_transition": name, **rows[0]}
    return {"definitionId": found.id, "describe_transition": name, "transitions": rows}


def _describe_transition(name: str, model: Transition) -> Data:
    return {
        "title": model.title or name,
        "description": model.description,
        "target": model.target,
        "actor": model.actor,
        "guards": msgspec.to_builtins(model.guards),
        "inputSchema": model.input_schema,
        "executor": hidden(plain(model.executor)),
        "branches": msgspec.to_builtins(model.branches),
    }


def plain(executor: Any) -> Any:
    """An executor without what it does not say."""
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


def hidden(value: Any, key: str = "") -> Any:
    """A value without the secrets in it: environments, headers, and whatever is called like one."""
    if isinstance(value, dict):
        inside = key in ("env", "headers") or is_secret_name(key)
        return {
            name: HIDDEN if inside or _is_secret(name, item) else hidden(item, name) for name, item in value.items()
        }
    if isinstance(value, list):
        return [HIDDEN if _is_secret(key, item) else hidden(item, key) for item in value]
    return value


def _is_secret(name: str, value: Any) -> bool:
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return is_plain and is_secret_name(name) and name != "idempotencyKey"


def check_instance(live: Live, definition_id: str) -> None:
    """Refuse to explain an instance by a definition that is not its own; without one it is."""
    own = live.definition.id
    if definition_id and definition_id != own:
        message = f"{live.id} is an instance of {own}, not of {shorten(definition_id)}; leave out one of the two."
        raise WorkflowRefused(message, "DEFINITION_MISMATCH", nearest=[own])


def list_allowed(live: Live, principal: Principal, check: Callable[[TransitionPlan], None]) -> Data:
    """What a caller could do in an instance now, and the reasons against the rest; `check` raises what rules refuse."""
    rows = []
    for name, plan in live.state.transitions.items():
        reasons: list[Any] = []
        try:
            submitting.check_version(live, live.version)
            submitting.check_entered(live)
            submitting.found(live, name)
            submitting.check_actor(plan, principal)
            check(plan)
            submitting.check_guards(live, plan, principal, {})
        except WorkflowRefused as refused:
            reasons = [{"code": refused.code, "message": refused.message, **refused.details}]
        rows.append({"describe_transition": name, "list_allowed": not reasons, "reasons": reasons})
    return {"workflowId": live.id, "state": live.state.name, "version": live.version, "list_allowed": rows}
