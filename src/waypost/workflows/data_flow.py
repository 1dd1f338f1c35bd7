"""What the checks work on, and checks of guards, paths and templates.

The report of findings, executors with their places and edges between states come first; all checks use them. The checks
report what cannot be parsed, what reads unwritten values, and what can never hold.

Guards are turned into the ways in which all of them could hold. A way is a list of facts that would have to be true
together; a fact is an atom and whether it holds. Guards can hold if one of the ways does not contradict itself. A
finding is reported only where it is certain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import fields

from waypost.capabilities.schemas.validators import Validator
from waypost.config import Loaded
from waypost.config.findings import Finding, KeyPath, quoted
from waypost.config.models import Capability, Expose, OnEnter, Reliability, State, Step, Transition, Workflow
from waypost.config.nodes import find_variables
from waypost.errors import DefinitionError
from waypost.kinds import ExecutorModel, GuardModel, nested_in, nesting_fields
from waypost.redaction import is_secret_variable
from waypost.workflows.definitions import Capabilities, nearest, resolve_capability
from waypost.workflows.executors.capability import CapabilityCall
from waypost.workflows.executors.kind import kind_of as kind_of_executor
from waypost.workflows.executors.kind import templates_in
from waypost.workflows.expressions import MIRRORED, ORDERED, Compare, Expression, Literal, compile_expression, render
from waypost.workflows.guards.kind import Fact, Has, TooManyWays, join_ways, kind_of, ways_of
from waypost.workflows.scope import (
    GUARD_ROOTS,
    NESTED_ROOTS,
    Path,
    Scope,
    Template,
    compile_mapping,
    compile_template,
    find_embedded_path,
    is_number,
)
from waypost.workflows.scope import (
    Mapping as CompiledMapping,
)

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
            # An entry that cannot be resolved is reported where it is written.
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
    within = (*place.within, kind_of_executor(place.executor).name)
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
    """The items of each name, such as the targets of each state."""
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


_OPEN_KEYWORDS: Final = frozenset({"patternProperties", "allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if", "not"})
"""Keywords of a schema that allow properties beyond `properties`."""


class Look(NamedTuple):
    """A path, and the key whose value contains it."""

    key: KeyPath
    path: Path


class Reader:
    """Parses guards, mappings and templates; reports what cannot be parsed, if there is a report."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report

    def guards(self, guards: list[GuardModel], key: KeyPath) -> Iterator[Look]:
        """The paths in guards."""
        for index, guard in enumerate(guards):
            yield from self.guard(guard, (*key, index))

    def guard(self, guard: GuardModel, key: KeyPath) -> Iterator[Look]:
        """The paths in a guard."""
        for field in kind_of(guard).expressions:
            yield from self._compile((*key, field), compile_expression, getattr(guard, field))
        for where, inner in nested_in(guard, GuardModel):
            yield from self.guard(inner, (*key, *where))

    def mapping(self, output: dict[str, Any], key: KeyPath) -> Iterator[Look]:
        """The paths in a mapping."""
        for name, value in output.items():
            yield from self._compile((*key, name), compile_mapping, {name: value})

    def template(self, value: Any, roots: frozenset[str], key: KeyPath) -> Iterator[Look]:
        """The paths in a template, each with its own key."""
        if isinstance(value, dict):
            for name, item in value.items():
                yield from self.template(item, roots, (*key, name))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.template(item, roots, (*key, index))
        else:
            yield from self._compile(key, compile_template, value, roots)

    def executor(self, place: Place) -> Iterator[Look]:
        """The paths in an executor, without those nested in it."""
        written = {name: value for name, value in templates_in(place.executor).items() if value is not None}
        if place.via is None:
            yield from self.template(written, place.roots, place.path)
        # The keys of a named entry are elsewhere in the file, so that findings about it point to the name.
        else:
            yield from self._compile(place.path, compile_template, written, place.roots)

    def _compile(
        self, key: KeyPath, compile: Callable[..., Expression | CompiledMapping | Template], *given: Any
    ) -> Iterator[Look]:
        try:
            yield from (Look(key, path) for path in compile(*given).paths)
        except DefinitionError as error:
            if self._report is not None:
                self._report.add(key, f"{error.message}; correct it", "WF030")


def check_embedded_paths(place: Place, report: Report) -> None:
    """Report texts in templates that have a path as a part, which is passed as it is written."""
    for key, text in _texts_of(templates_in(place.executor), place.path):
        meant = find_embedded_path(text)
        if meant is not None:
            alone = "as an argument of its own" if "args" in key[len(place.path) :] else "alone, as the whole text"
            sentence = f"{quoted(text)} is passed as it is written; write {quoted(meant)} {alone}"
            report.add(key, sentence, "WF026")


def check_part(place: Place, report: Report) -> None:
    """Report what only the executor of a whole transition can have, where an executor is a part of another one."""
    if not place.within:
        return
    inside, executor = f"inside of {quoted(place.within[-1])}", place.executor
    if executor.idempotency_key is not True:
        sentence = f"the key has no effect {inside}, where each part gets that of the whole; set it there, or remove it"
        report.add((*place.path, "idempotencyKey"), sentence, "WF059")
    if isinstance(executor, CapabilityCall) and executor.capability in report.config.capabilities:
        with suppress(DefinitionError):  # which is reported where the entry is written
            if resolve_capability(executor.capability, report.config.capabilities).reliability is not None:
                name = quoted(executor.capability)
                sentence = f"the `reliability` of {name} has no effect {inside}; set one in the transition"
                report.add((*place.path, "capability"), sentence, "WF059")


def lookups_in(place: Place) -> Iterator[tuple[KeyPath, str]]:
    """The names that an executor looks up in the arguments, the context and the input."""
    for key, name in kind_of_executor(place.executor).lookups(place.executor):
        yield place.path if place.via is not None else (*place.path, key), name


def check_reading(workflow: Workflow, path: KeyPath, report: Report) -> None:
    """Report everything in a workflow that cannot be parsed."""
    _exhaust(_read_workflow(workflow, report.config.capabilities, path, Reader(report)))


def _read_workflow(workflow: Workflow, capabilities: Capabilities, path: KeyPath, reader: Reader) -> Iterator[Look]:
    for name, state in workflow.states.items():
        key = (*path, "states", name)
        if state.on_enter is not None:
            yield from reader.mapping(state.on_enter.output, (*key, "onEnter", "output"))
        for called, transition in state.transitions.items():
            where = (*key, "transitions", called)
            yield from reader.guards(transition.guards, (*where, "guards"))
            yield from reader.mapping(transition.output, (*where, "output"))
            yield from reader.template(transition.prefill, GUARD_ROOTS, (*where, "prefill"))
            for index, branch in enumerate(transition.branches):
                yield from reader.guard(branch.when, (*where, "branches", index, "when"))
    for place in look_through(executors_of(workflow, path), capabilities):
        # What is wrong in every place is reported once, at the capability.
        if place.via is None or _can_parse(place.executor):
            yield from reader.executor(place)


def check_capability(name: str, entry: Capability, report: Report) -> None:
    """Report what cannot be parsed in an entry of `capabilities`, and guards that can never hold."""
    path, reader = ("capabilities", name), Reader(report)
    _exhaust(reader.guards(entry.guards, (*path, "guards")))
    for place in executors_at(entry, path):
        _exhaust(reader.executor(place))
    _check_list(entry.guards, path, report)


def check_schema(schema: dict[str, Any] | None, key: KeyPath, report: Report) -> None:
    """Report a JSON Schema that is invalid, or that no arguments fit."""
    if schema is None:
        return
    try:
        Validator(schema)
    except DefinitionError as error:
        report.add(key, f"{error.message}; correct it", "WF031")
    else:
        if schema.get("type", "object") != "object":
            report.add(key, "arguments are an object, so the root type of their schema is `object`", "WF031")


def check_secrets(written: Workflow | Capability, path: KeyPath, report: Report) -> None:
    """Report variables with the name of a secret in texts that become data of instances, or that callers see."""
    for key, text in _texts_of(written, path):
        for name in sorted(filter(is_secret_variable, find_variables(text))):
            sentence = (
                f"the value of {quoted(name)} would be stored and shown to callers; write it in `env`, `headers` or "
                "`args` of an executor, or rename the variable if it is no secret"
            )
            report.add(key, sentence, "WF070")


def _texts_of(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """The texts in a value; of a definition those that its executors and steps do not get alone."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts_of(item, (*path, name))
    elif isinstance(value, Struct):
        hidden: Iterable[str] = ("config", "prompt_template") if isinstance(value, Step) else ()
        if isinstance(value, ExecutorModel):
            kept = {"idempotency_key", *kind_of_executor(value).stored, *nesting_fields(type(value), ExecutorModel)}
            hidden = set(value.__struct_fields__) - kept
        for field in fields(value):
            if field.name not in hidden:
                yield from _texts_of(getattr(value, field.name), (*path, field.encode_name))


def _can_parse(executor: ExecutorModel) -> bool:
    try:
        compile_template(templates_in(executor), NESTED_ROOTS)
    except DefinitionError:
        return False
    return True


def _exhaust(looks: Iterator[Look]) -> None:
    """Consume an iterator, for the findings that it reports."""
    for _ in looks:
        pass


@dataclass(frozen=True, slots=True)
class Moment:
    """The existing slots of the context, of the input and of the arguments; None if any name may exist."""

    context: frozenset[str]
    input: frozenset[str] | None
    arguments: frozenset[str] | None


def check_data_flow(workflow: Workflow, resolved: Workflow, path: KeyPath, report: Report) -> None:
    """Report every path that reads something that is written on no path to it."""
    entered, settled = _find_written_slots(workflow)
    capabilities = report.config.capabilities
    given = list_properties(workflow.input_schema)
    for name in workflow.states:
        if name not in settled:
            continue
        state, key = workflow.states[name], (*path, "states", name)
        _check_reads(
            _reads(state.on_enter, (*key, "onEnter"), capabilities), Moment(entered[name], given, None), report
        )
        for called, transition in state.transitions.items():
            where = (*key, "transitions", called)
            arguments = _arguments(resolved.states[name].transitions[called])
            before = Moment(settled[name], given, arguments)
            after = Moment(settled[name] | transition.output.keys(), given, arguments)
            _check_reads(_reads(transition, where, capabilities), before, report)
            for place in look_through(executors_at(transition, where), capabilities):
                _check_lookups(place, before, report)
            for index, branch in enumerate(transition.branches):
                _check_reads(Reader().guard(branch.when, (*where, "branches", index, "when")), after, report)
            prefilled = Reader().template(transition.prefill, GUARD_ROOTS, (*where, "prefill"))
            _check_reads(prefilled, Moment(settled[name], given, frozenset()), report)


def list_properties(schema: dict[str, Any] | None) -> frozenset[str] | None:
    """The properties of a schema; None if it allows others."""
    if schema is None or _OPEN_KEYWORDS & schema.keys():
        return None
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    if not isinstance(properties, dict):
        return frozenset() if others is False and properties is None else None
    return frozenset(properties) if others is None or others is False else None


def _find_written_slots(workflow: Workflow) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """The slots that may exist when each state is entered, and after its entry action."""
    here = reachable(workflow)
    entered = {name: frozenset[str]() for name in here}
    if workflow.initial_state in here and workflow.initial_state is not None:
        entered[workflow.initial_state] = frozenset(workflow.initial_context)
    out = [way for way in ways(workflow) if way.source in here]
    settled = {name: slots | _slots_of_entry(workflow.states[name]) for name, slots in entered.items()}
    # Cycles carry slots around, so the edges are followed until nothing changes; sets only grow, so that this ends.
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
    return list_properties(transition.input_schema)


def _reads(move: Transition | OnEnter | None, key: KeyPath, capabilities: Capabilities) -> Iterator[Look]:
    if isinstance(move, Transition):
        yield from Reader().guards(move.guards, (*key, "guards"))
    for place in look_through(executors_at(move, key), capabilities):
        yield from Reader().executor(place)
    if move is not None:
        yield from Reader().mapping(move.output, (*key, "output"))


def _check_reads(looks: Iterable[Look], moment: Moment, report: Report) -> None:
    known = {"context": moment.context, "input": moment.input, "arguments": moment.arguments}
    for key, path in looks:
        there = known.get(path.root)
        if there is None or not path.keys or not isinstance(path.keys[0], str) or path.keys[0] in there:
            continue
        name = path.keys[0]
        if path.root == "context":
            sentence = f"nothing on a path to here writes `$.context.{name}`; {_hint(name, there)}"
        else:
            sentence = f"`$.{path.root}.{name}` does not exist; {_hint(name, there)}"
        report.add(key, sentence, "WF054")


def _check_lookups(place: Place, moment: Moment, report: Report) -> None:
    if moment.input is None or moment.arguments is None:
        return
    there = moment.context | moment.input | moment.arguments
    for key, name in lookups_in(place):
        if name not in there:
            sentence = f"`{name}` is no argument, and neither in the context nor in the input; {_hint(name, there)}"
            report.add(key, sentence, "WF054")


def _hint(name: str, there: frozenset[str]) -> str:
    return nearest(name, there) if there else "write it first, or read something else"


_OPPOSITE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_TYPES: Final = frozenset({"number", "text", "list", "other"})
_TRUE: Final = Literal.of(True)
_NOTHING: Final = Scope({}, {}, {})


class Claim(NamedTuple):
    """A statement about the value at a path."""

    op: str
    value: Literal
    holds: bool


def contradict(facts: Sequence[Fact]) -> bool:
    """Whether the facts contradict each other."""
    said = set(facts)
    if any(Fact(atom, not holds) in said for atom, holds in facts):
        return True
    if _possessions_contradict(facts):
        return True
    claims: dict[Path, list[Claim]] = {}
    for fact in facts:
        found = _to_claim(fact)
        if isinstance(found, bool):
            if not found:
                return True
        elif found is not None:
            claims.setdefault(found[0], []).append(found[1])
    return any(_is_impossible(about) for about in claims.values())


def _possessions_contradict(facts: Iterable[Fact]) -> bool:
    given = [(fact.atom, fact.holds) for fact in facts if isinstance(fact.atom, Has)]
    # To have three is to have two, so that having three and lacking two is a contradiction.
    return any(
        one_holds and not other_holds and one[:2] == other[:2] and one.at_least >= other.at_least
        for one, one_holds in given
        for other, other_holds in given
    )


def _to_claim(fact: Fact) -> tuple[Path, Claim] | bool | None:
    """What a fact says about a path, or whether it is so anyway; None when nothing is known."""
    atom, holds = fact
    match atom:
        case Literal():
            return (atom.value is True) == holds
        case Path():
            return atom, Claim("==", _TRUE, holds)
        case Compare(op, Path() as path, Literal() as value):
            return path, Claim(op, value, holds)
        case Compare(op, Literal() as value, Path() as path) if op in MIRRORED:
            return path, Claim(MIRRORED[op], value, holds)
        case Compare(_, Literal(), Literal()):
            return _evaluate(render(atom), _NOTHING) in (holds, None)
        case Compare(op, left, right) if left == right and op in ("==", "<", ">"):
            return None if op == "==" and holds else (op != "==") != holds
    return None


def _evaluate(comparison: str, scope: Scope) -> bool | None:
    """Whether a comparison holds; None where it got too long to be read again."""
    try:
        return compile_expression(comparison).holds(scope)
    except DefinitionError:
        return None


def _fits(value: Any, claims: Iterable[Claim]) -> bool:
    """Whether a value may be as all claims say."""
    scope = Scope({"v": value}, {}, {})
    return all(
        _evaluate(f"$.context.v {claim.op} {claim.value.text}", scope) in (claim.holds, None) for claim in claims
    )


def _is_impossible(claims: list[Claim]) -> bool:
    candidates = _candidates(claims)
    if candidates is not None:
        return not any(_fits(value, claims) for value in candidates)
    kinds = _TYPES
    for claim in claims:
        if claim.holds:
            kinds &= _allowed_types(claim)
    if not kinds:
        return True
    if kinds == {"number"}:
        return _has_no_value([claim for claim in claims if is_number(claim.value.value)], claims)
    if kinds == {"text"}:
        texts = [claim for claim in claims if isinstance(claim.value.value, str)]
        # A text cannot begin in two ways, unless one beginning is part of the other.
        heads = [claim.value.value for claim in claims if claim.op == "starts_with" and claim.holds]
        conflict = any(not one.startswith(other) and not other.startswith(one) for one in heads for other in heads)
        return conflict or _has_no_value(texts, claims)
    return False


def _candidates(claims: Iterable[Claim]) -> list[Any] | None:
    """The values that are left to a path, where they can be counted."""
    for claim in claims:
        if claim.op == "==" and claim.holds:
            return [claim.value.value]
        if claim.op == "in" and claim.holds and isinstance(claim.value.value, list):
            return claim.value.value
    return None


def _allowed_types(claim: Claim) -> frozenset[str]:
    """What kind of value a claim allows."""
    value = claim.value.value
    if claim.op in ORDERED:
        return frozenset({"number"} if is_number(value) else {"text"} if isinstance(value, str) else ())
    if claim.op == "matches":
        return frozenset({"text"})
    if claim.op in ("starts_with", "in"):
        return frozenset({"text"} if isinstance(value, str) else ())
    return frozenset({"text", "list"} if isinstance(value, str) else {"list"})


def _has_no_value(bounds: list[Claim], claims: list[Claim]) -> bool:
    """Whether no value lies between the bounds; all of them are of the kind that the value is."""
    lowest: tuple[Any, bool] | None = None
    highest: tuple[Any, bool] | None = None
    for claim in bounds:
        if claim.op not in ORDERED:
            continue
        op = claim.op if claim.holds else _OPPOSITE[claim.op]
        limit, strict = claim.value.value, op in ("<", ">")
        if op in (">", ">="):
            # At the same limit, a strict bound is the tighter one.
            if lowest is None or (limit, strict) > lowest:
                lowest = (limit, strict)
        elif highest is None or (limit, not strict) < (highest[0], not highest[1]):
            highest = (limit, strict)
    if lowest is None or highest is None or lowest[0] < highest[0]:
        return False
    if lowest[0] > highest[0] or lowest[1] or highest[1]:
        return True
    return not _fits(lowest[0], claims)


_ADVICE = "correct it, or remove what it is for"


def can_hold(guards: list[GuardModel]) -> bool:
    """Whether guards may hold together; false only where it is certain that they never do."""
    try:
        return not all(contradict(way) for way in join_ways(ways_of(guard, True) for guard in guards))
    except TooManyWays:
        return True


def check_satisfiability(workflow: Workflow, resolved: Workflow, path: KeyPath, report: Report) -> None:
    """Report guards that can never hold."""
    for state, model in workflow.states.items():
        for name, transition in model.transitions.items():
            where = (*path, "states", state, "transitions", name)
            is_reported = _check_list(transition.guards, where, report)
            for index, branch in enumerate(transition.branches):
                _check_one(branch.when, (*where, "branches", index, "when"), report)
            if not is_reported and not can_hold(resolved.states[state].transitions[name].guards):
                sentence = f"its guards and those of the capability can never hold together; {_ADVICE}"
                report.add((*where, "executor"), sentence, "WF055")


def _check_list(guards: list[GuardModel], path: KeyPath, report: Report) -> bool:
    """Whether something was said about a list of guards."""
    each = [_check_one(guard, (*path, "guards", index), report) for index, guard in enumerate(guards)]
    if any(each):
        return True
    if can_hold(guards):
        return False
    report.add((*path, "guards"), f"these guards can never hold together; {_ADVICE}", "WF055")
    return True


def _check_one(guard: GuardModel, path: KeyPath, report: Report) -> bool:
    if can_hold([guard]):
        return False
    where = (*path, *kind_of(guard).expressions[:1])
    report.add(where, f"this guard can never hold; {_ADVICE}", "WF055")
    return True
