"""Whether something dangerous can happen without a person."""

from __future__ import annotations

from collections.abc import Mapping

from waypost.config.executors import CapabilityCall, Human
from waypost.config.findings import KeyPath, quoted
from waypost.config.workflows import Capability, State, Transition, Workflow
from waypost.workflows.checking.flow import Way, reached, ways
from waypost.workflows.checking.places import Place, of_state, of_transition
from waypost.workflows.checking.references import made_from
from waypost.workflows.checking.report import Report

DANGEROUS = "dangerous"


def check_dangers(
    workflow: Workflow, resolved: Workflow, capabilities: Mapping[str, Capability], path: KeyPath, report: Report
) -> None:
    """Note everything dangerous that can happen without a person on the way to it."""
    dangerous = _dangerous(capabilities)
    for name, trail in _trails(resolved).items():
        state, key = workflow.states[name], (*path, "states", name)
        if state.terminal:
            continue
        alone = State(on_enter=state.on_enter)
        if any(_calls(place, dangerous) for place in of_state(alone, key)):
            report.add((*key, "onEnter", "executor"), _sentence(trail), "WF057")
        for called, transition in state.transitions.items():
            where = (*key, "transitions", called)
            runs = DANGEROUS in transition.tags or any(
                _calls(place, dangerous) for place in of_transition(transition, where)
            )
            if runs and not _has_person(resolved.states[name], resolved.states[name].transitions[called]):
                report.add(where, _sentence((*trail, called)), "WF057")


def _sentence(trail: tuple[str, ...]) -> str:
    steps = ", ".join(quoted(step) for step in trail) or "it is where the workflow begins"
    return f"nobody is asked on the way to it ({steps}); let a person take or approve one of them"


def _dangerous(capabilities: Mapping[str, Capability]) -> frozenset[str]:
    """The entries that are tagged, or made from one that is."""
    steps = {name: list(made_from(entry, name)) for name, entry in capabilities.items()}
    tagged = {name for name, entry in capabilities.items() if DANGEROUS in entry.tags}
    return frozenset(name for name in capabilities if tagged & reached([name], steps))


def _calls(place: Place, names: frozenset[str]) -> bool:
    return isinstance(place.executor, CapabilityCall) and place.executor.capability in names


def _trails(workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """The states that can be reached without a person, each with the transitions that lead there."""
    start = workflow.initial_state
    if start is None or start not in workflow.states:
        return {}
    out: dict[str, list[Way]] = {}
    for way in ways(workflow):
        out.setdefault(way.source, []).append(way)
    trails: dict[str, tuple[str, ...]] = {start: ()}
    waiting = [start]
    for name in waiting:
        for way in out.get(name, ()):
            asked = way.transition is not None and _has_person(workflow.states[name], way.transition)
            if not asked and way.target not in trails:
                trails[way.target] = (*trails[name], way.name or "onTimeout")
                waiting.append(way.target)
    return trails


def _has_person(state: State, transition: Transition) -> bool:
    """Whether a person is asked before a transition is taken: on entry into its state, or for itself."""
    on_entry = state.on_enter is not None and isinstance(state.on_enter.executor, Human)
    return on_entry or transition.actor == "human" or isinstance(transition.executor, Human)
