"""Whether guards can hold at all."""

from __future__ import annotations

from collections.abc import Mapping

from waypost.config.findings import KeyPath
from waypost.config.workflows import Capability, ExprGuard, Guard, JsonPathGuard, Workflow
from waypost.workflows.checking.contradictions import contradict
from waypost.workflows.checking.formulas import TooMany, ways_to_hold
from waypost.workflows.checking.report import Report

_REPAIR = "correct it, or remove what it is for"


def can_hold(guards: list[Guard]) -> bool:
    """Whether guards may hold together; false only where it is certain that they never do."""
    try:
        return not all(contradict(way) for way in ways_to_hold(guards))
    except TooMany:
        return True


def check_satisfiability(workflow: Workflow, resolved: Workflow, path: KeyPath, report: Report) -> None:
    """Note guards that can never hold."""
    for state, model in workflow.states.items():
        for name, transition in model.transitions.items():
            where = (*path, "states", state, "transitions", name)
            told = _check_list(transition.guards, where, report)
            for index, branch in enumerate(transition.branches):
                _check_one(branch.when, (*where, "branches", index, "when"), report)
            if not told and not can_hold(resolved.states[state].transitions[name].guards):
                sentence = f"its guards and those of the capability can never hold together; {_REPAIR}"
                report.add((*where, "executor"), sentence, "WF055")


def check_capability_guards(capabilities: Mapping[str, Capability], report: Report) -> None:
    """Note guards of `capabilities` that can never hold."""
    for name, entry in capabilities.items():
        _check_list(entry.guards, ("capabilities", name), report)


def _check_list(guards: list[Guard], path: KeyPath, report: Report) -> bool:
    """Whether something was said about a list of guards."""
    each = [_check_one(guard, (*path, "guards", index), report) for index, guard in enumerate(guards)]
    if any(each):
        return True
    if can_hold(guards):
        return False
    report.add((*path, "guards"), f"these guards can never hold together; {_REPAIR}", "WF055")
    return True


def _check_one(guard: Guard, path: KeyPath, report: Report) -> bool:
    if can_hold([guard]):
        return False
    where = (*path, "expr") if isinstance(guard, ExprGuard | JsonPathGuard) else path
    report.add(where, f"this guard can never hold; {_REPAIR}", "WF055")
    return True
