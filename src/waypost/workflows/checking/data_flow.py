"""Whether what a workflow looks at is ever written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from waypost.config.findings import KeyPath
from waypost.config.workflows import Capability, State, Transition, Workflow
from waypost.workflows.checking.flow import reachable, ways
from waypost.workflows.checking.places import followed, of_state, of_transition
from waypost.workflows.checking.reading import Look, Reader
from waypost.workflows.checking.report import Report
from waypost.workflows.resolving import nearest
from waypost.workflows.scope import GUARD_ROOTS

_OPEN: Final = frozenset({"patternProperties", "allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if", "not"})
"""Keys of a schema beside which `properties` is not the whole list."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What there is to look at: the slots of the context, the input, and the arguments; None where anything may be."""

    context: frozenset[str]
    input: frozenset[str] | None
    arguments: frozenset[str] | None


def check_data_flow(
    workflow: Workflow, resolved: Workflow, capabilities: Mapping[str, Capability], path: KeyPath, report: Report
) -> None:
    """Note every path to something that nothing writes on any way to it."""
    entered, settled = _slots(workflow)
    given = declared(workflow.input_schema)
    for name in workflow.states:
        if name not in settled:
            continue
        state, key = workflow.states[name], (*path, "states", name)
        _check(_entering(state, key, capabilities), Moment(entered[name], given, None), report)
        for called, transition in state.transitions.items():
            where = (*key, "transitions", called)
            arguments = _arguments(resolved.states[name].transitions[called])
            before = Moment(settled[name], given, arguments)
            after = Moment(settled[name] | transition.output.keys(), given, arguments)
            _check(_before(transition, where, capabilities), before, report)
            _check(_branching(transition, where), after, report)
            prefilled = Reader().template(transition.prefill, GUARD_ROOTS, (*where, "prefill"))
            _check(prefilled, Moment(settled[name], given, frozenset()), report)


def declared(schema: dict[str, Any] | None) -> frozenset[str] | None:
    """The properties a schema knows, or None where it lets others in."""
    if schema is None or _OPEN & schema.keys():
        return None
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    if not isinstance(properties, dict):
        return frozenset() if others is False and properties is None else None
    return frozenset(properties) if others is None or others is False else None


def _slots(workflow: Workflow) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """The slots that may be written when each state is entered, and when what it runs then is done."""
    here = reachable(workflow)
    entered = {name: frozenset[str]() for name in here}
    if workflow.initial_state in here and workflow.initial_state is not None:
        entered[workflow.initial_state] = frozenset(workflow.initial_context)
    out = [way for way in ways(workflow) if way.source in here]
    settled = {name: slots | _written(workflow.states[name]) for name, slots in entered.items()}
    changed = True
    while changed:
        changed = False
        for way in out:
            written = way.transition.output.keys() if way.transition is not None else ()
            arriving = settled[way.source] | frozenset(written)
            if not arriving <= entered[way.target]:
                entered[way.target] |= arriving
                settled[way.target] = entered[way.target] | _written(workflow.states[way.target])
                changed = True
    return entered, settled


def _written(state: State) -> frozenset[str]:
    return frozenset(state.on_enter.output) if state.on_enter is not None else frozenset()


def _arguments(transition: Transition) -> frozenset[str] | None:
    if transition.actor == "deterministic" and transition.input_schema is None:
        return frozenset()
    return declared(transition.input_schema)


def _entering(state: State, key: KeyPath, capabilities: Mapping[str, Capability]) -> Iterator[Look]:
    if state.on_enter is None:
        return
    alone = State(on_enter=state.on_enter)
    for place in followed(of_state(alone, key), capabilities):
        yield from Reader().executor(place)
    yield from Reader().mapping(state.on_enter.output, (*key, "onEnter", "output"))


def _before(transition: Transition, key: KeyPath, capabilities: Mapping[str, Capability]) -> Iterator[Look]:
    yield from Reader().guards(transition.guards, (*key, "guards"))
    for place in followed(of_transition(transition, key), capabilities):
        yield from Reader().executor(place)
    yield from Reader().mapping(transition.output, (*key, "output"))


def _branching(transition: Transition, key: KeyPath) -> Iterator[Look]:
    for index, branch in enumerate(transition.branches):
        yield from Reader().guard(branch.when, (*key, "branches", index, "when"))


def _check(looks: Iterable[Look], moment: Moment, report: Report) -> None:
    known = {"context": moment.context, "input": moment.input, "arguments": moment.arguments}
    for key, path in looks:
        there = known.get(path.root)
        if there is None or not path.keys or not isinstance(path.keys[0], str) or path.keys[0] in there:
            continue
        name = path.keys[0]
        if path.root == "context":
            sentence = f"nothing on the way here writes `$.context.{name}`; {_hint(name, there)}"
        else:
            sentence = f"`$.{path.root}.{name}` is never given; {_hint(name, there)}"
        report.add(key, sentence, "WF054")


def _hint(name: str, there: frozenset[str]) -> str:
    return nearest(name, there) if there else "write it first, or look elsewhere"
