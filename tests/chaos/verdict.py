"""What is wrong with workflows after their hub was killed: judged by what was answered, left behind and done."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from tests.chaos.checker import Call, TaskRun, Toll, check_instances, check_rate, check_runs
from tests.chaos.mill import MAX_TOLLS, TOLL_WINDOW_S
from waypost.stores.instances import HistoryEntry, InstanceRecord

AT_REST: Final = frozenset({"waiting_for_action", "succeeded"})
RUNS: Final = frozenset({"capability", "cli"})


class Told(NamedTuple):
    """That an instance is, or was, at a version in a state: somebody was answered so."""

    workflow: str
    version: int
    state: str


class Effect(NamedTuple):
    """That something was run: may it be run again, for which submit, and under which key."""

    kind: str
    ticket: str
    key: str


@dataclass
class Evidence:
    """Everything that is known from outside, and what the store holds in the end."""

    told: list[Told] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)
    """How often somebody asked for something to be done again, by ticket."""
    effects: list[Effect] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    runs: list[TaskRun] = field(default_factory=list)
    """Tasks and calls."""
    tolls: list[Toll] = field(default_factory=list)
    ran: dict[str, float] = field(default_factory=dict)
    """When those ran that the rate limit admitted, by ticket."""
    ledger: list[str] = field(default_factory=list)
    """The tickets of those that had their effect."""
    instances: dict[str, InstanceRecord] = field(default_factory=dict)
    histories: dict[str, Sequence[HistoryEntry]] = field(default_factory=dict)


def wrong_with(evidence: Evidence) -> list[str]:
    """What is wrong, one sentence each."""
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
        f"{told} was answered, the history says {reached.get((told.workflow, told.version))}."
        for told in evidence.told
        if reached.get((told.workflow, told.version)) != told.state
    ]


def _repeated(evidence: Evidence) -> list[str]:
    """What is not safe is run once for a submit, unless somebody asked for it; what is safe keeps its key."""
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
    """Nothing is in a history as done that was not done."""
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
    """A submit has one child, however often it was taken up again."""
    tickets = Counter(one.value["input"]["ticket"] for one in evidence.instances.values() if one.definition == "child")
    return [f"{ticket} has {times} children." for ticket, times in tickets.items() if times > 1]


def _stuck(evidence: Evidence) -> list[str]:
    """Nothing is on its way any more, and nothing should be."""
    return [
        f"{one.id} ({one.definition}) is stuck: {one.status} in {one.state}, {one.reservation}, {one.value}."
        for one in evidence.instances.values()
        if one.status not in AT_REST or one.reservation is not None or one.value.get("pending")
    ]
