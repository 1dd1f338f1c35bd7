"""Workflow definitions: compiled once, looked up by id, and pinned by digest for running instances.

An instance keeps the definition that it was started with, even when the configuration changes; the library loads
pinned definitions from the store by their digest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec

from waypost.capabilities.schemas.validators import Validator
from waypost.config import models as models
from waypost.config.models import Workflow
from waypost.errors import DefinitionError, StaleVersion, StoreDamaged
from waypost.kinds import GuardModel, convert
from waypost.stores.store import Store
from waypost.suggestions import find_nearest
from waypost.workflows.executors import is_idempotent, supervise
from waypost.workflows.executors.human import Human
from waypost.workflows.executors.kind import ApprovalPlan, ChildPlan, ExecutorContext, NoWork, kind_of
from waypost.workflows.executors.reliability import Supervised
from waypost.workflows.guards import CompiledGuard, Guards, compile_guard, compile_guards, record_of
from waypost.workflows.guards.evidence import EvidenceGuard
from waypost.workflows.records import ENTER, digest
from waypost.workflows.scope import GUARD_ROOTS, OUTPUT_ROOTS, Scope, Template, compile_mapping, compile_template
from waypost.workflows.steps import COMPLETED, FAILED, RUN, Walk, Written, input_schema, leads, supervised_step

KEY: Final = "{workflowId}.{transition}.{correlationId}"
_STEP_ENDS: Final = {
    COMPLETED: models.State(terminal=True, outcome="succeeded"),
    FAILED: models.State(terminal=True, outcome="failed"),
}
"""The ends of a workflow of steps."""
_MOST_PINNED: Final = 1000
CANONICAL: Final = "workflow:"
"""What the name of a workflow's tool begins with; the rest is the id of its definition."""


def with_defaults(schema: dict[str, Any] | None, value: Any) -> Any:
    """The value with the defaults of its schema where it says nothing, at any depth; the value itself stays."""
    if not schema:
        return value
    if isinstance(value, dict):
        properties = schema.get("properties")
        return value if not isinstance(properties, dict) else _fill_defaults(properties, value)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        return [with_defaults(items, item) for item in value]
    return value


def _fill_defaults(properties: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    filled = dict(value)
    for name, schema in properties.items():
        if not isinstance(schema, dict):
            continue
        if name in filled:
            filled[name] = with_defaults(schema, filled[name])
        elif "default" in schema:
            filled[name] = with_defaults(schema, deepcopy(schema["default"]))
    return filled


class Writes(Protocol):
    """Says what a move writes into the context."""

    def apply(self, scope: Scope) -> dict[str, Any]:
        """What to write, all of it as the scope was before."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a move does beside moving."""

    kind: str
    output: Writes | None
    runs: Supervised | None = None
    human: Human | None = None
    presents: Template | None = None
    child: ChildPlan | None = None
    idempotent: bool = True
    evidence: tuple[str, ...] = ()
    key: str = KEY
    """The idempotency key, before its words are filled in."""

    @property
    def is_pure(self) -> bool:
        """Whether nothing outside can notice it."""
        return self.runs is None and self.human is None and self.child is None


@dataclass(frozen=True, slots=True)
class TransitionPlan:
    """A transition, ready to be taken."""

    name: str
    model: models.Transition
    guards: Guards
    guard_texts: tuple[str, ...]
    action: Action
    schema: Validator | None
    prefill: Template | None
    branches: tuple[tuple[CompiledGuard, str], ...]
    link: dict[str, Any]
    """The part of its link that is always the same."""

    @property
    def title(self) -> str:
        """The name shown to people and agents."""
        return self.model.title or self.name


@dataclass(frozen=True, slots=True)
class StatePlan:
    """A state, ready to be in."""

    name: str
    model: models.State
    transitions: dict[str, TransitionPlan]
    enter: Action | None
    chained: tuple[TransitionPlan, ...]
    """The transitions one of which is taken by itself; empty where a caller has to decide."""
    guidance: dict[str, str] | None
    links_by_guards: bool


class Definition:
    """A workflow that instances can run by."""

    def __init__(self, id: str, model: models.Workflow, context: ExecutorContext) -> None:
        self._walk = Walk(model.steps) if model.steps else None
        initial = self._walk.names[0] if self._walk is not None else model.initial_state
        if not initial or (self._walk is None and initial not in model.states):
            raise DefinitionError(f"Workflow {id} has no initial state.")
        self.id = id
        self.model = model
        self.context = context
        self.title = model.title or id
        self.initial = initial
        self.input_schema = input_schema(model)
        self.schema = None if self.input_schema is None else Validator(self.input_schema)
        self._states: dict[str, StatePlan] = {}

    @cached_property
    def digest(self) -> str:
        """The digest that instances are pinned to."""
        return digest([self.id, self.model])

    def state(self, name: str) -> StatePlan:
        """A state by its name."""
        found = self._states.get(name)
        if found is None:
            if self._walk is not None:
                found = _plan_step(self, self._walk, name)
            else:
                found = _plan_state(self, name, self.model.states[name])
            self._states[name] = found
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its states."""
        return tuple(self.model.states) if self._walk is None else (*self._walk.names, COMPLETED, FAILED)

    @property
    def max_chain_depth(self) -> int:
        """How many transitions are taken by themselves in a row; no step is run twice."""
        return len(self.model.steps) + 1 if self.model.steps else self.model.max_chain_depth

    def compile(self) -> None:
        """Make everything ready now, so that mistakes show before the first run."""
        for name in self.names:
            for plan in self.state(name).transitions.values():
                for target in (plan.model.target, *(target for _, target in plan.branches)):
                    self._check_target(f"{name}.{plan.name}", target)
        if self.model.on_timeout is not None:
            self._check_target("onTimeout", self.model.on_timeout.target)

    def _check_target(self, where: str, target: str) -> None:
        if target not in self.names:
            raise DefinitionError(f"Workflow {self.id}, {where}: there is no state {target!r}.")


def _plan_state(definition: Definition, name: str, model: models.State) -> StatePlan:
    transitions = {
        key: _plan_transition(definition, f"{name}.{key}", key, transition)
        for key, transition in model.transitions.items()
    }
    plans = tuple(transitions.values())
    chained = plans if all(plan.model.actor == "deterministic" for plan in plans) else ()
    guidance = {"goal": model.goal, "instructions": model.guidance}
    shown = {key: text for key, text in guidance.items() if text}
    return StatePlan(
        name,
        model,
        transitions,
        None if model.on_enter is None else _plan_action(definition, f"{name}.{ENTER}", model.on_enter),
        () if model.terminal else chained,
        shown or None,
        (model.link_filter or definition.model.link_filter) == "byGuards",
    )


def _plan_step(definition: Definition, walk: Walk, name: str) -> StatePlan:
    """The state that a step is, or one of the two ends."""
    if name in _STEP_ENDS:
        return StatePlan(name, _STEP_ENDS[name], {}, None, (), None, False)
    place = walk.names.index(name) + 1
    step = walk.steps[place - 1]
    following, *others = walk.targets(place)
    action = Action(
        "step",
        Written(walk, place),
        runs=supervised_step(walk, place, definition.context),
        idempotent=step.idempotent,
    )
    plan = TransitionPlan(
        RUN,
        models.Transition(target=following, actor="deterministic", title=step.skill or step.capability),
        compile_guards([]),
        (),
        action,
        None,
        None,
        tuple((leads(walk, place, target), target) for target in others),
        {"rel": "transition", "title": RUN, "method": "workflow.submit", "actor": "deterministic"},
    )
    return StatePlan(name, models.State(), {RUN: plan}, None, (plan,), None, False)


def _plan_transition(definition: Definition, where: str, name: str, model: models.Transition) -> TransitionPlan:
    guards: list[GuardModel] = list(model.guards)
    if model.evidence is not None and model.evidence.requires:
        guards.append(EvidenceGuard(requires=model.evidence.requires))
    link: dict[str, Any] = {"rel": "transition", "title": model.title or name, "method": "workflow.submit"}
    if model.description:
        link["description"] = model.description
    if model.actor != "agent":
        link["actor"] = model.actor
    if model.input_schema is not None:
        link["inputSchema"] = model.input_schema
    return TransitionPlan(
        name,
        model,
        compile_guards(guards),
        tuple(map(record_of, guards)),
        _plan_action(definition, where, model),
        None if model.input_schema is None else Validator(model.input_schema),
        compile_template(model.prefill, GUARD_ROOTS) if model.prefill else None,
        tuple((compile_guard(branch.when), branch.target) for branch in model.branches),
        link,
    )


def _plan_action(definition: Definition, where: str, model: models.Transition | models.OnEnter) -> Action:
    output = compile_mapping(model.output, OUTPUT_ROOTS) if model.output else None
    executor, reliability = model.executor, model.reliability
    provided = tuple(model.evidence.provides) if isinstance(model, models.Transition) and model.evidence else ()
    if executor is None:
        return Action("none", output, evidence=provided)
    kind = kind_of(executor)
    match kind.plan(executor) if kind.plan is not None else None:
        case ApprovalPlan(human, presents, evidence):
            return Action(kind.name, output, human=human, presents=presents, evidence=(*provided, evidence))
        case ChildPlan() as child:
            return Action(kind.name, output, child=child, evidence=(*provided, child.evidence))
        case NoWork() if reliability is None:
            return Action(kind.name, output, evidence=provided)
    try:
        runs = supervise(executor, reliability, definition.context)
    except DefinitionError as error:
        raise DefinitionError(f"Workflow {definition.id}, {where}: {error.message}") from None
    fallback = reliability.fallback if reliability is not None else None
    candidates = (executor, *(fallback.executors if fallback is not None else ()))
    return Action(
        kind.name,
        output,
        runs=runs,
        idempotent=all(map(is_idempotent, candidates)),
        evidence=provided,
        key=executor.idempotency_key if isinstance(executor.idempotency_key, str) else KEY,
    )


def tool_name(definition_id: str) -> str:
    """The name of the tool that runs a workflow."""
    return f"{CANONICAL}{definition_id}"


class Pinned(msgspec.Struct, frozen=True):
    """A definition as the store keeps it."""

    id: str
    model: Workflow


class Library:
    """All definitions of a hub."""

    def __init__(self, store: Store, surroundings: ExecutorContext) -> None:
        self._store = store
        self.surroundings = surroundings
        self._current: dict[str, Definition] = {}
        self._pinned: OrderedDict[str, Definition] = OrderedDict()
        self._stored: set[tuple[int, str]] = set()

    def compile_all(self, models: Mapping[str, Workflow]) -> dict[str, Definition]:
        """Definitions out of their models, those that stay the same as they are; a mistake is a `DefinitionError`."""
        compiled = {}
        for name, model in models.items():
            known = self._current.get(name)
            compiled[name] = known if known is not None and known.model == model else self.compiled(name, model)
        return compiled

    def replace(self, definitions: Mapping[str, Definition]) -> None:
        """Have exactly these definitions from now on."""
        self._current = dict(definitions)

    def compiled(self, name: str, model: Workflow) -> Definition:
        """A definition out of its model, ready to run."""
        definition = Definition(name, model, self.surroundings)
        definition.compile()
        return definition

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._current.values())

    def get(self, name: str) -> Definition | None:
        """The definition that would be started under a name."""
        return self._current.get(name)

    def find_nearest(self, name: str) -> list[str]:
        """Return up to three names of definitions that are similar to an unknown one."""
        return find_nearest(name, self._current, limit=3, cutoff=0.5)

    async def pin(self, definition: Definition) -> None:
        """Make sure that instances will find a definition again."""
        store = self._store
        place = (id(store), definition.digest)
        if place not in self._stored:
            with suppress(StaleVersion):
                await store.definitions.put(definition.digest, Pinned(definition.id, definition.model))
            self._stored.add(place)
        self._keep(definition)

    async def pinned(self, digest: str) -> Definition:
        """The definition that an instance started with."""
        found = self._pinned.get(digest)
        if found is not None:
            self._pinned.move_to_end(digest)
            return found
        document = await self._store.definitions.get(digest)
        if document is None:
            raise StoreDamaged(f"The definition {digest[:12]} that an instance started with is not in the store.")
        kept = convert(document.value, Pinned)
        definition = Definition(kept.id, kept.model, self.surroundings)
        self._keep(definition)
        return definition

    def _keep(self, definition: Definition) -> None:
        self._pinned[definition.digest] = definition
        self._pinned.move_to_end(definition.digest)
        while len(self._pinned) > _MOST_PINNED:
            self._pinned.popitem(last=False)
