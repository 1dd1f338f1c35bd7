"""Problems of workflows after their hub was killed, judged by answers, stored rows and effects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from tests.chaos.checker import Call, Hold, TaskRun, Toll, check_instances, check_rate, check_running, check_runs
from tests.chaos.mill import MAX_RUNNING, MAX_TOLLS, TOLL_WINDOW_S
from waypost.stores.instances import HistoryEntry, InstanceRecord

AT_REST: Final = frozenset({"waiting_for_action", "succeeded"})
LONGEST_HOLD_S: Final = 9.0
"""Longer than a client waits for an answer, and shorter than a lease of slots that was not renewed is valid."""
RUNS: Final = frozenset({"capability", "cli"})


class KnownAnswer(NamedTuple):
    """A client got the answer that an instance is, or was, at a version in a state."""

    workflow: str
    version: int
    state: str


class Effect(NamedTuple):
    """One run of an executor: whether it is repeatable, for which submit, and under which key."""

    kind: str
    ticket: str
    key: str


@dataclass
class Evidence:
    """Everything that clients know, and the final contents of the store."""

    answers: list[KnownAnswer] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)
    """How often a client asked for a repetition, by ticket."""
    effects: list[Effect] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    runs: list[TaskRun] = field(default_factory=list)
    """Tasks and calls."""
    tolls: list[Toll] = field(default_factory=list)
    ran: dict[str, float] = field(default_factory=dict)
    """When those ran that the rate limit admitted, by ticket."""
    holds: dict[str, Hold] = field(default_factory=dict)
    """The calls of one principal that run at the same time, by ticket."""
    ledger: list[str] = field(default_factory=list)
    """The tickets of those that had their effect."""
    instances: dict[str, InstanceRecord] = field(default_factory=dict)
    histories: dict[str, Sequence[HistoryEntry]] = field(default_factory=dict)


def wrong_with(evidence: Evidence) -> list[str]:
    """Problems, one sentence each."""
    return [
        *_histories(evidence),
        *_lost(evidence),
        *_repeated(evidence),
        *_not_done(evidence),
        *_children(evidence),
        *_stuck(evidence),
        *check_instances(evidence.calls, evidence.histories),
        *check_runs(evidence.runs, evidence.ledger),
        *check_rate(evidence.tolls, evidence.ran, MAX_TOLLS, TOLL_WINDOW_S),
        *check_running(evidence.holds.values(), MAX_RUNNING, LONGEST_HOLD_S),
    ]


def _histories(evidence: Evidence) -> list[str]:
    """A history has every version once, and each move begins where the one before ended."""
    wrong = []
    for workflow, instance in evidence.instances.items():
        history = evidence.histories.get(workflow, ())
        if [entry.version for entry in history] != list(range(1, instance.version + 1)):
            wrong.append(f"{workflow} is at {instance.version}, its history has {[one.version for one in history]}.")
        places = [(entry.value["from"], entry.value["to"]) for entry in history]
        if any(one[1] != next_one[0] for one, next_one in pairwise(places)):
            wrong.append(f"The history of {workflow} leaps: {places}.")
        if places and places[-1][1] != instance.state:
            wrong.append(f"{workflow} is in {instance.state}, its history ends in {places[-1][1]}.")
    return wrong


def _lost(evidence: Evidence) -> list[str]:
    reached = {
        (workflow, entry.version): entry.value["to"]
        for workflow, history in evidence.histories.items()
        for entry in history
    }
    return [
        f"{answer} was answered, the history says {reached.get((answer.workflow, answer.version))}."
        for answer in evidence.answers
        if reached.get((answer.workflow, answer.version)) != answer.state
    ]


def _repeated(evidence: Evidence) -> list[str]:
    """An unsafe move runs once for a submit, unless a client asked for a retry; a safe one keeps its key."""
    runs: Counter[str] = Counter(effect.ticket for effect in evidence.effects if effect.kind == "unsafe")
    wrong = [
        f"{ticket} was done {times} times, {1 + evidence.allowed[ticket]} were asked for."
        for ticket, times in runs.items()
        if times > 1 + evidence.allowed[ticket]
    ]
    keys: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for effect in evidence.effects:
        move = effect.key.split(".")[1]
        keys[effect.ticket, move].add(effect.key)
    return wrong + [
        f"{ticket} was run under {len(used)} keys."
        for (ticket, _), used in keys.items()
        if len(used) > 1 + evidence.allowed[ticket]
    ]


def _not_done(evidence: Evidence) -> list[str]:
    """Every move in a history was executed."""
    done = {effect.key for effect in evidence.effects}
    return [
        f"{workflow} says of version {entry.version} that {entry.value['key']} was done."
        for workflow, history in evidence.histories.items()
        for entry in history
        if _ran(entry.value) and entry.value["key"] not in done
    ]


def _ran(entry: dict[str, Any]) -> bool:
    executor = entry.get("executor", {})
    return executor.get("kind") in RUNS and "resolvedBy" not in executor


def _children(evidence: Evidence) -> list[str]:
    """A submit has one child, even after several recoveries."""
    tickets = Counter(one.value["input"]["ticket"] for one in evidence.instances.values() if one.definition == "child")
    return [f"{ticket} has {times} children." for ticket, times in tickets.items() if times > 1]


def is_moving(one: InstanceRecord) -> bool:
    """Whether an instance goes on by itself, or should."""
    return one.status not in AT_REST or one.reservation is not None or bool(one.value.get("pending"))


def _stuck(evidence: Evidence) -> list[str]:
    """No instance is still moving, or should be."""
    return [
        f"{one.id} ({one.definition}) is stuck: {one.status} in {one.state}, {one.reservation}, {one.value}."
        for one in evidence.instances.values()
        if is_moving(one)
    ]
