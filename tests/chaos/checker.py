"""Proves from the recorded calls of clients and the stored histories that nothing was lost, doubled or reordered.

An instance is a register whose versions have one writer each, so its history is the only order of writes to consider.
The calls fit it if each version can be given a moment: not before the submit that wrote it was sent, not after that was
answered, and such that every answer shows a version that was current at some moment of its call. Each version gets the
earliest moment that the calls allow; no other choice could help a later one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import takewhile
from math import inf
from typing import Any, Final

from waypost.stores.instances import HistoryEntry

FINAL: Final = frozenset({"completed", "failed", "cancelled"})


@dataclass
class Call:
    """One call about an instance, as its client saw it; times are those of the client's monotonic clock."""

    invoked: float
    workflow: str = ""
    ticket: str = ""
    """Names a submit; empty for other calls."""
    expected: int = 0
    attempts: int = 0
    returned: float = inf
    version: int = 0
    """The version in the answer, 0 while there is none."""
    is_applied: bool = False
    is_refused: bool = False

    def answer(self, at: float, answer: Mapping[str, Any]) -> None:
        """Record the answer."""
        self.returned, self.workflow, self.version = at, answer["workflowId"], answer["version"]
        error = answer.get("error")
        self.is_applied = bool(self.ticket) and error is None and self.version > self.expected
        # An earlier attempt of the same request may still be applied.
        self.is_refused = self.attempts == 1 and error is not None and error["code"] == "STALE_WORKFLOW_VERSION"


@dataclass
class TaskRun:
    """A task, or a call of a tool or of a worker's function, each run of which writes its ticket into the ledger."""

    ticket: str
    tool: str = ""
    task: str = ""
    """Its id, once the hub acknowledged it; a call has none."""
    is_acknowledged: bool = False
    seen: list[str] = field(default_factory=list)
    """The statuses that clients saw, in order."""
    is_repeatable: bool = False
    """Whether its tool is idempotent: the task may be run again, and its effect be there more than once."""
    refusals: int = 0
    """How many attempts at a call were answered that nothing began; each was followed by another."""


@dataclass
class Toll:
    """A call that is under a rate limit; times are those of the one monotonic clock of the machine."""

    ticket: str
    invoked: float


@dataclass
class Hold:
    """A call that has one of its principal's slots while it runs, by the same clock."""

    invoked: float
    began: float = inf
    ended: float = inf


def digest_of(ticket: str) -> str:
    """The digest of a submit's arguments that a history holds."""
    return sha256(f'{{"ticket":"{ticket}"}}'.encode()).hexdigest()


def check_instances(calls: Iterable[Call], histories: Mapping[str, Sequence[HistoryEntry]]) -> list[str]:
    """Find answers that contradict the histories; one sentence for each."""
    of_workflow: defaultdict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.workflow:
            of_workflow[call.workflow].append(call)
    return [
        problem
        for workflow, found in of_workflow.items()
        for problem in _check_instance(workflow, found, histories.get(workflow, ()))
    ]


def _check_instance(workflow: str, calls: Sequence[Call], history: Sequence[HistoryEntry]) -> list[str]:
    submits = {digest_of(call.ticket): call for call in calls if call.ticket}
    wrote: dict[int, Call] = {}
    for entry in history:
        call = submits.get(entry.value.get("argumentsDigest", ""))
        if call is not None and not entry.value.get("chained"):
            wrote[entry.version] = call
    times = Counter(id(call) for call in wrote.values())
    problems = [f"{call.ticket} was applied {times[id(call)]} times." for call in calls if times[id(call)] > 1]
    if [entry.version for entry in history] != list(range(1, len(history) + 1)):
        problems.append(f"The history of {workflow} has gaps: {[entry.version for entry in history]}.")
    for call in submits.values():
        if call.is_applied and wrote.get(call.expected + 1) is not call:
            problems.append(f"{call.ticket} was acknowledged and is not version {call.expected + 1} of {workflow}.")
        if call.is_refused and times[id(call)]:
            problems.append(f"{call.ticket} was refused and is in the history of {workflow}.")
    return problems + _find_moments(workflow, calls, wrote, len(history))


def _find_moments(workflow: str, calls: Sequence[Call], wrote: Mapping[int, Call], last: int) -> list[str]:
    readers: defaultdict[int, list[Call]] = defaultdict(list)
    for call in calls:
        if call.version:
            readers[call.version].append(call)
    problems = [f"Version {version} of {workflow} was answered and is lost." for version in readers if version > last]
    moment = -inf
    for version in range(1, last + 1):
        writer = wrote.get(version)
        moment = max([moment, *(call.invoked for call in readers[version - 1])])
        if writer is not None:
            moment = max(moment, writer.invoked)
            if writer.is_applied and moment > writer.returned:
                problems.append(f"Version {version} of {workflow} was answered before it can have been written.")
        if any(call.returned < moment for call in readers[version]):
            problems.append(f"Version {version} of {workflow} was answered before it can have been current.")
    return problems


def check_runs(runs: Iterable[TaskRun], ledger: Iterable[str]) -> list[str]:
    """Find problems of tasks and calls: with a tool that is not idempotent, each has at most one effect."""
    effects = Counter(ledger)
    return [problem for run in runs for problem in _check_run(run, effects[run.ticket])]


def _check_run(run: TaskRun, effects: int) -> list[str]:
    problems = []
    if effects > 1 and not run.is_repeatable:
        said = f" although {run.refusals} answers said that nothing had begun" if run.refusals else ""
        problems.append(f"{run.ticket} was done {effects} times{said}.")
    is_done = run.seen[-1:] == ["completed"] if run.task else run.is_acknowledged
    if is_done and not effects:
        problems.append(f"{run.ticket} was acknowledged as done and was not done.")
    if not run.task:
        return problems
    if "missing" in run.seen:
        problems.append(f"The task {run.ticket} was acknowledged and is lost.")
    elif run.seen[-1:] and run.seen[-1] not in FINAL:
        problems.append(f"The task {run.ticket} is stuck: {run.seen[-1]}.")
    over = next((place for place, status in enumerate(run.seen) if status in FINAL), len(run.seen))
    if len(set(run.seen[over:])) > 1:
        problems.append(f"The task {run.ticket} was over and changed: {run.seen[over:]}.")
    return problems


def check_rate(tolls: Iterable[Toll], ran: Mapping[str, float], limit: int, window: float) -> list[str]:
    """Find windows with more calls than the limit.

    A call was admitted after its client sent it and before it ran: calls all of which did both within one window were
    admitted in it. One that a stopped process ran late may have been admitted in any window before.
    """
    calls = sorted((toll.invoked, ran[toll.ticket]) for toll in tolls if toll.ticket in ran)
    problems = []
    for place, (start, _) in enumerate(calls):
        later = takewhile(lambda call: call[0] < start + window, calls[place:])  # noqa: B023  # used at once
        admitted = sum(end < start + window for _, end in later)
        if admitted > limit:
            problems.append(f"{admitted} calls were admitted within {window:g} s from {start}, {limit} are allowed.")
    return problems


def check_running(holds: Iterable[Hold], limit: int, longest: float) -> list[str]:
    """Find moments with more concurrent calls than the limit, among calls of at most `longest` seconds.

    A longer call was in a process that was stopped or could not renew its slots. Other calls may have the slots by
    then, so it counts only at the moment it began, as does a killed call, whose end is unknown.
    """
    steps: list[tuple[float, int]] = []
    for hold in holds:
        if hold.began - hold.invoked > longest:
            continue
        ended = hold.ended if hold.ended - hold.invoked <= longest else hold.began
        steps += (hold.began, 1), (ended, -1)
    running, problems, is_over = 0, [], False
    for moment, step in sorted(steps, key=lambda one: (one[0], -one[1])):
        running += step
        if running > limit and not is_over:
            problems.append(f"{running} calls of a principal ran at once at {moment}, {limit} are allowed.")
        is_over = running > limit
    return problems
