"""The ways through a workflow of states."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from waypost.config.workflows import Transition, Workflow


@dataclass(frozen=True, slots=True)
class Way:
    """A step from one state to another: by a transition, or because the time is over."""

    source: str
    target: str
    name: str | None = None
    transition: Transition | None = None


def ways(workflow: Workflow) -> list[Way]:
    """Every way between states that the workflow has; those to unknown states are left out."""
    found = [way for source in workflow.states for way in _out_of(workflow, source)]
    return [way for way in found if way.target in workflow.states]


def _out_of(workflow: Workflow, source: str) -> Iterator[Way]:
    state = workflow.states[source]
    if state.terminal:
        return
    for name, transition in state.transitions.items():
        targets = dict.fromkeys([transition.target, *(branch.target for branch in transition.branches)])
        yield from (Way(source, target, name, transition) for target in targets)
    if workflow.timeout_ms is not None and workflow.on_timeout is not None:
        yield Way(source, workflow.on_timeout.target)


def reached(starts: Collection[str], steps: Mapping[str, Collection[str]]) -> set[str]:
    """Everything that can be reached from somewhere, the starts included."""
    found = set(starts)
    waiting = deque(starts)
    while waiting:
        for target in steps.get(waiting.popleft(), ()):
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found


def onward(found: list[Way], keep: Callable[[Way], bool] = lambda way: True) -> dict[str, list[str]]:
    """Where one gets from each state, by the ways that are kept."""
    steps: dict[str, list[str]] = {}
    for way in found:
        if keep(way):
            steps.setdefault(way.source, []).append(way.target)
    return steps


def backward(found: list[Way]) -> dict[str, list[str]]:
    """From where one gets to each state."""
    steps: dict[str, list[str]] = {}
    for way in found:
        steps.setdefault(way.target, []).append(way.source)
    return steps


def reachable(workflow: Workflow) -> set[str]:
    """The states that an instance can come to be in."""
    start = workflow.initial_state
    return reached([start], onward(ways(workflow))) if start in workflow.states and start is not None else set()
