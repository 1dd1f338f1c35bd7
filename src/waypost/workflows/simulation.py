"""Simulation: random walks through a workflow, to find the states that are never reached and those that cannot be left.

Guards, branches, schemas, chains and mappings are the real ones. Nothing outside is called: the outputs of executors
are sampled (`samples`), approvers decide at random, and callers have random roles of those that the definition names.
The same seed gives the same walks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any, Final

import msgspec

from waypost.capabilities.principals import Principal
from waypost.errors import ExecutorFailed, WorkflowRefused
from waypost.kinds import ExecutorModel, GuardModel, nested_in
from waypost.workflows import transitions
from waypost.workflows.definitions import ENTER, TIMEOUT, Action, Definition, TransitionPlan
from waypost.workflows.executors import build
from waypost.workflows.executors.human import Human
from waypost.workflows.executors.kind import ExecutorContext
from waypost.workflows.guards.kind import Has, TooManyWays, ways_of
from waypost.workflows.instance import HUMAN, SYSTEM, Approval, Instance, PendingMove
from waypost.workflows.samples import Interests, own_root
from waypost.workflows.steps import ON_ERROR, ON_SUCCESS, Done
from waypost.workflows.transitions import choose_chained

WALKS: Final = 200
STEPS: Final = 50
_MAX_TRIES: Final = 12
"""How often a transition is tried with other arguments before the next transition is tried."""
_MAX_LAST_TRIES: Final = 300
"""How often each transition is tried before a state counts as a dead end."""
_REJECTION_RATE: Final = 0.25
_TIMEOUT_RATE: Final = 0.03
_PEOPLE: Final = ("ann", "bob", "cid", "dot")

Data = dict[str, Any]


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

    def __init__(self, definition: Definition, seed: int = 0) -> None:
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
        proof = None if action.runs is None else self._cast.find_proof(instance, move)
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
            return self._sample_step(instance, sampled)
        fixed: Data = {}
        if action.human is not None:
            fixed = {"requestId": "ap_simulated", "queue": action.human.queue, "status": "approved", "approved": True}
        elif action.child is not None:
            fixed = {"workflowId": "wf_child", "outcome": "succeeded"}
        return {**sampled, **fixed} if isinstance(sampled, dict) else fixed or sampled

    def _sample_step(self, instance: Instance, output: Any) -> Done:
        step = self._definition.model.steps[self._definition.names.index(instance.state.name)]
        branch = self._random.choice([ON_SUCCESS, ON_ERROR, *(route.branch for route in step.routes)])
        return Done("failed", None, ON_ERROR, "simulated") if branch == ON_ERROR else Done("succeeded", output, branch)

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
                for move in definition.state(name).transitions
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
            for transition in definition.state(name).model.transitions.values():
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
    waiting = [definition.initial, *([leads.target] if leads is not None else [])]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for plan in definition.state(name).transitions.values():
            waiting += [plan.model.target, *(target for _, target in plan.branches)]
    return found
