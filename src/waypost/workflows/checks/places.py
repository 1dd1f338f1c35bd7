"""What the checks work on: executors with their places, edges between states, and the report of findings."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from waypost.config import Loaded
from waypost.config.findings import Finding, KeyPath, quoted
from waypost.config.models import Capability, Expose, OnEnter, Reliability, Transition, Workflow
from waypost.errors import DefinitionError
from waypost.kinds import ExecutorModel, nested_in
from waypost.workflows.definitions import nearest, resolve_capability
from waypost.workflows.executors.capability import CapabilityCall
from waypost.workflows.executors.kind import kind_of
from waypost.workflows.scope import GUARD_ROOTS, NESTED_ROOTS

_Item = TypeVar("_Item")


class Report:
    """Findings about one configuration, each once.

    `known` are the canonical names of the hub's capabilities; None if unknown, then names are not checked.
    """

    def __init__(self, loaded: Loaded, known: Collection[str] | None) -> None:
        self.root = loaded.root
        self.config = loaded.config
        self.known = known
        self._found: dict[Finding, None] = {}

    def add(self, path: KeyPath, message: str, code: str) -> None:
        """Add a finding about the key at `path`; a missing key has the line of its parent."""
        self._found[self.root.nearest(path).finding(path, message, code)] = None

    def add_unknown(self, path: KeyPath, noun: str, name: str, known: Iterable[str], code: str) -> None:
        """Add a finding about a name that does not exist, with similar ones of those that do."""
        self.add(path, f"there is no {noun} {quoted(name)}; {nearest(name, known)}", code)

    @property
    def findings(self) -> list[Finding]:
        """All findings so far, in the order of the file."""
        return sorted(self._found, key=lambda found: (found.file, found.line))


@dataclass(frozen=True, slots=True)
class Place:
    """One executor, its key, and what it is nested in."""

    executor: ExecutorModel
    path: KeyPath
    within: tuple[str, ...] = ()
    """The kinds of the executors it is nested in, outermost first, and `fallback`."""
    via: str | None = None
    """The entry of `capabilities` that it comes from, if the key only has its name."""
    reliability: Reliability | None = None
    """The reliability of its transition, if it is the transition's own executor."""
    exposed: bool = False
    """Whether it is exposed as a tool, without a workflow."""

    @property
    def roots(self) -> frozenset[str]:
        """The allowed roots of its paths; an entry of `capabilities` may be nested anywhere."""
        is_nested = self.path[0] == "capabilities" or any(kind != "fallback" for kind in self.within)
        return NESTED_ROOTS if is_nested else GUARD_ROOTS


def executors_of(workflow: Workflow, path: KeyPath) -> Iterator[Place]:
    """Every executor in a workflow."""
    for name, state in workflow.states.items():
        where = (*path, "states", name)
        yield from executors_at(state.on_enter, (*where, "onEnter"))
        for called, transition in state.transitions.items():
            yield from executors_at(transition, (*where, "transitions", called))


def executors_at(owner: Transition | OnEnter | Capability | Expose | None, path: KeyPath) -> Iterator[Place]:
    """Every executor in a part of the configuration: its own, the fallbacks, and those nested in them."""
    if owner is not None and owner.executor is not None:
        yield from _with_nested(Place(owner.executor, (*path, "executor"), reliability=owner.reliability))
    if owner is not None and owner.reliability is not None and owner.reliability.fallback is not None:
        for index, other in enumerate(owner.reliability.fallback.executors):
            where = (*path, "reliability", "fallback", "executors", index)
            yield from _with_nested(Place(other, where, ("fallback",)))


def look_through(places: Iterable[Place], capabilities: Mapping[str, Capability]) -> Iterator[Place]:
    """The places, with the executors of entries of `capabilities` in place of their names."""
    for place in places:
        call = place.executor
        if not isinstance(call, CapabilityCall) or call.capability not in capabilities:
            yield place
            continue
        try:
            entry = resolve_capability(call.capability, capabilities)
        except DefinitionError:
            continue
        for inner in executors_at(entry, place.path):
            yield replace(
                inner,
                path=place.path,
                within=(*place.within, *inner.within),
                via=call.capability,
                reliability=None if inner.within else place.reliability,
                exposed=place.exposed,
            )


def _with_nested(place: Place) -> Iterator[Place]:
    yield place
    within = (*place.within, kind_of(place.executor).name)
    for key, inner in nested_in(place.executor, ExecutorModel):
        yield from _with_nested(Place(inner, (*place.path, *key), within))


@dataclass(frozen=True, slots=True)
class Way:
    """An edge from one state to another: by a transition, or by the timeout."""

    source: str
    target: str
    name: str | None = None
    transition: Transition | None = None


def ways(workflow: Workflow) -> list[Way]:
    """All edges of a workflow, without those to unknown states."""
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


def find_reachable(starts: Collection[str], steps: Mapping[str, Collection[str]]) -> set[str]:
    """Everything that can be reached from the starts, these included."""
    found = set(starts)
    waiting = deque(starts)
    while waiting:
        for target in steps.get(waiting.popleft(), ()):
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found


def group(pairs: Iterable[tuple[str, _Item]]) -> dict[str, list[_Item]]:
    """What stands beside each name, such as the targets of each state."""
    found: dict[str, list[_Item]] = {}
    for name, item in pairs:
        found.setdefault(name, []).append(item)
    return found


def reachable(workflow: Workflow) -> set[str]:
    """The states that an instance can reach."""
    start = workflow.initial_state
    if start is None or start not in workflow.states:
        return set()
    return find_reachable([start], group((way.source, way.target) for way in ways(workflow)))
