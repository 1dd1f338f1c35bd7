"""Replay: whether a recorded history could happen again, commit by commit, under another definition.

The input is the output of `runs show --json`. It has only the digest of arguments, masked secrets, and the roles of the
owner alone. Where a guard or a schema depends on anything else, the verdict is `not_known`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypedDict

import msgspec
from msgspec.structs import replace

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
    StatePlan,
    TransitionPlan,
    digest,
    with_defaults,
)
from waypost.workflows.guards import compile_guard
from waypost.workflows.guards.kind import Knowledge
from waypost.workflows.scope import MISSING, Path, Proof, Scope

Data = dict[str, Any]

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
"""The fields of a history row that a replay reads; a row with an outcome is not a commit."""


class Recording(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a recorded instance that a replay reads."""

    history: list[Row]
    workflow_id: str = ""
    definition_id: str = ""
    input: Data = {}
    owner: Principal | None = None
    evidence: list[Proof] = []


class Commit(msgspec.Struct, frozen=True):
    """The verdict about one commit."""

    version: int
    transition: str
    verdict: Literal["allowed", "refused", "not_known"]
    reasons: list[Data] = []
    """Why it is refused, or what is not known: `{message, guard?, operands?}` each."""


class Replay(msgspec.Struct, frozen=True, rename="camel"):
    """The verdicts about a recorded instance."""

    workflow_id: str
    definition_id: str
    ok: bool
    commits: list[Commit]


def parse_recording(data: Any) -> Recording:
    """A recorded instance from the output of `runs show --json`."""
    try:
        return msgspec.convert(data, Recording)
    except msgspec.ValidationError as error:
        raise WaypostError(f"This is not the history of a workflow instance: {error}.") from None


def replay(definition: Definition, recording: Recording) -> Replay:
    """Check every commit of a history against a definition."""
    context: Data = {}
    commits = []
    for row in recording.history:
        if "outcome" not in row:
            commits.append(_Check(definition, recording, row, context).run())
            context = {**context, **(row.get("delta") or {})}
    ok = all(commit.verdict != "refused" for commit in commits)
    return Replay(recording.workflow_id, definition.id, ok, commits)


class _Check:
    """Checks one commit; `context` is the context before it."""

    def __init__(self, definition: Definition, recording: Recording, row: Row, context: Data) -> None:
        self._definition = definition
        self._recording = recording
        self._row = row
        self._by = str(row.get("by"))
        # Only the roles of the owner are recorded.
        self._knows_caller = recording.owner is not None and self._by == recording.owner.id
        self._scope = Scope(
            context,
            {},
            recording.input,
            id=recording.workflow_id,
            state=str(row.get("from")),
            version=row.get("version", 0) - 1,
            principal=recording.owner if recording.owner and self._knows_caller else Principal(self._by),
            evidence=[proof for proof in recording.evidence if proof.version < row.get("version", 0)],
        )
        self._refusals: list[Data] = []
        self._doubts: list[Data] = []

    def run(self) -> Commit:
        """The verdict; a refusal counts more than a doubt."""
        move, source, target = self._row.get("transition", ""), str(self._row.get("from")), str(self._row.get("to"))
        if move == START:
            self._check_start(target)
        elif move == TIMEOUT:
            self._check_timeout(source, target)
        elif move != CANCEL and self._has_state(source):
            self._check_move(move, self._definition.states[source], target)
        if move != CANCEL:
            self._has_state(target)
        version = self._row.get("version", 0)
        if self._refusals:
            return Commit(version, move, "refused", self._refusals)
        return Commit(version, move, "not_known" if self._doubts else "allowed", self._doubts)

    def _refuse(self, message: str, **more: Any) -> None:
        # The states before and after may be the same missing one.
        if all(known["message"] != message for known in self._refusals):
            self._refusals.append({"message": message, **more})

    def _doubt(self, message: str, **more: Any) -> None:
        self._doubts.append({"message": message, **more})

    def _has_state(self, name: str) -> bool:
        found = name in self._definition.names
        if not found:
            self._refuse(f"The state {name} does not exist any more.")
        return found

    def _check_start(self, target: str) -> None:
        definition, given = self._definition, self._recording.input
        if target != definition.initial:
            self._refuse(f"The initial state is {definition.initial} now, not {target}.")
        if definition.schema is None:
            return
        # The digest was made before secrets were masked.
        if digest(given) != self._row.get("argumentsDigest"):
            self._doubt("The input is partly masked, so it is not known whether it matches the schema.")
        elif problems := definition.schema.problems(with_defaults(definition.input_schema, given)):
            self._refuse(f"The input does not match the schema any more: {'; '.join(problems)}.")

    def _check_timeout(self, source: str, target: str) -> None:
        model = self._definition.model
        if model.timeout_ms is None:
            self._refuse("There is no timeout any more.")
        elif (model.on_timeout.target if model.on_timeout is not None else source) != target:
            self._refuse(f"The timeout does not lead to {target} any more.")

    def _check_move(self, move: str, state: StatePlan, target: str) -> None:
        if move == ENTER:
            if state.enter is None:
                self._refuse(f"{state.name} has no entry action any more.")
            return
        plan = state.transitions.get(move)
        if state.model.terminal or plan is None:
            self._refuse(f"{state.name} has no transition {move} any more.")
            return
        arguments = self._find_arguments(plan)
        self._scope = replace(self._scope, arguments=arguments or {})
        chained = bool(self._row.get("chained"))
        self._check_actor(plan, chained, chains=bool(state.chained))
        self._check_arguments(plan, arguments)
        for guard in plan.guard_models:
            self._check_guard(guard, arguments)
        if chained:
            self._check_others([other for other in state.chained if other is not plan and other.guard_texts])
        self._check_target(plan, target, arguments)

    def _find_arguments(self, plan: TransitionPlan) -> Data | None:
        """The arguments, if their digest shows them: none at all, or those that the link prefilled."""
        prefilled = None if plan.prefill is None else plan.prefill.fill(self._scope)
        possible: list[Data] = [{}, *([prefilled] if isinstance(prefilled, dict) else [])]
        possible += [with_defaults(plan.model.input_schema, given) for given in possible]
        recorded = self._row.get("argumentsDigest")
        return next((dict(candidate) for candidate in possible if digest(candidate) == recorded), None)

    def _check_actor(self, plan: TransitionPlan, chained: bool, *, chains: bool) -> None:
        actor = plan.model.actor
        if chained and not chains:
            self._refuse(f"{plan.name} is not taken automatically any more.")
        elif chains and not chained:
            self._refuse(f"{plan.name} is taken automatically now, not by a caller.")
        elif actor in ("human", "system") and not chained:
            allowed = {"human"} if actor == "human" else {"system", "admin"}
            if not self._knows_caller:
                self._doubt(f"{plan.name} requires the role {actor}; the roles of {self._by} are not known.")
            elif not allowed.intersection(self._scope.principal.roles):
                self._refuse(f"{plan.name} requires the role {actor} now; {self._by} lacks it.")

    def _check_arguments(self, plan: TransitionPlan, arguments: Data | None) -> None:
        if plan.schema is None:
            return
        if arguments is None:
            self._doubt("Only the digest of the arguments is recorded; whether they match the schema is not known.")
        elif problems := plan.schema.problems(with_defaults(plan.model.input_schema, arguments)):
            self._refuse(f"The arguments do not match the schema any more: {'; '.join(problems)}.")

    def _check_guard(self, model: GuardModel, arguments: Data | None) -> None:
        guard, truth = compile_guard(model), self._truth([model], self._scope, arguments)
        if truth is False:
            for reason in guard.failures(self._scope):
                self._refuse(reason["message"], guard=reason["guard"], operands=reason["operands"])
        elif truth is None:
            self._doubt("Whether a guard holds is not known.", guard=guard.data)

    def _check_others(self, others: list[TransitionPlan]) -> None:
        """Check that no other transition of the chain could be taken: it would be taken instead, or stop the chain."""
        scope = replace(self._scope, arguments={})
        for other in others:
            truth = self._truth(other.guard_models, scope, {})
            if truth:
                self._refuse(f"{other.name} can be taken automatically now.")
            elif truth is None:
                self._doubt(f"Whether {other.name} would be taken automatically is not known.")

    def _truth(self, guards: Iterable[GuardModel], scope: Scope, arguments: Data | None) -> bool | None:
        """Whether all guards hold; None where that depends on something that is not known."""

        def is_hidden(path: Path) -> bool:
            if path.root == "arguments" and arguments is None:
                return True
            value = path.get(scope)
            return value is not MISSING and _has_masked(value)

        return Knowledge(scope, self._knows_caller, is_hidden).all_true(guards)

    def _check_target(self, plan: TransitionPlan, target: str, arguments: Data | None) -> None:
        """Check that the transition still leads to the recorded state, given the context after it."""
        if target not in plan.targets:
            self._refuse(f"{plan.name} leads to {' or '.join(sorted(set(plan.targets)))} now, not to {target}.")
            return
        if self._definition.model.steps:
            return
        scope = replace(self._scope, context={**self._scope.context, **(self._row.get("delta") or {})})
        expected = plan.model.target
        for branch in plan.model.branches:
            truth = self._truth([branch.when], scope, arguments)
            if truth is None:
                self._doubt(f"Whether {plan.name} would lead to {branch.target} is not known.")
                return
            if truth:
                expected = branch.target
                break
        if expected != target:
            self._refuse(f"{plan.name} leads to {expected} now, not to {target}.")


def _has_masked(value: Any) -> bool:
    """Whether a value contains a masked secret."""
    if isinstance(value, dict | list):
        return any(map(_has_masked, value.values() if isinstance(value, dict) else value))
    return bool(value == HIDDEN)
