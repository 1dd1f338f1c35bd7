"""What checks walk over and write to: executors and where they stand, ways between states, and the report."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from waypost.config import Loaded
from waypost.config.executors import CapabilityCall, Executor, Parallel, Pipeline, Reliability
from waypost.config.findings import Finding, KeyPath
from waypost.config.workflows import Capability, State, Transition, Workflow
from waypost.errors import DefinitionError
from waypost.workflows.resolution import resolve_capability


class Report:
    """Findings about one configuration, each once."""

    def __init__(self, loaded: Loaded) -> None:
        self._root = loaded.root
        self._found: dict[Finding, None] = {}

    def add(self, path: KeyPath, message: str, code: str) -> None:
        """Note something about the key at `path`; one that is not written has the line of what it belongs to."""
        node = self._root
        for part in path:
            child = node.at(part)
            if child is None:
                break
            node = child
        self._found[node.finding(path, message, code)] = None

    @property
    def findings(self) -> list[Finding]:
        """Everything noted so far, in the order of the file."""
        return sorted(self._found, key=lambda found: (found.file, found.line))


@dataclass(frozen=True, slots=True)
class Place:
    """One executor, the key it stands under, and what it is a part of."""

    executor: Executor
    path: KeyPath
    within: frozenset[str] = frozenset()
    """Any of `parallel`, `pipeline` and `fallback`."""
    via: str | None = None
    """The entry of `capabilities` it comes from, when the key only names that."""
    depth: int = 0
    """How many parallel executors it stands in."""

    @property
    def anywhere(self) -> bool:
        """Whether it is a building block, of which nobody knows what it will be part of."""
        return self.path[0] == "capabilities"


def executors_of(workflow: Workflow, path: KeyPath) -> Iterator[Place]:
    """Every executor that is written in a workflow."""
    for name, state in workflow.states.items():
        yield from of_state(state, (*path, "states", name))


def of_state(state: State, path: KeyPath) -> Iterator[Place]:
    """Every executor that is written in a state."""
    if state.on_enter is not None:
        yield from _with_fallback(state.on_enter.executor, state.on_enter.reliability, (*path, "onEnter"))
    for name, transition in state.transitions.items():
        yield from of_transition(transition, (*path, "transitions", name))


def of_transition(transition: Transition, path: KeyPath) -> Iterator[Place]:
    """Every executor that is written in a transition."""
    yield from _with_fallback(transition.executor, transition.reliability, path)


def of_capability(capability: Capability, path: KeyPath) -> Iterator[Place]:
    """Every executor that is written in an entry of `capabilities`."""
    yield from _with_fallback(capability.executor, capability.reliability, path)


def followed(places: Iterator[Place], capabilities: Mapping[str, Capability]) -> Iterator[Place]:
    """The places, and in the stead of an entry's name what the entry runs."""
    for place in places:
        call = place.executor
        if not isinstance(call, CapabilityCall) or call.capability not in capabilities:
            yield place
            continue
        try:
            flat = resolve_capability(call.capability, capabilities)
        except DefinitionError:
            continue
        for inner in of_capability(flat, place.path):
            yield replace(
                inner,
                path=place.path,
                within=place.within | inner.within,
                via=call.capability,
                depth=place.depth + inner.depth,
            )


def _with_fallback(executor: Executor | None, reliability: Reliability | None, path: KeyPath) -> Iterator[Place]:
    if executor is not None:
        yield from _nested(Place(executor, (*path, "executor")))
    if reliability is not None and reliability.fallback is not None:
        for index, other in enumerate(reliability.fallback.executors):
            where = (*path, "reliability", "fallback", "executors", index)
            yield from _nested(Place(other, where, frozenset({"fallback"})))


def _nested(place: Place) -> Iterator[Place]:
    yield place
    executor = place.executor
    if isinstance(executor, Parallel):
        within, depth = place.within | {"parallel"}, place.depth + 1
        for index, branch in enumerate(executor.branches):
            yield from _nested(Place(branch, (*place.path, "branches", index), within, depth=depth))
        if executor.do is not None:
            yield from _nested(Place(executor.do, (*place.path, "do"), within, depth=depth))
    elif isinstance(executor, Pipeline):
        within = place.within | {"pipeline"}
        for index, step in enumerate(executor.steps):
            yield from _nested(Place(step, (*place.path, "steps", index), within, depth=place.depth))


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
