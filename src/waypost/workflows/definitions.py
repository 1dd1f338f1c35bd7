"""Workflow definitions: resolved, compiled once, looked up by id, and pinned by digest for running instances.

Resolving replaces the names of entries of `capabilities` by the entries, so that a workflow holds everything it runs.
An instance keeps the definition that it was started with, even when the configuration changes; the library loads
pinned definitions from the store by their digest.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from waypost.capabilities.schemas.validators import Validator
from waypost.config import models as models
from waypost.config.findings import quoted
from waypost.config.models import Capability, ExpandedCapability, ExpandedWorkflow, State, Transition, Workflow
from waypost.config.nodes import escape, expand_data
from waypost.errors import DefinitionError, ExecutorFailed, StaleVersion, StoreDamaged
from waypost.kinds import ExecutorModel, GuardModel, convert
from waypost.stores.instances import PROXY as PROXY
from waypost.stores.store import Store
from waypost.suggestions import did_you_mean, find_nearest
from waypost.workflows.executors import is_idempotent, supervise, supervise_fallbacks
from waypost.workflows.executors.capability import CapabilityCall
from waypost.workflows.executors.human import Human
from waypost.workflows.executors.kind import (
    ApprovalPlan,
    ChildPlan,
    Executor,
    ExecutorContext,
    NoWork,
    Run,
    kind_of,
    with_nested,
)
from waypost.workflows.executors.reliability import Supervised
from waypost.workflows.guards import CompiledGuard, compile_guard, compile_guards, record_of
from waypost.workflows.guards.evidence import EvidenceGuard
from waypost.workflows.guards.kind import Lack
from waypost.workflows.scope import GUARD_ROOTS, Scope, Template, compile_mapping, compile_template
from waypost.workflows.steps import COMPLETED, FAILED, RUN, Walk, build_step, input_schema, leads

Capabilities = Mapping[str, Capability]
_Item = TypeVar("_Item")


def resolve(workflow: Workflow, capabilities: Capabilities) -> Workflow:
    """The workflow with the entries of `capabilities` in place of their names.

    On a transition the guards of all entries it runs come before its own, and the entry it names directly gives it a
    schema and a reliability where it has none. A name without an entry stays: it calls a tool of the hub. Raises
    `DefinitionError` for an entry that cannot be used. Where variables were replaced in the workflow or in an entry,
    the result also has its texts as they are written.
    """
    resolved = _resolve(workflow, capabilities)
    if isinstance(workflow, ExpandedWorkflow):
        written = workflow.written
    elif any(isinstance(entry, ExpandedCapability) for entry in capabilities.values()):
        written = convert(escape(msgspec.to_builtins(workflow)), Workflow)
    else:
        return resolved
    blocks = {
        name: entry.written if isinstance(entry, ExpandedCapability) else entry for name, entry in capabilities.items()
    }
    return expanded(resolved, _resolve(written, blocks))


def expanded(model: Workflow, written: Workflow) -> Workflow:
    """A workflow that also has its texts as they are written, if these are different."""
    fields: dict[str, Any] = {name: getattr(model, name) for name in Workflow.__struct_fields__}
    return model if written == model else ExpandedWorkflow(**fields, written=written)


def as_written(model: Workflow) -> Workflow:
    """A workflow with variables in place of their values: what may be stored and shown."""
    return model.written if isinstance(model, ExpandedWorkflow) else model


def expand(written: Workflow, unset: set[str]) -> Workflow:
    """A workflow with the values that its variables have now; those that are not set are added to `unset`."""
    return expanded(convert(expand_data(msgspec.to_builtins(written), os.environ, unset), Workflow), written)


def _resolve(workflow: Workflow, capabilities: Capabilities) -> Workflow:
    states = {name: _resolve_state(state, capabilities) for name, state in workflow.states.items()}
    return replace(workflow, states=states)


def resolve_capability(name: str, capabilities: Capabilities) -> Capability:
    """An entry merged with what it wraps and names; it has an executor and wraps nothing."""
    return _resolve_entry(name, capabilities, ())


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: a similar name, or the known ones."""
    names = sorted(known)
    if hint := did_you_mean(name, names, quote=quoted):
        return hint
    if not names:
        return "there are none"
    shown = ", ".join(quoted(other) for other in names[:10])
    return f"there is {shown}" + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _resolve_state(state: State, capabilities: Capabilities) -> State:
    transitions = {
        name: _resolve_transition(transition, capabilities) for name, transition in state.transitions.items()
    }
    entering = state.on_enter
    if entering is not None:
        runs = _resolve_executor(entering.executor, entering.reliability, capabilities, ())
        if runs.guards:
            raise DefinitionError(
                "`onEnter` names a capability that has guards, and nothing checks them there; run it in a transition"
            )
        entering = replace(entering, executor=runs.executor, reliability=runs.reliability)
    return replace(state, transitions=transitions, on_enter=entering)


def _resolve_transition(transition: Transition, capabilities: Capabilities) -> Transition:
    if transition.executor is None:
        return transition
    runs = _resolve_executor(transition.executor, transition.reliability, capabilities, ())
    return replace(
        transition,
        executor=runs.executor,
        reliability=runs.reliability,
        guards=[*runs.guards, *transition.guards],
        input_schema=runs.input_schema if transition.input_schema is None else transition.input_schema,
    )


class _Resolved(Struct, frozen=True):
    """An executor without names of entries, with the guards and the schema of its entries."""

    executor: ExecutorModel
    reliability: models.Reliability | None
    guards: list[GuardModel]
    input_schema: models.Schema | None


def _resolve_executor(
    executor: ExecutorModel, reliability: models.Reliability | None, capabilities: Capabilities, behind: tuple[str, ...]
) -> _Resolved:
    """Resolve an executor; `behind` are the entries that it is nested in."""
    guards: list[GuardModel] = []
    schema: models.Schema | None = None
    if isinstance(executor, CapabilityCall) and executor.capability in capabilities:
        entry = _inline_entry(executor, capabilities, behind)
        assert entry.executor is not None
        inlined, schema = entry.executor, entry.input_schema
        guards += entry.guards
        reliability = reliability or entry.reliability
    else:
        inlined = _inline(executor, capabilities, behind, guards)
    if reliability is not None and reliability.fallback is not None:
        others = [_inline(other, capabilities, behind, guards) for other in reliability.fallback.executors]
        reliability = replace(reliability, fallback=replace(reliability.fallback, executors=others))
    return _Resolved(inlined, reliability, _union(guards, []), schema)


def _inline(
    executor: ExecutorModel, capabilities: Capabilities, behind: tuple[str, ...], guards: list[GuardModel]
) -> ExecutorModel:
    """The executor with entries in place of their names; their guards are added to `guards`."""
    if isinstance(executor, CapabilityCall) and executor.capability in capabilities:
        entry = _inline_entry(executor, capabilities, behind)
        assert entry.executor is not None
        guards += entry.guards
        return entry.executor
    return with_nested(executor, lambda inner: _inline(inner, capabilities, behind, guards))


def _inline_entry(call: CapabilityCall, capabilities: Capabilities, behind: tuple[str, ...]) -> Capability:
    if call.arguments is not None:
        raise DefinitionError(
            f"{quoted(call.capability)} is an entry of `capabilities`, so it takes no `arguments` here; "
            "put them into the capability's own executor"
        )
    return _resolve_entry(call.capability, capabilities, behind)


def _resolve_entry(name: str, capabilities: Capabilities, behind: tuple[str, ...]) -> Capability:
    flat = _flatten(name, capabilities, behind)
    assert flat.executor is not None
    runs = _resolve_executor(flat.executor, flat.reliability, capabilities, (*behind, name))
    return replace(
        flat,
        executor=runs.executor,
        reliability=runs.reliability,
        guards=_union(runs.guards, flat.guards),
        input_schema=runs.input_schema if flat.input_schema is None else flat.input_schema,
    )


def _flatten(name: str, capabilities: Capabilities, behind: tuple[str, ...]) -> Capability:
    """An entry merged with what it wraps; its executor is not resolved yet."""
    if name in behind:
        ring = " → ".join(quoted(part) for part in (*behind[behind.index(name) :], name))
        raise DefinitionError(f"capabilities contain each other in a cycle, {ring}; give one its own executor")
    own = capabilities.get(name)
    if own is None:
        raise DefinitionError(f"there is no capability {quoted(name)}; {nearest(name, capabilities)}")
    if own.wraps is None:
        if own.executor is None:
            raise DefinitionError(f"the capability {quoted(name)} runs nothing; give it `executor` or `wraps`")
        return own
    inner = _flatten(own.wraps, capabilities, (*behind, name))
    return replace(
        own,
        wraps=None,
        title=own.title or inner.title,
        description=own.description or inner.description,
        tags=_union(inner.tags, own.tags),
        examples=_union(inner.examples, own.examples),
        input_schema=inner.input_schema if own.input_schema is None else own.input_schema,
        executor=own.executor or inner.executor,
        guards=_union(inner.guards, own.guards),
        reliability=own.reliability or inner.reliability,
    )


def _union(first: list[_Item], second: list[_Item]) -> list[_Item]:
    found: list[_Item] = []
    for item in (*first, *second):
        if item not in found:
            found.append(item)
    return found


ENTER: Final = "$enter"
RESUME: Final = "$resume"
TIMEOUT: Final = "$timeout"
CANCEL: Final = "$cancel"
START: Final = "$start"
WAITING: Final = "waiting_for_action"
Pending = Literal["", "enter", "chain"]
# Sorted keys: a digest must not depend on the order in which a file or a client writes them.
canonical: Final = msgspec.json.Encoder(order="deterministic").encode
KEY: Final = "{workflowId}.{transition}.{correlationId}"
_STEP_ENDS: Final = {
    COMPLETED: models.State(terminal=True, outcome="succeeded"),
    FAILED: models.State(terminal=True, outcome="failed"),
}
"""The terminal states of a workflow of steps."""
_MAX_PINNED: Final = 1000
CANONICAL: Final = "workflow:"
"""The prefix of the tool name of a workflow; the rest is the id of its definition."""


def digest(value: Any) -> str:
    """The SHA-256 of a value as JSON with sorted keys."""
    return hashlib.sha256(canonical(value)).hexdigest()


def with_defaults(schema: dict[str, Any] | None, value: Any) -> Any:
    """A copy of a value with the defaults of its schema filled in, at any depth."""
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


@dataclass(frozen=True, slots=True)
class Action:
    """What a move does besides changing the state."""

    kind: str
    output: Callable[[Scope], dict[str, Any]] | None
    """What it writes into the context, all computed from the scope before the move."""
    runs: Supervised | None = None
    human: Human | None = None
    presents: Template | None = None
    child: ChildPlan | None = None
    retry: models.Retry = field(default_factory=models.Retry)
    """How often a child is started."""
    fallback: Supervised | None = None
    """What runs after a child that failed."""
    idempotent: bool = True
    evidence: tuple[str, ...] = ()
    key: str = KEY
    """The idempotency key, before its words are filled in."""
    is_pure: bool = field(init=False)
    """Whether it has no effect outside of the instance."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_pure", self.runs is None and self.human is None and self.child is None)


@dataclass(frozen=True, slots=True)
class TransitionPlan:
    """A compiled transition."""

    name: str
    model: models.Transition
    guards: CompiledGuard
    guard_models: tuple[GuardModel, ...]
    """Its guards, with the evidence that it requires as the last one."""
    guard_texts: tuple[str, ...]
    action: Action
    schema: Validator | None
    prefill: Template | None
    branches: tuple[tuple[CompiledGuard, str], ...]
    link: dict[str, Any]
    """The constant part of its link."""

    @property
    def title(self) -> str:
        """The name shown to people and agents."""
        return self.model.title or self.name

    @property
    def targets(self) -> tuple[str, ...]:
        """The states that it may lead to."""
        return (self.model.target, *(target for _, target in self.branches))


@dataclass(frozen=True, slots=True)
class StatePlan:
    """A compiled state."""

    name: str
    model: models.State
    transitions: dict[str, TransitionPlan]
    enter: Action | None
    chained: tuple[TransitionPlan, ...]
    """The deterministic transitions, one of which is taken automatically; empty where a caller decides."""
    guidance: dict[str, str] | None
    links_by_guards: bool
    actions: dict[str, Action] = field(init=False)
    """What each move out of it does; the entry action is under `$enter`."""
    status: str = field(init=False)
    """The status of an instance that enters it."""
    pending: tuple[Pending, Pending] = field(init=False)
    """What continues without a caller: after the entry action, and when the state is entered."""

    def __post_init__(self) -> None:
        chains: Pending = "chain" if self.chained and not self.model.terminal else ""
        enters: Pending = "enter" if self.enter is not None and not self.model.terminal else chains
        object.__setattr__(self, "pending", (chains, enters))
        actions = {name: plan.action for name, plan in self.transitions.items()}
        object.__setattr__(self, "actions", actions | ({} if self.enter is None else {ENTER: self.enter}))
        status = (self.model.outcome or "succeeded") if self.model.terminal else WAITING
        object.__setattr__(self, "status", status)


class _States(dict[str, StatePlan]):
    """States by name, each compiled when it is first looked up."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition

    # At first use: an old instance needs few states of its pinned definition.
    def __missing__(self, name: str) -> StatePlan:
        definition = self._definition
        if definition.walk is not None:
            found = _plan_step(definition, definition.walk, name)
        else:
            found = _plan_state(definition, name, definition.model.states[name])
        self[name] = found
        return found


class Definition:
    """A compiled workflow; states are compiled when first used, or all by `compile`."""

    def __init__(
        self,
        id: str,
        model: models.Workflow,
        context: ExecutorContext,
        *,
        digest: str | None = None,
        unset: Collection[str] = (),
    ) -> None:
        self.walk = Walk(model.steps) if model.steps else None
        initial = self.walk.names[0] if self.walk is not None else model.initial_state
        if not initial or (self.walk is None and initial not in model.states):
            raise DefinitionError(f"Workflow {id} has no initial state.")
        self.id = id
        self.model = model
        self.context = context
        self.title = model.title or id
        self.tool_name = tool_name(id)
        self.initial = initial
        self.input_schema = input_schema(model)
        self.schema = None if self.input_schema is None else Validator(self.input_schema)
        self.unset = sorted(unset)
        """The variables that its texts refer to and that do not exist; nothing of it runs then."""
        self._digest = digest
        self.states: Mapping[str, StatePlan] = _States(self)
        """Its states by name."""

    @cached_property
    def digest(self) -> str:
        """The digest that instances are pinned to."""
        pinned = self.pinned
        # A text with a variable must not share its digest with the same text as a literal: only the former is expanded.
        return self._digest or digest([self.id, pinned.model, *(["variables"] if pinned.variables else [])])

    @property
    def pinned(self) -> Pinned:
        """What is stored: a variable, never its value, so that no secret gets into the store."""
        return Pinned(self.id, as_written(self.model), isinstance(self.model, ExpandedWorkflow))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its states."""
        return tuple(self.model.states) if self.walk is None else (*self.walk.names, COMPLETED, FAILED)

    @property
    def max_chain_depth(self) -> int:
        """The largest number of automatic transitions in a row; no step is run twice."""
        return len(self.model.steps) + 1 if self.model.steps else self.model.max_chain_depth

    def compile(self) -> None:
        """Compile all states; raises `DefinitionError` before the first instance starts."""
        targets = [
            (f"{name}.{plan.name}", target)
            for name in self.names
            for plan in self.states[name].transitions.values()
            for target in plan.targets
        ]
        if self.model.on_timeout is not None:
            targets.append(("onTimeout", self.model.on_timeout.target))
        for where, target in targets:
            if target not in self.names:
                raise DefinitionError(f"Workflow {self.id}, {where}: there is no state {target!r}.")


def _plan_state(definition: Definition, name: str, model: models.State) -> StatePlan:
    transitions = {
        key: _plan_transition(definition, name, key, transition) for key, transition in model.transitions.items()
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
    """The state of a step, or one of the two terminal states."""
    if name in _STEP_ENDS:
        return StatePlan(name, _STEP_ENDS[name], {}, None, (), None, False)
    place = walk.names.index(name) + 1
    step = walk.steps[place - 1]
    following, *others = walk.targets(place)
    action = Action(
        "step",
        partial(walk.after, place),
        runs=Supervised(
            _unset_executor(definition) if definition.unset else build_step(walk, place, definition.context)
        ),
        idempotent=step.idempotent,
    )
    plan = TransitionPlan(
        RUN,
        models.Transition(target=following, actor="deterministic", title=step.skill or step.capability),
        compile_guards([]),
        (),
        (),
        action,
        None,
        None,
        tuple((leads(walk, place, target), target) for target in others),
        {"rel": "transition", "title": RUN, "method": "workflow.submit", "actor": "deterministic"},
    )
    return StatePlan(name, models.State(), {RUN: plan}, None, (plan,), None, False)


def _plan_transition(definition: Definition, state: str, name: str, model: models.Transition) -> TransitionPlan:
    needs = model.evidence.requires if model.evidence is not None else []
    proofs = [EvidenceGuard(requires=needs)] if needs else []
    # Histories show guards as they are written: a variable in one may stand for a secret.
    written = as_written(definition.model).states[state].transitions[name].guards
    guards: list[GuardModel] = [*model.guards, *proofs]
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
        _unset_guard(definition) if definition.unset else compile_guards(guards),
        tuple(guards),
        ("the variables are set",) if definition.unset else tuple(map(record_of, [*written, *proofs])),
        _plan_action(definition, f"{state}.{name}", model),
        None if model.input_schema is None else Validator(model.input_schema),
        compile_template(model.prefill, GUARD_ROOTS) if model.prefill else None,
        tuple((compile_guard(branch.when), branch.target) for branch in model.branches),
        link,
    )


def _plan_action(definition: Definition, where: str, model: models.Transition | models.OnEnter) -> Action:
    output = compile_mapping(model.output).apply if model.output else None
    executor, reliability = model.executor, model.reliability
    fallback = reliability and reliability.fallback
    others = fallback.executors if fallback else []
    provided = tuple(model.evidence.provides) if isinstance(model, models.Transition) and model.evidence else ()
    if executor is None:
        return Action("none", output, evidence=provided)
    kind = kind_of(executor)
    match kind.plan(executor) if kind.plan is not None else None:
        case ApprovalPlan(human, presents, evidence):
            return Action(kind.name, output, human=human, presents=presents, evidence=(*provided, evidence))
        case ChildPlan() as child:
            return Action(
                kind.name,
                output,
                child=child,
                retry=(reliability and reliability.retry) or models.Retry(),
                fallback=_supervise_fallbacks(definition, where, reliability),
                idempotent=all(map(is_idempotent, others)),
                evidence=provided,
            )
        case NoWork() if reliability is None:
            return Action(kind.name, output, evidence=provided)
    try:
        if definition.unset:
            runs = Supervised(_unset_executor(definition))
        else:
            runs = supervise(executor, reliability, definition.context)
    except DefinitionError as error:
        raise DefinitionError(f"Workflow {definition.id}, {where}: {error.message}") from None
    # Each of them may be the one that ran when the process ended.
    candidates = (executor, *others)
    return Action(
        kind.name,
        output,
        runs=runs,
        idempotent=all(map(is_idempotent, candidates)),
        evidence=provided,
        key=executor.idempotency_key if isinstance(executor.idempotency_key, str) else KEY,
    )


def _supervise_fallbacks(
    definition: Definition, where: str, reliability: models.Reliability | None
) -> Supervised | None:
    try:
        return None if definition.unset else supervise_fallbacks(reliability, definition.context)
    except DefinitionError as error:
        raise DefinitionError(f"Workflow {definition.id}, {where}: {error.message}") from None


def _explain_unset(definition: Definition) -> str:
    names = ", ".join(definition.unset)
    return f"the definition refers to variables that are not set: {names}; set them and restart the hub"


def _unset_executor(definition: Definition) -> Executor:
    """Stands for the executors of a pinned definition whose variables do not exist any more."""
    message = _explain_unset(definition)

    async def fail(run: Run) -> Any:
        raise ExecutorFailed(f"{message[0].upper()}{message[1:]}.")

    return Executor("none", fail)


def _unset_guard(definition: Definition) -> CompiledGuard:
    """Stands for the guards of such a definition.

    A text with an unknown part could mean anything, so that even a guard that only compares with it must not hold.
    """
    data = {"kind": "variables"}
    return CompiledGuard(data, lambda scope: False, lambda scope: [Lack(data, _explain_unset(definition))])


def tool_name(definition_id: str) -> str:
    """The name of the tool that runs a workflow."""
    return f"{CANONICAL}{definition_id}"


class Pinned(msgspec.Struct, frozen=True):
    """A definition in the store."""

    id: str
    model: Workflow
    variables: bool = False
    """Whether its texts refer to variables of the environment."""


class Library:
    """All definitions of a hub."""

    def __init__(self, store: Store, context: ExecutorContext) -> None:
        self._store = store
        self.context = context
        self._current: dict[str, Definition] = {}
        self._pinned: OrderedDict[str, Definition] = OrderedDict()
        self._stored: set[str] = set()

    def compile_all(self, models: Mapping[str, Workflow]) -> dict[str, Definition]:
        """Compile models, reusing definitions that have not changed; raises `DefinitionError`."""
        compiled = {}
        for name, model in models.items():
            known = self._current.get(name)
            compiled[name] = known if known is not None and known.model == model else self.compile(name, model)
        return compiled

    def replace(self, definitions: Mapping[str, Definition]) -> None:
        """Replace all definitions."""
        self._current = dict(definitions)

    def compile(self, name: str, model: Workflow) -> Definition:
        """Compile a model."""
        definition = Definition(name, model, self.context)
        definition.compile()
        return definition

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._current.values())

    def get(self, name: str) -> Definition | None:
        """The current definition of a name."""
        return self._current.get(name)

    def find_nearest(self, name: str) -> list[str]:
        """Return up to three names of definitions that are similar to an unknown one."""
        return find_nearest(name, self._current, limit=3, cutoff=0.5)

    async def pin(self, definition: Definition) -> None:
        """Store a definition, so that instances find it after it changed or was removed."""
        if definition.digest not in self._stored:
            with suppress(StaleVersion):  # it is there already, and its content cannot differ: its key is its digest
                await self._store.definitions.put(definition.digest, definition.pinned)
            self._stored.add(definition.digest)
        self._keep(definition)

    async def load_pinned(self, digest: str) -> Definition:
        """The definition that an instance started with."""
        found = self._pinned.get(digest)
        if found is not None:
            self._pinned.move_to_end(digest)
            return found
        document = await self._store.definitions.get(digest)
        if document is None:
            raise StoreDamaged(f"The definition {digest[:12]} that an instance started with is not in the store.")
        kept, unset = convert(document.value, Pinned), set[str]()
        model = kept.model
        if kept.variables:
            # With the values that the variables have now: a secret may have been replaced since.
            model = expand(model, unset)
        definition = Definition(kept.id, model, self.context, digest=digest, unset=unset)
        self._keep(definition)
        return definition

    def _keep(self, definition: Definition) -> None:
        self._pinned[definition.digest] = definition
        self._pinned.move_to_end(definition.digest)
        while len(self._pinned) > _MAX_PINNED:
            self._pinned.popitem(last=False)
