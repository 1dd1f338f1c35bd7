"""Whether a workflow hangs together: its states, their names, and where its transitions lead."""

from __future__ import annotations

from typing import Any

from waypost.config.findings import KeyPath, quoted
from waypost.config.workflows import State, Transition, Workflow
from waypost.workflows.checking.report import Report
from waypost.workflows.records import PROXY
from waypost.workflows.resolving import nearest


def check_structure(workflow: Workflow, path: KeyPath, report: Report) -> None:
    """Note what is wrong with the form of a workflow."""
    if path[-1] == PROXY:
        sentence = f"{quoted(PROXY)} is what single capabilities are used through; call the workflow something else"
        report.add(path, sentence, "WF005")
    if not workflow.states and not workflow.steps:
        report.add(path, "the workflow has neither `states` nor `steps`; add one of them", "WF001")
    if workflow.states and workflow.steps:
        report.add((*path, "steps"), "the workflow has `states` and `steps`; keep one of them", "WF001")
    if not workflow.states:
        return
    if workflow.initial_state is None:
        report.add(path, "the workflow does not say where it begins; add `initialState`", "WF002")
    else:
        _known(workflow, workflow.initial_state, (*path, "initialState"), report)
    if workflow.on_timeout is not None:
        _known(workflow, workflow.on_timeout.target, (*path, "onTimeout", "target"), report)
    for name, state in workflow.states.items():
        where = (*path, "states", name)
        _plain_name(name, "state", where, report)
        _check_state(name, state, where, report)
        for called, transition in state.transitions.items():
            _plain_name(called, "transition", (*where, "transitions", called), report)
            _check_targets(workflow, transition, (*where, "transitions", called), report)


def check_timeout(workflow: Workflow, path: KeyPath, report: Report) -> None:
    """Note an `onTimeout` that can never happen."""
    if workflow.on_timeout is not None and workflow.timeout_ms is None:
        report.add((*path, "onTimeout"), "there is no time that could be over; add `timeoutMs`", "WF004")


def check_arguments(workflow: Workflow, resolved: Workflow, path: KeyPath, report: Report) -> None:
    """Note transitions that are taken by themselves and ask for arguments, which nobody gives."""
    for state, model in resolved.states.items():
        for name, transition in model.transitions.items():
            if transition.actor != "deterministic" or not _required(transition.input_schema or {}):
                continue
            where = (*path, "states", state, "transitions", name)
            own = workflow.states[state].transitions[name].input_schema is not None
            sentence = (
                f"{quoted(name)} is taken by itself, so nobody gives it the arguments its schema requires; "
                "give them defaults or let an agent take it"
            )
            report.add((*where, "inputSchema" if own else "executor"), sentence, "WF008")


def _required(schema: dict[str, Any]) -> list[Any]:
    """What has to be given and has no default."""
    required, properties = schema.get("required"), schema.get("properties")
    filled = {
        name
        for name, inner in (properties.items() if isinstance(properties, dict) else ())
        if isinstance(inner, dict) and "default" in inner
    }
    return [name for name in required if name not in filled] if isinstance(required, list) else []


def _known(workflow: Workflow, name: str, path: KeyPath, report: Report) -> None:
    if name not in workflow.states:
        report.add(path, f"there is no state {quoted(name)}; {nearest(name, workflow.states)}", "WF003")


def _plain_name(name: str, kind: str, path: KeyPath, report: Report) -> None:
    if name.startswith("$"):
        report.add(path, f"names that begin with `$` are kept for Waypost; call the {kind} something else", "WF005")


def _check_state(name: str, state: State, path: KeyPath, report: Report) -> None:
    if state.terminal and state.transitions:
        sentence = f"{quoted(name)} is terminal and has transitions; remove `terminal` or the transitions"
        report.add((*path, "transitions"), sentence, "WF006")
    if state.terminal and state.on_enter is not None:
        sentence = (
            f"{quoted(name)} is terminal, so nothing runs there; move `onEnter` to the transitions that lead to it"
        )
        report.add((*path, "onEnter"), sentence, "WF006")
    if state.outcome is not None and not state.terminal:
        report.add((*path, "outcome"), f"{quoted(name)} is no end; add `terminal: true` or remove `outcome`", "WF007")


def _check_targets(workflow: Workflow, transition: Transition, path: KeyPath, report: Report) -> None:
    _known(workflow, transition.target, (*path, "target"), report)
    for index, branch in enumerate(transition.branches):
        _known(workflow, branch.target, (*path, "branches", index, "target"), report)
