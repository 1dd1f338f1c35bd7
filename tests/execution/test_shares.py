from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.conftest import asynchronous, idle
from waypost.errors import Busy
from waypost.execution.limits import FACTOR, FairQueue, FairSlots, Shares


@pytest.mark.parametrize(("limit", "share"), [(1, 1), (5, 5), (9, 9), (10, 9), (32, 29), (1000, 900)])
def test_a_single_principal_gets_nine_tenths_or_all_of_fewer_than_ten_units(limit: int, share: int) -> None:
    shares = Shares(limit)
    assert sum(shares.try_take("a") for _ in range(2 * limit)) == share
    assert shares.try_take("b") == (limit >= 10)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=400), st.integers(0, 60))
def test_the_limit_is_never_exceeded_and_a_free_unit_is_left_for_a_newcomer(
    moves: list[tuple[str, bool]], limit: int
) -> None:
    shares = Shares(limit)
    for principal, takes in moves:
        if takes:
            shares.try_take(principal)
        elif principal in shares.held:
            shares.give_back(principal)
        assert sum(shares.held.values()) == shares.total <= limit
        assert all(shares.held.values())
        if shares.total < limit:
            assert shares.try_take("newcomer")
            shares.give_back("newcomer")


def test_principals_take_turns_when_a_unit_is_free() -> None:
    queue: FairQueue[str] = FairQueue(1, 100, "wait")
    assert queue.enter("a", "a1")
    assert not any(queue.enter(name[0], name) for name in ("a2", "a3", "a4", "b1", "b2", "c1"))
    order, running = [], "a1"
    while (started := queue.leave(running[0])) != []:
        (running,) = started
        order.append(running)
    assert order == ["a2", "b1", "c1", "a3", "b2", "a4"]
    assert queue.running.total == 0


def test_a_waiting_item_can_be_withdrawn() -> None:
    queue: FairQueue[str] = FairQueue(1, 2, "calls wait")
    assert queue.enter("a", "a1")
    assert not queue.enter("a", "a2")
    assert not queue.enter("a", "a3")
    with pytest.raises(Busy, match=r"^2 calls wait already; try again later\.$"):
        queue.enter("b", "b1")
    queue.withdraw("a", "a2")
    assert not queue.enter("b", "b1")
    assert queue.leave("a") == ["a3"]
    assert queue.leave("a") == ["b1"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["enter", "leave", "withdraw"])), max_size=200))
def test_no_item_waits_that_could_have_a_unit(moves: list[tuple[str, str]]) -> None:
    queue: FairQueue[int] = FairQueue(20, 50, "wait")
    running: dict[str, list[int]] = {name: [] for name in "abc"}
    waiting: dict[str, list[int]] = {name: [] for name in "abc"}
    owner: dict[int, str] = {}
    for number, (name, move) in enumerate(moves):
        owner[number] = name
        if move == "enter":
            (running if queue.enter(name, number) else waiting)[name].append(number)
        elif move == "leave" and running[name]:
            running[name].pop()
            for started in queue.leave(name):
                waiting[owner[started]].remove(started)
                running[owner[started]].append(started)
        elif move == "withdraw" and waiting[name]:
            queue.withdraw(name, waiting[name].pop())
        free = 20 - sum(map(len, running.values()))
        assert queue.running.total == 20 - free
        assert all(len(running[who]) >= FACTOR * free for who, items in waiting.items() if items)


@asynchronous
async def test_slots_go_in_turn_to_principals_that_still_wait() -> None:
    slots, order = FairSlots(1, 10, "wait"), []

    async def use(name: str) -> None:
        await slots.acquire(name[0])
        order.append(name)

    await use("a1")
    tasks = {name: asyncio.create_task(use(name)) for name in ("a2", "a3", "b1", "c1")}
    await idle()
    tasks["a2"].cancel()
    slots.release("a")  # before the cancelled task has run
    await idle()
    assert order == ["a1", "b1"]
    slots.release("b")
    await idle()
    slots.release(order[-1][0])
    await idle()
    assert sorted(order) == ["a1", "a3", "b1", "c1"]
    slots.release(order[-1][0])
    assert slots._queue.running.total == 0


@asynchronous
async def test_a_slot_assigned_to_a_cancelled_task_is_passed_on() -> None:
    slots = FairSlots(1, 10, "wait")
    await slots.acquire("a")
    first, second = asyncio.create_task(slots.acquire("a")), asyncio.create_task(slots.acquire("b"))
    await idle()
    slots.release("a")
    first.cancel()
    await asyncio.wait((first,))
    await asyncio.wait_for(second, 60)
    slots.release("b")
    assert slots._queue.running.total == 0
