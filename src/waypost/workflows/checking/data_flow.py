"""Every path, expression and template of a workflow: which cannot be parsed, and which read what nothing writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from waypost.capabilities.schemas.validators import Validator
from waypost.config.findings import KeyPath
from waypost.config.models import Capability, State, Transition, Workflow
from waypost.errors import DefinitionError
from waypost.kinds import ExecutorModel, GuardModel, nested_in
from waypost.workflows.checking.places import (
    Place,
    Report,
    executors_at,
    executors_of,
    look_through,
    reachable,
    ways,
)
from waypost.workflows.executors.kind import templates_in
from waypost.workflows.expressions import compile_expression
from waypost.workflows.guards.kind import kind_of
from waypost.workflows.resolution import nearest
from waypost.workflows.scope import GUARD_ROOTS, NESTED_ROOTS, OUTPUT_ROOTS, Path, compile_mapping, compile_template

_OPEN_KEYWORDS: Final = frozenset({"patternProperties", "allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if", "not"})
"""Keys of a schema beside which `properties` is not the whole list."""


class Look(NamedTuple):
    """A path, and the key whose value it stands in."""

    key: KeyPath
    path: Path


class Reader:
    """Reads what is written; what cannot be read is reported, if there is a report."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report

    def guards(self, guards: list[GuardModel], key: KeyPath) -> Iterator[Look]:
        """Where guards look."""
        for index, guard in enumerate(guards):
            yield from self.guard(guard, (*key, index))

    def guard(self, guard: GuardModel, key: KeyPath) -> Iterator[Look]:
        """Where a guard looks."""
        for field in kind_of(guard).expressions:
            yield from self._expression(getattr(guard, field), (*key, field))
        for where, inner in nested_in(guard, GuardModel):
            yield from self.guard(inner, (*key, *where))

    def mapping(self, output: dict[str, Any], key: KeyPath) -> Iterator[Look]:
        """Where a mapping looks."""
        for name, value in output.items():
            try:
                compiled = compile_mapping({name: value}, OUTPUT_ROOTS)
            except DefinitionError as error:
                self._report_unreadable((*key, name), error)
                continue
            yield from (Look((*key, name), path) for path in compiled.paths)

    def template(self, value: Any, roots: frozenset[str], key: KeyPath) -> Iterator[Look]:
        """Where a template looks, text by text."""
        if isinstance(value, dict):
            for name, item in value.items():
                yield from self.template(item, roots, (*key, name))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.template(item, roots, (*key, index))
        else:
            yield from self._compile_whole(value, roots, key)

    def executor(self, place: Place) -> Iterator[Look]:
        """Where an executor looks, without those inside of it."""
        written = {name: value for name, value in templates_in(place.executor).items() if value is not None}
        read = self.template if place.via is None else self._compile_whole
        yield from read(written, place.roots, place.path)

    def _compile_whole(self, value: Any, roots: frozenset[str], key: KeyPath) -> Iterator[Look]:
        try:
            compiled = compile_template(value, roots)
        except DefinitionError as error:
            self._report_unreadable(key, error)
            return
        yield from (Look(key, path) for path in compiled.paths)

    def _expression(self, text: str, key: KeyPath) -> Iterator[Look]:
        try:
            compiled = compile_expression(text, GUARD_ROOTS)
        except DefinitionError as error:
            self._report_unreadable(key, error)
            return
        yield from (Look(key, path) for path in compiled.paths)

    def _report_unreadable(self, key: KeyPath, error: DefinitionError) -> None:
        if self._report is not None:
            self._report.add(key, f"{error.message}; correct it", "WF030")


def check_reading(workflow: Workflow, capabilities: Mapping[str, Capability], path: KeyPath, report: Report) -> None:
    """Report everything in a workflow that cannot be read."""
    reader = Reader(report)
    for name, state in workflow.states.items():
        key = (*path, "states", name)
        if state.on_enter is not None:
            _read_all(reader.mapping(state.on_enter.output, (*key, "onEnter", "output")))
        for called, transition in state.transitions.items():
            where = (*key, "transitions", called)
            _read_all(reader.guards(transition.guards, (*where, "guards")))
            _read_all(reader.mapping(transition.output, (*where, "output")))
            _read_all(reader.template(transition.prefill, GUARD_ROOTS, (*where, "prefill")))
            for index, branch in enumerate(transition.branches):
                _read_all(reader.guard(branch.when, (*where, "branches", index, "when")))
    for place in look_through(executors_of(workflow, path), capabilities):
        # What is wrong wherever it stands is said once, at the capability.
        if place.via is None or _can_parse(place.executor):
            _read_all(reader.executor(place))


def check_capability_reading(capabilities: Mapping[str, Capability], report: Report) -> None:
    """Report everything in `capabilities` that cannot be read."""
    reader = Reader(report)
    for name, entry in capabilities.items():
        _read_all(reader.guards(entry.guards, ("capabilities", name, "guards")))
        for place in executors_at(entry, ("capabilities", name)):
            _read_all(reader.executor(place))


def check_schema(schema: dict[str, Any] | None, key: KeyPath, report: Report) -> None:
    """Report a JSON Schema that is none."""
    if schema is None:
        return
    try:
        Validator(schema)
    except DefinitionError as error:
        report.add(key, f"{error.message}; correct it", "WF031")


def _can_parse(executor: ExecutorModel) -> bool:
    try:
        compile_template(templates_in(executor), NESTED_ROOTS)
    except DefinitionError:
        return False
    return True


def _read_all(looks: Iterator[Look]) -> None:
    """Read everything, for the sake of what is reported."""
    for _ in looks:
        pass


@dataclass(frozen=True, slots=True)
class Moment:
    """What there is to look at: the slots of the context, the input, and the arguments; None where anything may be."""

    context: frozenset[str]
    input: frozenset[str] | None
    arguments: frozenset[str] | None


def check_data_flow(
    workflow: Workflow, resolved: Workflow, capabilities: Mapping[str, Capability], path: KeyPath, report: Report
) -> None:
    """Report every path to something that nothing writes on any way to it."""
    entered, settled = _find_written_slots(workflow)
    given = declared(workflow.input_schema)
    for name in workflow.states:
        if name not in settled:
            continue
        state, key = workflow.states[name], (*path, "states", name)
        _check_reads(_reads_on_entry(state, key, capabilities), Moment(entered[name], given, None), report)
        for called, transition in state.transitions.items():
            where = (*key, "transitions", called)
            arguments = _arguments(resolved.states[name].transitions[called])
            before = Moment(settled[name], given, arguments)
            after = Moment(settled[name] | transition.output.keys(), given, arguments)
            _check_reads(_reads_before(transition, where, capabilities), before, report)
            _check_reads(_reads_after(transition, where), after, report)
            prefilled = Reader().template(transition.prefill, GUARD_ROOTS, (*where, "prefill"))
            _check_reads(prefilled, Moment(settled[name], given, frozenset()), report)


def declared(schema: dict[str, Any] | None) -> frozenset[str] | None:
    """The properties a schema knows, or None where it lets others in."""
    if schema is None or _OPEN_KEYWORDS & schema.keys():
        return None
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    if not isinstance(properties, dict):
        return frozenset() if others is False and properties is None else None
    return frozenset(properties) if others is None or others is False else None


def _find_written_slots(workflow: Workflow) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """The slots that may be written when each state is entered, and when what it runs then is done."""
    here = reachable(workflow)
    entered = {name: frozenset[str]() for name in here}
    if workflow.initial_state in here and workflow.initial_state is not None:
        entered[workflow.initial_state] = frozenset(workflow.initial_context)
    out = [way for way in ways(workflow) if way.source in here]
    settled = {name: slots | _slots_of_entry(workflow.states[name]) for name, slots in entered.items()}
    changed = True
    while changed:
        changed = False
        for way in out:
            written = way.transition.output.keys() if way.transition is not None else ()
            arriving = settled[way.source] | frozenset(written)
            if not arriving <= entered[way.target]:
                entered[way.target] |= arriving
                settled[way.target] = entered[way.target] | _slots_of_entry(workflow.states[way.target])
                changed = True
    return entered, settled


def _slots_of_entry(state: State) -> frozenset[str]:
    return frozenset(state.on_enter.output) if state.on_enter is not None else frozenset()


def _arguments(transition: Transition) -> frozenset[str] | None:
    if transition.actor == "deterministic" and transition.input_schema is None:
        return frozenset()
    return declared(transition.input_schema)


def _reads_on_entry(state: State, key: KeyPath, capabilities: Mapping[str, Capability]) -> Iterator[Look]:
    if state.on_enter is None:
        return
    for place in look_through(executors_at(state.on_enter, (*key, "onEnter")), capabilities):
        yield from Reader().executor(place)
    yield from Reader().mapping(state.on_enter.output, (*key, "onEnter", "output"))


def _reads_before(transition: Transition, key: KeyPath, capabilities: Mapping[str, Capability]) -> Iterator[Look]:
    yield from Reader().guards(transition.guards, (*key, "guards"))
    for place in look_through(executors_at(transition, key), capabilities):
        yield from Reader().executor(place)
    yield from Reader().mapping(transition.output, (*key, "output"))


def _reads_after(transition: Transition, key: KeyPath) -> Iterator[Look]:
    for index, branch in enumerate(transition.branches):
        yield from Reader().guard(branch.when, (*key, "branches", index, "when"))


def _check_reads(looks: Iterable[Look], moment: Moment, report: Report) -> None:
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
