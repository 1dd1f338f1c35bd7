"""Simulation: random walks through a workflow, to find states that are never reached and states that cannot be left.

Guards, branches, schemas, chains and mappings are the real ones. Nothing outside is called: approvers decide at random,
callers have random roles of those that the definition names, and the outputs of executors are sampled. The same seed
gives the same walks.

`Interests` finds out which paths the guards of a definition read and what they compare them with. Following the output
mappings backwards, these values are sampled for the arguments, the input and the outputs of executors.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any, Final

import msgspec

from waypost.capabilities.principals import Principal
from waypost.capabilities.schemas.graph import follow_reference
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import ExecutorFailed, WorkflowRefused
from waypost.kinds import ExecutorModel, GuardModel, nested_in
from waypost.workflows import transitions
from waypost.workflows.data_flow import find_reachable, group
from waypost.workflows.definitions import ENTER, TIMEOUT, Action, Definition, TransitionPlan
from waypost.workflows.executors import build
from waypost.workflows.executors.human import Human
from waypost.workflows.executors.kind import ExecutorContext
from waypost.workflows.expressions import And, Compare, Literal, Node, Not, Or
from waypost.workflows.guards.kind import Has, TooManyWays, ways_of
from waypost.workflows.instance import HUMAN, SYSTEM, Approval, Instance, PendingMove
from waypost.workflows.scope import Path, is_path, parse_path
from waypost.workflows.steps import ON_ERROR, ON_SUCCESS, Done
from waypost.workflows.transitions import choose_chained

Data = dict[str, Any]
Keys = tuple[str | int, ...]
Place = tuple[str, Keys]
"""A root, qualified by the transition it belongs to, and the keys below it."""

_JUNK: Final[tuple[Any, ...]] = (None, True, False, 0, 1, -1, 0.5, "", "text", [], {})
_MAX_SCHEMA_TRIES: Final = 20
_MAX_DEPTH: Final = 6
_MAPPING_ROUNDS: Final = 4
"""How often values are propagated through mappings: the number of moves between an input and a guard."""
_FORMATS: Final = {
    "date": "2030-01-01",
    "date-time": "2030-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "ann@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
}
_LETTERS: Final = "aA0_ -~z"
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_SPACE": " ",
    "CATEGORY_WORD": "aA0_z",
    "CATEGORY_NOT_DIGIT": "aA_ -~z",
    "CATEGORY_NOT_SPACE": "aA0_-~z",
    "CATEGORY_NOT_WORD": "-~ ",
}
"""Some characters of each category."""


def own_root(root: str, state: str, move: str) -> str:
    """The name of a root; arguments and outputs have one for each move."""
    return f"{root} of {state}.{move}" if root in ("arguments", "output") else root


class Interests:
    """The values that make a difference to guards, by the path where they do."""

    def __init__(self, definition: Definition) -> None:
        self._found: dict[Place, list[Any]] = defaultdict(list)
        mappings: list[tuple[Place, Place]] = []
        for name in definition.names:
            state = definition.states[name]
            for plan in state.transitions.values():
                for guard in (plan.guards, *(guard for guard, _ in plan.branches)):
                    for expression in guard.expressions:
                        for path, values in _find_operands(expression.tree):
                            self._add((own_root(path.root, name, plan.name), path.keys), values)
                mappings += _mappings(plan.model.output, name, plan.name)
            if state.model.on_enter is not None:
                mappings += _mappings(state.model.on_enter.output, name, ENTER)
        self._mapped = dict.fromkeys(source for _, source in mappings)
        for _ in range(_MAPPING_ROUNDS):
            for slot, source in mappings:
                self._propagate(slot, source)

    def _propagate(self, slot: Place, source: Place) -> None:
        """Copy the interesting values of a slot to its source, and the other way round."""
        for one, other in ((slot, source), (source, slot)):
            for (root, keys), values in list(self._found.items()):
                if root == one[0] and keys[: len(one[1])] == one[1]:
                    self._add((other[0], (*other[1], *keys[len(one[1]) :])), values)

    def _add(self, place: Place, values: list[Any]) -> None:
        known = self._found[place]
        # By type and value: to Python `True == 1`.
        seen = [(type(value), value) for value in known]
        known += [value for value in values if (type(value), value) not in seen]

    def of(self, root: str) -> dict[Keys, list[Any]]:
        """The interesting values below a root; an empty list for a path that is only read."""
        found: dict[Keys, list[Any]] = {keys: [] for place, keys in self._mapped if place == root}
        return {**found, **{keys: values for (place, keys), values in self._found.items() if place == root}}

    def sample(self, root: str, random: Random) -> Any:
        """A value for a root with something at each interesting path."""
        places = self.of(root)
        built: Any = {}
        for keys in sorted(places, key=len):
            # Mostly values that decide something; sometimes junk or nothing, which guards have to survive as well.
            wanted = places[keys]
            if random.random() >= 0.05:
                value = random.choice(wanted if wanted and random.random() < 0.85 else _JUNK)
                built = _put(built, keys, value)
        return built

    def sample_object(self, schema: Data | None, root: str, random: Random) -> Data | None:
        """An object for a root that matches a schema; None if none was found."""
        if schema is None:
            sampled = self.sample(root, random)
            return sampled if isinstance(sampled, dict) else {}
        validator, places = Validator(schema), self.of(root)
        for _ in range(_MAX_SCHEMA_TRIES):
            sampled = SchemaSampler(schema, random, places).value(schema, (), 0)
            if isinstance(sampled, dict) and validator.is_valid(sampled):
                return sampled
        return None


class SchemaSampler:
    """Samples values that mostly match a schema; the caller validates them."""

    def __init__(self, root: Data, random: Random, places: dict[Keys, list[Any]] | None = None) -> None:
        self._root = root
        self._random = random
        self._places = places or {}

    def value(self, schema: Any, keys: Keys, depth: int) -> Any:
        """A value for a part of the schema."""
        random = self._random
        if not isinstance(schema, dict):
            return random.choice(_JUNK)
        wanted = self._places.get(keys)
        if wanted and random.random() < 0.75:
            validator = Validator({key: part for key, part in schema.items() if key != "$ref"})
            if valid := [value for value in wanted if validator.is_valid(value)]:
                return random.choice(valid)
        schema = self._flatten(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return random.choice(schema["enum"])
        if "default" in schema and random.random() < 0.3:
            return schema["default"]
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            kind = random.choice(kind)
        return self._of_kind(kind, schema, keys, depth)

    def _flatten(self, schema: Data, depth: int) -> Data:
        """A schema merged with what it refers to and with its parts: all of `allOf`, one of `oneOf` and `anyOf`."""
        if depth > _MAX_DEPTH:
            return schema
        parts = [schema]
        if (target := follow_reference(schema, self._root)) is not None:
            parts.append(self._flatten(target, depth + 1))
        chosen = [self._random.choice(schema[word]) for word in ("oneOf", "anyOf") if schema.get(word)]
        parts += [self._flatten(part, depth + 1) for part in chosen if isinstance(part, dict)]
        parts += [self._flatten(part, depth + 1) for part in schema.get("allOf", ()) if isinstance(part, dict)]
        return _merge_schemas(parts) if parts[1:] else schema

    def _of_kind(self, kind: Any, schema: Data, keys: Keys, depth: int) -> Any:
        match kind:
            case "object":
                return self._object(schema, keys, depth)
            case "array":
                return self._array(schema, keys, depth)
            case "string":
                return _sample_text(schema, self._random)
            case "integer" | "number":
                return _sample_number(schema, self._random, whole=kind == "integer")
            case "boolean":
                return self._random.random() < 0.5
        return None if kind == "null" else self._random.choice(_JUNK)

    def _object(self, schema: Data, keys: Keys, depth: int) -> Data:
        required = schema.get("required", ())
        properties = {**{name: {} for name in required}, **schema.get("properties", {})}
        return {
            name: self.value(part, (*keys, name), depth + 1)
            for name, part in properties.items()
            if name in required or (depth < _MAX_DEPTH and self._random.random() < 0.6)
        }

    def _array(self, schema: Data, keys: Keys, depth: int) -> list[Any]:
        least = schema.get("minItems", 0)
        most = schema.get("maxItems", least + 2) if depth < _MAX_DEPTH else least
        size = self._random.randint(least, max(least, min(most, least + 2)))
        return [self.value(schema.get("items", {}), (*keys, place), depth + 1) for place in range(size)]


def _sample_text(schema: Data, random: Random) -> str:
    """A text that matches the format, the pattern or the lengths of a schema."""
    known = _FORMATS.get(schema.get("format", ""))
    if known is not None:
        return known
    if "pattern" in schema:
        return sample_pattern(schema["pattern"], random)
    least, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", 1000))
    text: str = random.choice(("text", "another", "x"))
    return (text * (least // len(text) + 1))[: min(max(least, len(text)), most)]


def sample_pattern(pattern: str, random: Random | None = None) -> str:
    """A text that matches a regular expression; empty if Python cannot parse it."""
    try:
        # Private, but there is no public way to see how Python reads a pattern.
        tree = importlib.import_module("re._parser").parse(pattern)
    except (re.error, RecursionError):
        return ""
    return "".join(_sample_tokens(tree, random or Random(0)))  # noqa: S311  # nothing secret depends on it


def _sample_tokens(tree: Any, random: Random) -> Iterator[str]:
    for code, argument in tree:
        match str(code):
            case "LITERAL":
                yield chr(argument)
            case "NOT_LITERAL":
                yield "a" if argument != ord("a") else "b"
            case "ANY":
                yield "a"
            case "IN":
                yield _sample_class(argument, random)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inner = argument
                for _ in range(random.randint(least, min(int(most), least + 2))):
                    yield from _sample_tokens(inner, random)
            case "SUBPATTERN":
                yield from _sample_tokens(argument[-1], random)
            case "BRANCH":
                yield from _sample_tokens(random.choice(argument[1]), random)


def _sample_class(members: Any, random: Random) -> str:
    """A character of a class."""
    if str(members[0][0]) == "NEGATE":
        others = [letter for letter in _LETTERS if not any(_is_in(letter, *member) for member in members[1:])]
        return random.choice(others) if others else ""
    code, argument = random.choice(members)
    match str(code):
        case "RANGE":
            return chr(random.randint(*argument))
        case "CATEGORY":
            return _CATEGORIES.get(str(argument), "a")[0]
        case _:
            return chr(argument)


def _is_in(letter: str, code: Any, argument: Any) -> bool:
    match str(code):
        case "RANGE":
            return bool(argument[0] <= ord(letter) <= argument[1])
        case "CATEGORY":
            return letter in _CATEGORIES.get(str(argument), _LETTERS)
        case _:
            return bool(ord(letter) == argument)


def _sample_number(schema: Data, random: Random, *, whole: bool) -> float:
    least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + ("exclusiveMinimum" in schema))
    most = schema.get("maximum", schema.get("exclusiveMaximum", least + 101) - ("exclusiveMaximum" in schema))
    step = schema.get("multipleOf")
    if step:
        return step * random.randint(-(-least // step), max(-(-least // step), most // step))  # type: ignore[no-any-return]
    if whole or random.random() < 0.5:
        return random.randint(int(-(-least // 1)), int(max(least, most // 1)))
    return round(random.uniform(least, max(least, most)), 3)


def _put(holder: Any, keys: Keys, value: Any) -> Any:
    """The holder with a value at a path; what is in the way is replaced."""
    if not keys:
        return value
    key, *rest = keys
    if isinstance(key, int):
        items = list(holder) if isinstance(holder, list) else []
        items += [None] * (key + 1 - len(items))
        items[key] = _put(items[key], tuple(rest), value)
        return items
    fields = dict(holder) if isinstance(holder, dict) else {}
    fields[key] = _put(fields.get(key), tuple(rest), value)
    return fields


def _mappings(output: Data, state: str, move: str) -> Iterator[tuple[Place, Place]]:
    """The slots of the context, each with a path that it is computed from."""
    for slot, value in output.items():
        for text in _paths_in(value):
            path = parse_path(text)
            yield ("context", (slot,)), (own_root(path.root, state, move), path.keys)


def _paths_in(value: Any) -> Iterator[str]:
    if isinstance(value, str) and is_path(value):
        yield value
    elif isinstance(value, dict) and len(value) == 1 and "set" not in value:
        for operand in next(iter(value.values())) if isinstance(next(iter(value.values())), list) else ():
            yield from _paths_in(operand)


def _find_operands(node: Node) -> Iterator[tuple[Path, list[Any]]]:
    """The paths that an expression reads, with values that make a difference there."""
    match node:
        case Path():
            yield node, [True, False]
        case And(parts) | Or(parts):
            for part in parts:
                yield from _find_operands(part)
        case Not(part):
            yield from _find_operands(part)
        case Compare(op, Path() as left, Literal(value)):
            yield left, _values_around(op, value)
        case Compare(op, Literal(value), Path() as right):
            yield right, _values_around({"in": "contains", "contains": "in"}.get(op, op), value)
        case Compare(_, Path() as left, Path() as right):
            for path in (left, right):
                yield path, [1, 2, "text", "another"]


_VALUES_AROUND: Final[dict[str, Callable[[Any], list[Any]]]] = {
    "contains": lambda value: [[value], [], value if isinstance(value, str) else [value, value]],
    "in": lambda value: [*value, "another"] if isinstance(value, list) else [value, ""],
    "starts_with": lambda value: [value, f"{value}x", "another"],
    "matches": lambda value: [sample_pattern(str(value)), f"{sample_pattern(str(value))}!", "!"],
}


def _values_around(op: str, value: Any) -> list[Any]:
    if op in _VALUES_AROUND:
        return _VALUES_AROUND[op](value)
    if isinstance(value, bool):
        return [value, not value]
    if isinstance(value, int | float):
        return [value, value - 1, value + 1]
    return [value, f"{value}~", ""] if isinstance(value, str) else [value, "another"]


def _merge_schemas(parts: list[Data]) -> Data:
    merged: Data = {}
    for part in parts:
        properties = {**merged.get("properties", {}), **part.get("properties", {})}
        required = [*merged.get("required", ()), *part.get("required", ())]
        merged = {**merged, **part}
        if properties:
            merged["properties"] = properties
        if required:
            merged["required"] = required
    return merged


WALKS: Final = 200
STEPS: Final = 50
_MAX_TRIES: Final = 12
"""How often a transition is tried with other arguments before the next transition is tried."""
_MAX_LAST_TRIES: Final = 300
"""How often each transition is tried before a state counts as a dead end."""
_REJECTION_RATE: Final = 0.25
_TIMEOUT_RATE: Final = 0.03
_PEOPLE: Final = ("ann", "bob", "cid", "dot")


class Trouble(msgspec.Struct, frozen=True, rename="camel"):
    """A state in which a walk stopped, the reasons, and the moves that led there."""

    state: str
    reasons: list[str]
    context: Data
    walk: int
    input: Data
    steps: list[Data]


class Untaken(msgspec.Struct, frozen=True, rename="camel"):
    """A transition that no walk took, and the last reason for a refusal if it was tried."""

    state: str
    transition: str
    reason: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of all walks."""

    workflow: str
    walks: int
    steps: int
    seed: int
    ok: bool
    states: dict[str, int]
    """How often each state was entered."""
    endings: dict[str, int]
    """The number of walks by how they ended; `open` walks reached the limit of decisions."""
    never_reached: list[str]
    unreachable: list[str]
    """States that no transition leads to, even if all guards held."""
    never_taken: list[Untaken]
    dead_ends: list[Trouble]
    chain_failures: list[Trouble]


def _refuse_call(*given: Any, **more: Any) -> Any:
    raise ExecutorFailed("A simulation does not call anything outside.")


ISOLATED: Final = ExecutorContext(
    connections=dict, egress=_refuse_call, invoke=_refuse_call, call_upstream=_refuse_call
)
"""The context to compile a definition in that is not going to run."""


def simulate(definition: Definition, *, walks: int = WALKS, steps: int = STEPS, seed: int = 0) -> Report:
    """Walk through a definition `walks` times, with at most `steps` decisions each."""
    simulation = Simulation(definition, seed)
    for number in range(1, walks + 1):
        simulation.walk(number, steps)
    return simulation.report(walks, steps)


class Simulation:
    """The walks through one definition, and what they found so far."""

    def __init__(self, definition: Definition, seed: int) -> None:
        self._definition = definition
        self._seed = seed
        self._random = Random(seed)  # noqa: S311  # nothing secret depends on it
        self._interests = Interests(definition)
        self._cast = _Cast(definition)
        self._states: Counter[str] = Counter()
        self._taken: Counter[tuple[str, str]] = Counter()
        self._endings: Counter[str] = Counter()
        self._refused: dict[tuple[str, str], str] = {}
        self._dead_ends: dict[str, Trouble] = {}
        self._failures: dict[str, Trouble] = {}
        self._trail: list[Data] = []

    def walk(self, number: int, steps: int) -> None:
        """Walk once, from the start."""
        self._trail = []
        given = self._interests.sample_object(self._definition.input_schema, "input", self._random)
        owner = self._cast.sample(self._random)
        instance, _ = transitions.create_instance(self._definition, given or {}, owner, "wf_simulated")
        self._states[instance.state.name] += 1
        for _ in range(steps):
            instance, reason = self._follow_chain(instance)
            if reason:
                self._note(self._failures, instance, number, [reason])
                self._endings["chain_failed"] += 1
                return
            if instance.is_over:
                self._endings[instance.body.outcome] += 1
                return
            # A shorter way to a known dead end is worth many more tries, a longer one is not.
            known = self._dead_ends.get(instance.state.name)
            last_tries = _MAX_LAST_TRIES if known is None or len(self._trail) < len(known.steps) else 0
            moved = (
                self._time_out(instance, _TIMEOUT_RATE)
                or self._decide(instance, _MAX_TRIES)
                or self._time_out(instance, 1.0)
                or self._decide(instance, last_tries)
            )
            if moved is None:
                name = instance.state.name
                moves = [plan.name for plan in _open_transitions(instance)]
                reasons = [f"{move}: {self._refused.get((name, move), 'it cannot be taken')}" for move in moves]
                reasons = reasons or [f"No transition out of {name} can be taken by a caller."]
                self._note(self._dead_ends, instance, number, reasons)
                self._endings["dead_end"] += 1
                return
            instance = moved
        self._endings["open"] += 1

    def _note(self, where: dict[str, Trouble], instance: Instance, number: int, reasons: list[str]) -> None:
        """Keep the shortest way to a trouble."""
        name, body = instance.state.name, instance.body
        known = where.get(name)
        if known is None or len(self._trail) < len(known.steps):
            where[name] = Trouble(name, reasons, body.context, number, body.input, list(self._trail))

    def _follow_chain(self, instance: Instance) -> tuple[Instance, str]:
        """Follow the chain until a caller has to decide; the text is why it stopped earlier, or empty."""
        hops = 0
        while instance.body.pending and not instance.is_over:
            by = self._cast.complete
            if instance.body.pending == "enter":
                instance = self._take(instance, ENTER, {}, by, chained=True)
                continue
            if hops >= self._definition.max_chain_depth:
                return instance, f"The chain stopped after {hops} transitions, the limit that maxChainDepth sets."
            move = choose_chained(instance, by)
            if isinstance(move, dict):
                return instance, str(move["message"])
            instance = self._take(instance, move, {}, by, chained=True)
            hops += 1
        return instance, ""

    def _time_out(self, instance: Instance, rate: float) -> Instance | None:
        leads = self._definition.model.on_timeout
        if leads is None or (rate < 1 and self._random.random() >= rate):
            return None
        self._record_move(instance, TIMEOUT, leads.target)
        return transitions.interrupt(instance, leads.target, TIMEOUT, "", "timed_out", 0.0).instance

    def _decide(self, instance: Instance, tries: int) -> Instance | None:
        """The instance after a caller took a transition; None if no transition could be taken."""
        plans = _open_transitions(instance)
        self._random.shuffle(plans)
        if self._random.random() < 0.5:  # prefer what was taken least, without repeating the same order each time
            plans.sort(key=lambda plan: self._taken[instance.state.name, plan.name])
        for plan in plans:
            for attempt in range(tries):
                by = self._cast.complete if attempt == 0 else self._cast.sample(self._random)
                try:
                    arguments = self._sample_arguments(instance, plan, by)
                except WorkflowRefused as refused:
                    self._refused[instance.state.name, plan.name] = refused.message
                    continue
                return self._take(instance, plan.name, arguments, by)
        return None

    def _sample_arguments(self, instance: Instance, plan: TransitionPlan, by: Principal) -> Data:
        """Arguments with which a caller may take a transition; raises `WorkflowRefused` if it may not."""
        transitions.find_legal_transition(instance, instance.version, plan.name, by)
        root = own_root("arguments", instance.state.name, plan.name)
        sampled = self._interests.sample_object(plan.model.input_schema, root, self._random)
        if sampled is None:
            raise WorkflowRefused(f"No arguments were found that match the schema of {plan.name}.")
        return transitions.check_arguments(instance, plan, by, sampled)

    def _take(
        self, instance: Instance, move: str, arguments: Data, by: Principal, *, chained: bool = False
    ) -> Instance:
        """The instance after a move with a sampled output; unchanged if the approvers reject the move."""
        action = instance.state.actions[move]
        pending_move = PendingMove(kind="executing", move=move, by=by, key="", arguments=arguments, chained=chained)
        if action.human is not None:
            if self._random.random() < _REJECTION_RATE:
                self._trail.append({"transition": move, "from": instance.state.name, "outcome": "rejected"})
                return instance
            pending_move = msgspec.structs.replace(pending_move, approval=_approve(action.human))
        output = self._sample_output(instance, move, action)
        proof = None if action.runs is None and action.child is None else self._cast.find_proof(instance, move)
        after = transitions.apply_transition(instance, pending_move, output, 0.0, proof).instance
        self._record_move(instance, move, after.state.name, arguments)
        return after

    def _record_move(self, instance: Instance, move: str, target: str, arguments: Data | None = None) -> None:
        step: Data = {"transition": move, "from": instance.state.name, "to": target}
        self._trail.append({**step, "arguments": arguments} if arguments else step)
        self._taken[instance.state.name, move] += 1
        if move != ENTER:
            self._states[target] += 1

    def _sample_output(self, instance: Instance, move: str, action: Action) -> Any:
        """An output that the executor could have."""
        if action.is_pure:
            return {} if action.kind == "noop" else None
        sampled = self._interests.sample(own_root("output", instance.state.name, move), self._random)
        if action.kind == "step":
            step = self._definition.model.steps[self._definition.names.index(instance.state.name)]
            branch = self._random.choice([ON_SUCCESS, ON_ERROR, *(route.branch for route in step.routes)])
            failed = Done("failed", None, ON_ERROR, "simulated")
            return failed if branch == ON_ERROR else Done("succeeded", sampled, branch)
        fixed: Data = {}
        if action.human is not None:
            fixed = {"requestId": "ap_simulated", "queue": action.human.queue, "status": "approved", "approved": True}
        elif action.child is not None:
            fixed = {"workflowId": "wf_child", "outcome": "succeeded"}
        return {**sampled, **fixed} if isinstance(sampled, dict) else fixed or sampled

    def report(self, walks: int, steps: int) -> Report:
        """The result of the walks so far."""
        definition = self._definition
        reachable = _reachable(definition)
        never_reached = [name for name in definition.names if name in reachable and not self._states[name]]
        return Report(
            workflow=definition.id,
            walks=walks,
            steps=steps,
            seed=self._seed,
            ok=not (never_reached or self._dead_ends or self._failures),
            states={name: self._states[name] for name in definition.names},
            endings=dict(sorted(self._endings.items())),
            never_reached=never_reached,
            unreachable=[name for name in definition.names if name not in reachable],
            never_taken=[
                Untaken(name, move, self._refused.get((name, move), ""))
                for name in definition.names
                for move in definition.states[name].transitions
                if name in reachable and not self._taken[name, move]
            ],
            dead_ends=list(self._dead_ends.values()),
            chain_failures=list(self._failures.values()),
        )


class _Cast:
    """The callers of a simulation, and the evidence that their moves leave."""

    def __init__(self, definition: Definition) -> None:
        roles, permissions = {HUMAN, SYSTEM}, set[str]()
        for name in definition.names:
            for transition in definition.states[name].model.transitions.values():
                for guard in (*transition.guards, *(branch.when for branch in transition.branches)):
                    found = list(_possessions(guard))
                    roles |= {one.name for one in found if one.what == "role"}
                    permissions |= {one.name for one in found if one.what == "permission"}
        self._roles, self._permissions = sorted(roles), sorted(permissions)
        self.complete = Principal("ann", tuple(self._roles), tuple(self._permissions))
        self._proofs: dict[tuple[str, str], str | None] = {}

    def sample(self, random: Random) -> Principal:
        """A caller with some of the roles and permissions that the definition names."""
        roles = tuple(role for role in self._roles if random.random() < 0.6)
        permissions = tuple(one for one in self._permissions if random.random() < 0.6)
        return Principal(random.choice(_PEOPLE), roles, permissions)

    def find_proof(self, instance: Instance, move: str) -> str | None:
        """The kind of evidence that the executor of a move leaves."""
        place = (instance.state.name, move)
        if place not in self._proofs:
            state = instance.state.model
            model = state.on_enter if move == ENTER else state.transitions.get(move)
            executor: ExecutorModel | None = None if model is None else model.executor
            self._proofs[place] = None if executor is None else build(executor, ISOLATED).evidence
        return self._proofs[place]


def _possessions(guard: GuardModel) -> Iterator[Has]:
    """The roles and permissions that a guard and those nested in it ask for."""
    for _, inner in nested_in(guard, GuardModel):
        yield from _possessions(inner)
    with suppress(TooManyWays):
        yield from (fact.atom for way in ways_of(guard, True) for fact in way if isinstance(fact.atom, Has))


def _open_transitions(instance: Instance) -> list[TransitionPlan]:
    """The transitions that a caller could take."""
    return [plan for plan in instance.state.transitions.values() if plan.model.actor != "deterministic"]


def _approve(human: Human) -> Approval:
    """An approval by as many people as it needs."""
    people = [f"{_PEOPLE[place % len(_PEOPLE)]}{place // len(_PEOPLE) or ''}" for place in range(human.approvals)]
    return Approval(
        id="ap_simulated",
        role=human.role,
        queue=human.queue,
        needed=human.approvals,
        prompt=human.prompt or "",
        presents=None,
        digest="",
        requested_at=0.0,
        expires_at=0.0,
        given=[{"by": person, "at": 0.0, "reason": "", "via": "simulation"} for person in people],
    )


def _reachable(definition: Definition) -> set[str]:
    """The states that a path of transitions, branches and the timeout leads to."""
    leads = definition.model.on_timeout
    starts = [definition.initial, *([leads.target] if leads is not None else [])]
    plans = [(name, plan) for name in definition.names for plan in definition.states[name].transitions.values()]
    return find_reachable(starts, group((name, target) for name, plan in plans for target in plan.targets))
