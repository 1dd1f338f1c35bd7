"""Finding every path, expression and template of a workflow, and saying which cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from waypost.capabilities.schemas.validators import Validator
from waypost.config import executors as kinds
from waypost.config.findings import KeyPath
from waypost.config.workflows import AllOf, AnyOf, Capability, ExprGuard, Guard, JsonPathGuard, Not, Workflow
from waypost.errors import DefinitionError
from waypost.workflows.checking.places import Place, executors_of, followed, of_capability
from waypost.workflows.checking.report import Report
from waypost.workflows.expressions import compile_expression
from waypost.workflows.mapping import compile_mapping, compile_template
from waypost.workflows.paths import Path
from waypost.workflows.scope import GUARD_ROOTS, NESTED_ROOTS, OUTPUT_ROOTS


class Look(NamedTuple):
    """A path, and the key whose value it stands in."""

    key: KeyPath
    path: Path


class Reader:
    """Reads what is written; what cannot be read is reported, if there is a report."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report

    def guards(self, guards: list[Guard], key: KeyPath) -> Iterator[Look]:
        """Where guards look."""
        for index, guard in enumerate(guards):
            yield from self.guard(guard, (*key, index))

    def guard(self, guard: Guard, key: KeyPath) -> Iterator[Look]:
        """Where a guard looks."""
        match guard:
            case ExprGuard() | JsonPathGuard():
                yield from self._expression(guard.expr, (*key, "expr"))
            case AllOf() | AnyOf():
                yield from self.guards(guard.guards, (*key, "guards"))
            case Not():
                yield from self.guard(guard.guard, (*key, "guard"))

    def mapping(self, output: dict[str, Any], key: KeyPath) -> Iterator[Look]:
        """Where a mapping looks."""
        for name, value in output.items():
            try:
                compiled = compile_mapping({name: value}, OUTPUT_ROOTS)
            except DefinitionError as error:
                self._refuse((*key, name), error)
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
            yield from self._whole(value, roots, key)

    def executor(self, place: Place) -> Iterator[Look]:
        """Where an executor looks, without those inside of it."""
        roots = NESTED_ROOTS if place.within & {"parallel", "pipeline"} or place.anywhere else GUARD_ROOTS
        written = {name: value for name, value in _templates(place.executor).items() if value is not None}
        if place.via is None:
            yield from self.template(written, roots, place.path)
        else:
            yield from self._whole(written, roots, place.path)

    def _whole(self, value: Any, roots: frozenset[str], key: KeyPath) -> Iterator[Look]:
        try:
            compiled = compile_template(value, roots)
        except DefinitionError as error:
            self._refuse(key, error)
            return
        yield from (Look(key, path) for path in compiled.paths)

    def _expression(self, text: str, key: KeyPath) -> Iterator[Look]:
        try:
            compiled = compile_expression(text, GUARD_ROOTS)
        except DefinitionError as error:
            self._refuse(key, error)
            return
        yield from (Look(key, path) for path in compiled.paths)

    def _refuse(self, key: KeyPath, error: DefinitionError) -> None:
        if self._report is not None:
            self._report.add(key, f"{error.message}; correct it", "WF030")


def check_reading(workflow: Workflow, capabilities: Mapping[str, Capability], path: KeyPath, report: Report) -> None:
    """Note everything in a workflow that cannot be read."""
    reader = Reader(report)
    for name, state in workflow.states.items():
        key = (*path, "states", name)
        if state.on_enter is not None:
            _exhaust(reader.mapping(state.on_enter.output, (*key, "onEnter", "output")))
        for called, transition in state.transitions.items():
            where = (*key, "transitions", called)
            _exhaust(reader.guards(transition.guards, (*where, "guards")))
            _exhaust(reader.mapping(transition.output, (*where, "output")))
            _exhaust(reader.template(transition.prefill, GUARD_ROOTS, (*where, "prefill")))
            for index, branch in enumerate(transition.branches):
                _exhaust(reader.guard(branch.when, (*where, "branches", index, "when")))
    for place in followed(executors_of(workflow, path), capabilities):
        # What is wrong wherever it stands is said once, at the capability.
        if place.via is None or _is_readable(place.executor):
            _exhaust(reader.executor(place))


def check_capability_reading(capabilities: Mapping[str, Capability], report: Report) -> None:
    """Note everything in `capabilities` that cannot be read."""
    reader = Reader(report)
    for name, entry in capabilities.items():
        _exhaust(reader.guards(entry.guards, ("capabilities", name, "guards")))
        for place in of_capability(entry, ("capabilities", name)):
            _exhaust(reader.executor(place))


def check_schema(schema: dict[str, Any] | None, key: KeyPath, report: Report) -> None:
    """Note a JSON Schema that is none."""
    if schema is None:
        return
    try:
        Validator(schema)
    except DefinitionError as error:
        report.add(key, f"{error.message}; correct it", "WF031")


def _is_readable(executor: kinds.Executor) -> bool:
    try:
        compile_template(_templates(executor), NESTED_ROOTS)
    except DefinitionError:
        return False
    return True


def _exhaust(looks: Iterator[Look]) -> None:
    """Read everything, for the sake of what is reported."""
    for _ in looks:
        pass


def _templates(executor: kinds.Executor) -> dict[str, Any]:
    """The values of an executor in which paths stand for something, by their keys."""
    match executor:
        case kinds.Cli() | kinds.Script():
            return {"args": executor.args, "stdin": executor.stdin}
        case kinds.Rest():
            return {"query": executor.query, "headers": executor.headers, "body": executor.body}
        case kinds.Mcp():
            return {"map": executor.map}
        case kinds.CapabilityCall() | kinds.WorkerCall():
            return {"arguments": executor.arguments}
        case kinds.Human():
            return {"presents": executor.presents}
        case kinds.Child():
            return {"input": executor.input}
        case kinds.Parallel():
            return {"forEach": executor.for_each}
        case _:
            return {}
