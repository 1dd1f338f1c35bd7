"""Walking through a workflow at random, with nothing outside touched, to see where it leads and where it ends.

Guards, branches, schemas, chains and mappings are the real ones. What executors would give is made up, people approve
or reject by chance, and whoever acts has some of the roles that the definition knows. A seed makes it the same again.
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
_TRIES: Final = 12
"""How often a transition is tried with other arguments before another one is."""
_PERSISTENT: Final = 300
"""How often each is tried before a state counts as a dead end."""
_REJECTS: Final = 0.25
_TIMES_OUT: Final = 0.03
_PEOPLE: Final = ("ann", "bob", "cid", "dot")

Data = dict[str, Any]


class Trouble(msgspec.Struct, frozen=True, rename="camel"):
    """A place where a walk came to a stop, why, and how it got there."""

    state: str
    reasons: list[str]
    context: Data
    walk: int
    input: Data
    steps: list[Data]


class Untaken(msgspec.Struct, frozen=True, rename="camel"):
    """A transition that no walk took, and why not where it was tried."""

    state: str
    transition: str
    reason: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the walks found."""

    workflow: str
    walks: int
    steps: int
    seed: int
    ok: bool
    states: dict[str, int]
    """How often each state was come to."""
    endings: dict[str, int]
    """How many walks ended in which way; `open` are those that could have gone on."""
    never_reached: list[str]
    unreachable: list[str]
    """States that no transition leads to, whatever the guards say."""
    never_taken: list[Untaken]
    dead_ends: list[Trouble]
    chain_failures: list[Trouble]


async def _nothing(*given: Any, **more: Any) -> Any:
    raise ExecutorFailed("Nothing outside is touched here.")


def _nowhere(*given: Any) -> Any:
    raise ExecutorFailed("Nothing outside is touched here.")


ISOLATED: Final = ExecutorContext(connections=dict, egress=_nowhere, invoke=_nothing, call_upstream=_nothing)
"""Surroundings in which a definition can be made ready, and nothing can be reached."""


def simulate(definition: Definition, *, walks: int = WALKS, steps: int = STEPS, seed: int = 0) -> Report:
    """Walk through a definition so many times, so many decisions each."""
    simulation = Simulation(definition, seed)
    for number in range(1, walks + 1):
        simulation.walk(number, steps)
    return simulation.report(walks, steps)


class Simulation:
    """All walks through one definition."""

    def __init__(self, definition: Definition, seed: int = 0) -> None:
        self._definition = definition
        self._seed = seed
        self._chance = Random(seed)  # noqa: S311  # it is about chance, not about secrets
        self._interests = Interests(definition)
        self._cast = _Cast(definition)
        self._states: Counter[str] = Counter()
        self._taken: Counter[tuple[str, str]] = Counter()
        self._endings: Counter[str] = Counter()
        self._refused: dict[tuple[str, str], str] = {}
        self._dead_ends: dict[str, Trouble] = {}
        self._failures: dict[str, Trouble] = {}
        self._trail: list[Data] = []
        self._halted: Instance
        """The instance whose chain did not go on."""

    def walk(self, number: int, steps: int) -> None:
        """Walk once, from the start."""
        self._trail = []
        given = self._interests.fitting(self._definition.input_schema, "input", self._chance)
        instance, _ = transitions.create_instance(
            self._definition, given or {}, self._cast.anybody(self._chance), "wf_simulated"
        )
        self._states[instance.state.name] += 1
        for _ in range(steps):
            settled = self._settled(instance)
            if isinstance(settled, str):
                self._note(self._failures, self._halted, number, [settled])
                self._endings["chain_failed"] += 1
                return
            instance = settled
            if instance.is_over:
                self._endings[instance.body.outcome] += 1
                return
            moved = (
                self._timed_out(instance)
                or self._decided(instance)
                or self._timed_out(instance, surely=True)
                or self._decided(instance, self._patience(instance))
            )
            if moved is None:
                self._note(self._dead_ends, instance, number, self._reasons(instance))
                self._endings["dead_end"] += 1
                return
            instance = moved
        self._endings["open"] += 1

    def _patience(self, instance: Instance) -> int:
        """How often to try once more before a walk counts as stuck: often, where that would be news."""
        known = self._dead_ends.get(instance.state.name)
        return _PERSISTENT if known is None or len(self._trail) < len(known.steps) else 0

    def _note(self, where: dict[str, Trouble], instance: Instance, number: int, reasons: list[str]) -> None:
        """Remember the shortest way to a trouble."""
        known = where.get(instance.state.name)
        if known is None or len(self._trail) < len(known.steps):
            body = instance.body
            where[instance.state.name] = Trouble(
                instance.state.name, reasons, body.context, number, body.input, list(self._trail)
            )

    def _reasons(self, instance: Instance) -> list[str]:
        name = instance.state.name
        open_to = [plan.name for plan in instance.state.transitions.values() if plan.model.actor != "deterministic"]
        if not open_to:
            return [f"No transition leads out of {name} that anybody could take."]
        return [f"{move}: {self._refused.get((name, move), 'it cannot be taken')}" for move in open_to]

    def _settled(self, instance: Instance) -> Instance | str:
        """The instance where somebody has to decide; or why its chain does not go on."""
        hops = 0
        while instance.body.pending and not instance.is_over:
            by = self._cast.everybody
            if instance.body.pending == "enter":
                instance = self._taken_by(instance, ENTER, {}, by, chained=True)
                continue
            self._halted = instance
            if hops >= self._definition.max_chain_depth:
                return f"The chain stopped after {hops} transitions, the limit that maxChainDepth sets."
            move = choose_chained(instance, by)
            if isinstance(move, dict):
                return str(move["message"])
            instance = self._taken_by(instance, move, {}, by, chained=True)
            hops += 1
        return instance

    def _timed_out(self, instance: Instance, *, surely: bool = False) -> Instance | None:
        leads = self._definition.model.on_timeout
        if leads is None or not (surely or self._chance.random() < _TIMES_OUT):
            return None
        self._arrived(instance, TIMEOUT, leads.target)
        return transitions.interrupt(instance, leads.target, TIMEOUT, "", "timed_out", 0.0).instance

    def _decided(self, instance: Instance, tries: int = _TRIES) -> Instance | None:
        """The instance after somebody took a transition; none when no transition can be taken."""
        for plan in self._in_some_order(instance):
            for attempt in range(tries):
                by = self._cast.everybody if attempt == 0 else self._cast.anybody(self._chance)
                try:
                    arguments = self._allowed(instance, plan, by)
                except WorkflowRefused as refused:
                    self._refused[instance.state.name, plan.name] = refused.message
                    continue
                return self._taken_by(instance, plan.name, arguments, by)
        return None

    def _in_some_order(self, instance: Instance) -> list[TransitionPlan]:
        """The transitions that somebody could take, mostly with those in front that nobody took yet."""
        plans = [plan for plan in instance.state.transitions.values() if plan.model.actor != "deterministic"]
        self._chance.shuffle(plans)
        if self._chance.random() < 0.5:
            plans.sort(key=lambda plan: self._taken[instance.state.name, plan.name])
        return plans

    def _allowed(self, instance: Instance, plan: TransitionPlan, by: Principal) -> Data:
        transitions.find_legal_transition(instance, instance.version, plan.name, by)
        root = own_root("arguments", instance.state.name, plan.name)
        made = self._interests.fitting(plan.model.input_schema, root, self._chance)
        if made is None:
            raise WorkflowRefused(f"No arguments could be made up that fit the schema of {plan.name}.")
        return transitions.check_arguments(instance, plan, by, made)

    def _taken_by(
        self, instance: Instance, move: str, arguments: Data, by: Principal, *, chained: bool = False
    ) -> Instance:
        """The instance after a move, with what it runs made up; the same one where people reject it."""
        action = instance.state.actions[move]
        pending_move = PendingMove(kind="executing", move=move, by=by, key="", arguments=arguments, chained=chained)
        if action.human is not None:
            if self._chance.random() < _REJECTS:
                self._trail.append({"transition": move, "from": instance.state.name, "outcome": "rejected"})
                return instance
            pending_move = msgspec.structs.replace(pending_move, approval=_approved(action.human))
        output = self._output(instance, move, action)
        proof = None if action.runs is None else self._cast.proof(instance, move)
        after = transitions.apply_transition(instance, pending_move, output, 0.0, proof).instance
        self._arrived(instance, move, after.state.name, arguments)
        return after

    def _arrived(self, instance: Instance, move: str, target: str, arguments: Data | None = None) -> None:
        step: Data = {"transition": move, "from": instance.state.name, "to": target}
        self._trail.append({**step, "arguments": arguments} if arguments else step)
        self._taken[instance.state.name, move] += 1
        if move != ENTER:
            self._states[target] += 1

    def _output(self, instance: Instance, move: str, action: Action) -> Any:
        """What an executor could give."""
        if action.is_pure:
            return {} if action.kind == "noop" else None
        made = self._interests.made(own_root("output", instance.state.name, move), self._chance)
        if action.kind == "step":
            return self._step_output(instance, made)
        fixed: Data = {}
        if action.human is not None:
            fixed = {"requestId": "ap_simulated", "queue": action.human.queue, "status": "approved", "approved": True}
        elif action.child is not None:
            fixed = {"workflowId": "wf_child", "outcome": "succeeded"}
        return {**made, **fixed} if isinstance(made, dict) else fixed or made

    def _step_output(self, instance: Instance, made: Any) -> Done:
        step = next(
            one
            for name, one in zip(self._definition.names, self._definition.model.steps, strict=False)
            if name == instance.state.name
        )
        branch = self._chance.choice([ON_SUCCESS, ON_ERROR, *(route.branch for route in step.routes)])
        if branch == ON_ERROR:
            return Done("failed", None, ON_ERROR, "made up")
        return Done("succeeded", made, branch)

    def report(self, walks: int, steps: int) -> Report:
        """What the walks so far found."""
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
    """Who acts, and what their acts are evidence of."""

    def __init__(self, definition: Definition) -> None:
        roles, permissions = {HUMAN, SYSTEM}, set[str]()
        for name in definition.names:
            for transition in definition.state(name).model.transitions.values():
                for guard in (*transition.guards, *(branch.when for branch in transition.branches)):
                    found = list(_possessions(guard))
                    roles |= {one.name for one in found if one.what == "role"}
                    permissions |= {one.name for one in found if one.what == "permission"}
        self._roles, self._permissions = sorted(roles), sorted(permissions)
        self.everybody = Principal("ann", tuple(self._roles), tuple(self._permissions))
        self._proofs: dict[tuple[str, str], str | None] = {}

    def anybody(self, chance: Random) -> Principal:
        """Somebody with some of the roles and permissions there are."""
        roles = tuple(role for role in self._roles if chance.random() < 0.6)
        permissions = tuple(one for one in self._permissions if chance.random() < 0.6)
        return Principal(chance.choice(_PEOPLE), roles, permissions)

    def proof(self, instance: Instance, move: str) -> str | None:
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


def _approved(human: Human) -> Approval:
    """What people were asked, with as many of them as it takes."""
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
    """The states that some transition, branch or timeout leads to, from the first on."""
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
