"""Where in a configuration executors stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from waypost.config.executors import CapabilityCall, Executor, Parallel, Pipeline, Reliability
from waypost.config.findings import KeyPath
from waypost.config.workflows import Capability, State, Transition, Workflow
from waypost.errors import DefinitionError
from waypost.workflows.resolving import resolve_capability


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
