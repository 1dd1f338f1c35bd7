"""Whether what happened could happen again: a recorded history, commit by commit, against a definition of today.

What was recorded is what `runs show --json` tells. Arguments are recorded by their digest only, so a guard that looks
at them is judged where they can be told from it, and is not known elsewhere; so is what is hidden as a secret, and the
roles of whoever is not the one who started the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypedDict

import msgspec

from waypost.capabilities.principals import Principal
from waypost.errors import WaypostError
from waypost.kinds import GuardModel
from waypost.redaction import HIDDEN
from waypost.workflows.definitions import (
    CANCEL,
    ENTER,
    START,
    TIMEOUT,
    Definition,
    TransitionPlan,
    digest,
    with_defaults,
)
from waypost.workflows.guards import compile_guard
from waypost.workflows.guards.kind import Knowledge
from waypost.workflows.scope import MISSING, Path, Proof, Scope

Data = dict[str, Any]
Verdict = Literal["allowed", "refused", "not_known"]
_UNKNOWN: Final = "not known"


Row = TypedDict(
    "Row",
    {
        "version": int,
        "transition": str,
        "from": str | None,
        "to": str | None,
        "by": str,
        "chained": bool,
        "argumentsDigest": str,
        "delta": Data | None,
        "outcome": str,
    },
    total=False,
)
"""As much of a row of a history as is needed; what has an outcome of its own is no commit."""


class Recorded(msgspec.Struct, frozen=True, rename="camel"):
    """As much of a recorded run as is needed."""

    history: list[Row]
    workflow_id: str = ""
    definition_id: str = ""
    input: Data = {}
    owner: Principal | None = None
    evidence: list[Proof] = []


class Commit(msgspec.Struct, frozen=True):
    """What would become of a commit now."""

    version: int
    transition: str
    verdict: Verdict
    reasons: list[Data] = []
    """Why not, or what is not known: `{message, guard?, operands?}` each."""


class Replay(msgspec.Struct, frozen=True, rename="camel"):
    """What would become of a run now."""

    workflow_id: str
    definition_id: str
    ok: bool
    commits: list[Commit]


def recorded(data: Any) -> Recorded:
    """A run as `runs show --json` tells it."""
    try:
        return msgspec.convert(data, Recorded)
    except msgspec.ValidationError as error:
        raise WaypostError(f"That is no history of a run: {error}.") from None


def replay(definition: Definition, run: Recorded) -> Replay:
    """Walk through a history, and say of every commit whether it could be made now."""
    walk = _Walk(definition, run)
    commits = [walk.step(row) for row in run.history if "outcome" not in row]
    ok = all(commit.verdict != "refused" for commit in commits)
    return Replay(run.workflow_id, definition.id, ok, commits)


class _Walk:
    """A run on its way through its history."""

    def __init__(self, definition: Definition, run: Recorded) -> None:
        self._definition = definition
        self._run = run
        self._context: Data = {}

    def step(self, row: Row) -> Commit:
        """Judge a commit, and go on to what it left."""
        version, move = row.get("version", 0), row.get("transition", "")
        refusals, doubts = _Judge(self, row, version, move).judged()
        self._context = {**self._context, **(row.get("delta") or {})}
        if refusals:
            return Commit(version, move, "refused", refusals)
        return Commit(version, move, "not_known", doubts) if doubts else Commit(version, move, "allowed")

    @property
    def definition(self) -> Definition:
        """What it is held against."""
        return self._definition

    @property
    def given(self) -> Data:
        """The input of the run."""
        return self._run.input

    def scope(self, row: Row, version: int, arguments: Data | None) -> Scope:
        """What a commit could look at before it was made."""
        return Scope(
            self._context,
            arguments or {},
            self.given,
            id=self._run.workflow_id,
            state=str(row.get("from")),
            version=version - 1,
            principal=self._run.owner if self._run.owner and self.knows(row) else Principal(str(row.get("by"))),
            evidence=[proof for proof in self._run.evidence if proof.version < version],
        )

    def knows(self, row: Row) -> bool:
        """Whether the roles of whoever acted are known."""
        return self._run.owner is not None and row.get("by") == self._run.owner.id


class _Judge:
    """One commit."""

    def __init__(self, walk: _Walk, row: Row, version: int, move: str) -> None:
        self._walk = walk
        self._row = row
        self._version = version
        self._move = move
        self._refusals: list[Data] = []
        self._doubts: list[Data] = []

    def judged(self) -> tuple[list[Data], list[Data]]:
        """What is against the commit, and what is not known about it."""
        source, target = self._row.get("from"), str(self._row.get("to"))
        match self._move:
            case name if name == START:
                self._judge_start(target)
            case name if name == CANCEL:
                pass
            case name if name == TIMEOUT:
                self._judge_timeout(target)
            case name if self._has_state(str(source)):
                self._judge_move(name, str(source), target)
        if self._move != CANCEL:
            self._has_state(target)
        return self._refusals, self._doubts

    def _refuse(self, message: str, **more: Any) -> None:
        if all(known["message"] != message for known in self._refusals):
            self._refusals.append({"message": message, **more})

    def _doubt(self, message: str, **more: Any) -> None:
        self._doubts.append({"message": message, **more})

    def _has_state(self, name: str) -> bool:
        found = name in self._walk.definition.names
        if not found:
            self._refuse(f"There is no state {name} any more.")
        return found

    def _judge_start(self, target: str) -> None:
        definition, given = self._walk.definition, self._walk.given
        if target != definition.initial:
            self._refuse(f"It begins in {definition.initial} now, not in {target}.")
        if definition.schema is None:
            return
        if digest(given) != self._row.get("argumentsDigest"):
            self._doubt("The input is hidden in part, so that nobody knows whether it fits.")
        elif problems := definition.schema.problems(with_defaults(definition.input_schema, given)):
            self._refuse(f"The input does not fit any more: {'; '.join(problems)}.")

    def _judge_timeout(self, target: str) -> None:
        model = self._walk.definition.model
        leads = model.on_timeout
        if model.timeout_ms is None:
            self._refuse("There is no timeout any more.")
        elif (leads.target if leads is not None else str(self._row.get("from"))) != target:
            self._refuse(f"The timeout does not lead to {target} any more.")

    def _judge_move(self, move: str, source: str, target: str) -> None:
        state = self._walk.definition.state(source)
        if move == ENTER:
            if state.enter is None:
                self._refuse(f"Nothing runs any more when {source} is entered.")
            return
        plan = state.transitions.get(move)
        if state.model.terminal or plan is None:
            self._refuse(f"{source} has no transition {move} any more.")
            return
        arguments = self._arguments(plan)
        self._judge_actor(plan, bool(self._row.get("chained")), chains=bool(state.chained))
        self._judge_arguments(plan, arguments)
        for guard in plan.guard_models:
            self._judge_guard(guard, arguments)
        if self._row.get("chained"):
            self._judge_others([other for other in state.chained if other is not plan and other.guard_texts])
        self._judge_target(plan, target, arguments)

    def _judge_others(self, others: list[TransitionPlan]) -> None:
        """Whether another transition would be taken by itself now, or could be as well, which stops a chain."""
        scope = self._walk.scope(self._row, self._version, {})
        for other in others:
            truth = self._truth(other.guard_models, scope, {})
            if truth:
                self._refuse(f"{other.name} can be taken by itself now.")
            elif truth is None:
                self._doubt(f"Whether {other.name} would be taken by itself is not known.")

    def _arguments(self, plan: TransitionPlan) -> Data | None:
        """The arguments, where the digest gives them away: none at all, or those of the link as it was."""
        scope = self._walk.scope(self._row, self._version, {})
        prefilled = None if plan.prefill is None else plan.prefill.fill(scope)
        schema = plan.model.input_schema
        possible: list[Data] = [{}, *([prefilled] if isinstance(prefilled, dict) else [])]
        for candidate in (*possible, *(with_defaults(schema, given) for given in possible)):
            if digest(candidate) == self._row.get("argumentsDigest"):
                return dict(candidate)
        return None

    def _judge_actor(self, plan: TransitionPlan, chained: bool, *, chains: bool) -> None:
        actor = plan.model.actor
        if chained and not chains:
            self._refuse(f"{plan.name} is not taken by itself any more.")
        elif not chained and chains:
            self._refuse(f"{plan.name} is taken by itself now, not by somebody.")
        elif actor in ("human", "system") and not chained:
            roles = self._walk.scope(self._row, self._version, {}).principal.roles
            allowed = {"human"} if actor == "human" else {"system", "admin"}
            if not self._walk.knows(self._row):
                self._doubt(f"{plan.name} takes the role {actor}; the roles of {self._row.get('by')} are {_UNKNOWN}.")
            elif not allowed.intersection(roles):
                self._refuse(f"{plan.name} takes the role {actor} now; {self._row.get('by')} does not have it.")

    def _judge_arguments(self, plan: TransitionPlan, arguments: Data | None) -> None:
        if plan.schema is None:
            return
        if arguments is None:
            self._doubt("The arguments are known by their digest only, so that nobody knows whether they fit.")
        elif problems := plan.schema.problems(with_defaults(plan.model.input_schema, arguments)):
            self._refuse(f"The arguments do not fit any more: {'; '.join(problems)}.")

    def _judge_guard(self, model: GuardModel, arguments: Data | None) -> None:
        guard = compile_guard(model)
        scope = self._walk.scope(self._row, self._version, arguments)
        truth = self._truth([model], scope, arguments)
        if truth is False:
            for reason in guard.failures(scope):
                self._refuse(reason["message"], guard=reason["guard"], operands=reason["operands"])
        elif truth is None:
            self._doubt("Whether a guard holds is not known.", guard=guard.data)

    def _truth(self, guards: Iterable[GuardModel], scope: Scope, arguments: Data | None) -> bool | None:
        """Whether all guards hold; None where that depends on something that is not known."""
        knows_caller = self._walk.knows(self._row)
        return Knowledge(scope, knows_caller, lambda path: _is_hidden(path, scope, arguments)).all_true(guards)

    def _judge_target(self, plan: TransitionPlan, target: str, arguments: Data | None) -> None:
        """Whether the transition leads where it led, of what is in the context behind it."""
        targets = {plan.model.target, *(other for _, other in plan.branches)}
        if target not in targets:
            self._refuse(f"{plan.name} does not lead to {target} any more, but to {' or '.join(sorted(targets))}.")
            return
        if self._walk.definition.model.steps:
            return
        scope = self._walk.scope(self._row, self._version, arguments)
        scope.context = {**scope.context, **(self._row.get("delta") or {})}
        for branch in plan.model.branches:
            truth = self._truth([branch.when], scope, arguments)
            if truth is None:
                self._doubt(f"Whether {plan.name} would lead to {branch.target} is not known.")
                return
            if truth:
                if branch.target != target:
                    self._refuse(f"{plan.name} leads to {branch.target} now, not to {target}.")
                return
        if plan.model.target != target:
            self._refuse(f"{plan.name} leads to {plan.model.target} now, not to {target}.")


def _is_hidden(path: Path, scope: Scope, arguments: Data | None) -> bool:
    if path.root == "arguments" and arguments is None:
        return True
    value = path.get(scope)
    return value is not MISSING and _holds_hidden(value)


def _holds_hidden(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_hidden, value.values()))
    if isinstance(value, list):
        return any(map(_holds_hidden, value))
    return bool(value == HIDDEN)
