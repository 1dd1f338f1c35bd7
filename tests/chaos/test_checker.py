"""The checker finds each kind of broken history, and agrees with a search through all orders."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf
from typing import Final

import pytest

from tests.chaos.checker import (
    Call,
    Hold,
    TaskRun,
    Toll,
    check_instances,
    check_rate,
    check_running,
    check_runs,
    digest_of,
)
from tests.contract.linearizability import Operation, Read, Swap, is_linearizable
from waypost.stores.instances import HistoryEntry

Histories = dict[str, list[HistoryEntry]]
STARTED: Final = Call(0, "wf", attempts=1, returned=1, version=1)
FIRST: Final = Call(2, "wf", "t1", 1, attempts=1, returned=5, version=2, is_applied=True)
SECOND: Final = Call(6, "wf", "t2", 2, attempts=1, returned=8, version=3, is_applied=True)
LOST: Final = Call(6, "wf", "t2", 2, attempts=1)
STALE: Final = Call(6, "wf", "t3", 1, attempts=1, returned=9, version=2, is_refused=True)
SOUND: Final = (STARTED, FIRST, SECOND)


def history(*tickets: str, chained: frozenset[int] = frozenset()) -> Histories:
    """The history of one instance: its start, then a version for each ticket."""
    entries = [HistoryEntry(1, 0.0, {"argumentsDigest": ""})]
    for version, ticket in enumerate(tickets, 2):
        value = {"argumentsDigest": digest_of(ticket), "chained": version in chained}
        entries.append(HistoryEntry(version, 0.0, value))
    return {"wf": entries}


def read(invoked: float, returned: float, version: int) -> Call:
    """A call that only read."""
    return Call(invoked, "wf", attempts=1, returned=returned, version=version)


def without(histories: Histories, version: int) -> Histories:
    """The same without one entry."""
    return {"wf": [entry for entry in histories["wf"] if entry.version != version]}


BROKEN: Final[dict[str, tuple[tuple[Call, ...], Histories]]] = {
    "t2 was acknowledged and is not version 3": (SOUND, history("t1")),
    "Version 3 of wf was answered and is lost": ((STARTED, FIRST, read(6, 7, 3)), history("t1")),
    "Version 1 of wf was answered and is lost": ((STARTED,), {}),
    "t1 was applied 2 times": ((STARTED, FIRST), history("t1", "t1")),
    "t1 was acknowledged and is not version 2": (SOUND, history("t2", "t1")),
    "has gaps": ((STARTED, FIRST, LOST), without(history("t1", "t2", "x"), 3)),
    "t3 was refused and is in the history": ((STARTED, FIRST, STALE), history("t1", "t3")),
    "Version 3 of wf was answered before it can have been current": (
        (STARTED, FIRST, replace(SECOND, invoked=10, returned=12), read(6, 9, 3)),
        history("t1", "t2"),
    ),
    "Version 2 of wf was answered before it can have been written": (
        (STARTED, FIRST, read(6, 7, 1)),
        history("t1"),
    ),
}


@pytest.mark.parametrize("finding", BROKEN)
def test_a_broken_history_is_found(finding: str) -> None:
    calls, histories = BROKEN[finding]
    assert any(finding in problem for problem in check_instances(calls, histories))


def test_nothing_is_found_in_a_sound_history() -> None:
    assert check_instances(SOUND, history("t1", "t2")) == []
    assert check_instances((STARTED, FIRST, LOST, STALE), history("t1")) == []
    assert check_instances((STARTED, FIRST, LOST, STALE, read(10, 11, 3)), history("t1", "t2")) == []
    assert check_instances((STARTED, replace(FIRST, version=3), read(3, 4, 1)), history("t1", "x")) == []


def test_an_attempt_that_was_refused_after_another_may_have_been_applied() -> None:
    refusal = {"workflowId": "wf", "version": 2, "error": {"code": "STALE_WORKFLOW_VERSION"}}
    call = Call(0.0, "wf", "t1", 1, attempts=2)
    call.answer(1.0, refusal)
    assert not call.is_refused
    call.attempts = 1
    call.answer(1.0, refusal)
    assert call.is_refused


def random_case(chance: random.Random) -> tuple[list[Call], Histories, list[Operation], tuple[int, str]]:
    """A few calls with overlapping times, as the checker and as the search see them."""
    versions = chance.randrange(2, 5)
    calls, operations = list[Call](), list[Operation]()
    for expected in range(1, versions):
        invoked = chance.randrange(12)
        returned, is_applied = invoked + chance.randrange(1, 6), chance.random() < 0.7
        writer = f"t{expected + 1}"
        end, seen = (returned, expected + 1) if is_applied else (inf, 0)
        calls.append(Call(2 * invoked, "wf", writer, expected, 1, 2 * end, seen, is_applied))
        operations.append(Swap(2 * invoked, 2 * returned, expected, writer, "ok" if is_applied else "unknown"))
    for _ in range(chance.randrange(4)):
        invoked, version = chance.randrange(12), chance.randrange(1, versions + 1)
        returned = invoked + chance.randrange(1, 4)
        # Odd moments: nothing happens at the same time as the end of a submit.
        calls.append(read(2 * invoked + 1, 2 * returned + 1, version))
        operations.append(Read(2 * invoked + 1, 2 * returned + 1, (version, f"t{version}")))
    tickets = [f"t{version}" for version in range(2, versions + 1)]
    return calls, history(*tickets), operations, (versions, f"t{versions}")


def test_it_agrees_with_a_search_through_all_orders() -> None:
    chance, verdicts = random.Random(11), list[bool]()
    for number in range(2_000):
        calls, histories, operations, end = random_case(chance)
        found = check_instances(calls, histories)
        verdicts.append(is_linearizable(operations, (1, "t1"), end))
        assert (found == []) == verdicts[-1], f"case {number}: {calls} {found}"
    assert 200 < sum(verdicts) < 1_800


TASK: Final = TaskRun("t", task="id", is_acknowledged=True, seen=["working", "completed"])


@pytest.mark.parametrize(
    ("finding", "run", "ledger"),
    [
        ("t was done 2 times", TASK, ["t", "t"]),
        ("t was done 2 times", TaskRun("t"), ["t", "t"]),
        ("although 1 answers said that nothing had begun", TaskRun("t", refusals=1), ["t", "t"]),
        ("acknowledged as done and was not done", TASK, []),
        ("acknowledged as done and was not done", TaskRun("t", is_acknowledged=True), []),
        ("is lost", replace(TASK, seen=["working", "missing"]), ["t"]),
        ("is stuck: working", replace(TASK, seen=["working"]), ["t"]),
        ("was over and changed", replace(TASK, seen=["failed", "completed"]), ["t"]),
    ],
)
def test_a_broken_run_is_found(finding: str, run: TaskRun, ledger: list[str]) -> None:
    assert any(finding in problem for problem in check_runs([run], ledger))


def test_nothing_is_found_in_sound_runs() -> None:
    assert check_runs([TASK, TaskRun("u"), TaskRun("v", is_acknowledged=True)], ["t", "u", "v"]) == []
    assert check_runs([replace(TASK, is_repeatable=True)], ["t", "t"]) == []
    assert check_runs([TaskRun("u"), replace(TASK, seen=["working", "failed", "failed"])], []) == []


def tolls(*invoked: float) -> list[Toll]:
    """Calls that were sent at these times."""
    return [Toll(f"t{number}", moment) for number, moment in enumerate(invoked)]


def ran(*moments: float) -> dict[str, float]:
    """When these calls ran."""
    return {f"t{number}": moment for number, moment in enumerate(moments)}


def test_more_calls_in_a_window_than_a_limit_allows_are_found() -> None:
    assert len(check_rate(tolls(0, 1, 1.8), ran(0.1, 1.1, 1.9), 2, 2.0)) == 1
    assert check_rate(tolls(5, 0.5, 1.8, 1), ran(5.1, 0.6, 1.9, 1.1), 2, 2.0) == [
        "3 calls were admitted within 2 s from 0.5, 2 are allowed."
    ]


def test_calls_that_may_have_been_admitted_in_different_windows_are_allowed() -> None:
    assert check_rate(tolls(0, 1, 2.1), ran(0.1, 1.1, 2.2), 2, 2.0) == []
    assert check_rate(tolls(0, 1, 1.8), ran(0.1, 1.1, 2.1), 2, 2.0) == []
    assert check_rate(tolls(0, 1, 1.8, 1.9), ran(0.1, 1.1), 2, 2.0) == []
    assert check_rate([], {}, 0, 2.0) == []


def test_more_calls_at_once_than_a_limit_allows_are_found() -> None:
    holds = [Hold(0, 1, 4), Hold(0, 2, 5), Hold(2, 3, 6)]
    assert check_running(holds, 2, 10) == ["3 calls of a principal ran at once at 3, 2 are allowed."]
    assert check_running([*holds, Hold(7, 8), Hold(7, 8, 9), Hold(7, 8, 9)], 2, 10)[1:] == [
        "3 calls of a principal ran at once at 8, 2 are allowed."
    ]
    assert check_running(holds, 3, 10) == []


def test_calls_that_ran_one_after_the_other_or_in_a_stopped_process_are_allowed() -> None:
    assert check_running([Hold(0, 1, 4), Hold(0, 1, 4), Hold(1, 4.5, 6), Hold(0)], 2, 10) == []
    # One began before its process was stopped, one after that, and one was killed.
    assert check_running([Hold(0, 1, 40), Hold(0, 30, 32), Hold(0, 1)], 1, 10) == [
        "2 calls of a principal ran at once at 1, 1 are allowed."
    ]
    assert check_running([Hold(0, 1, 40), Hold(0, 30, 32), Hold(2, 3), Hold(28, 30, 31)], 1, 10) == []
