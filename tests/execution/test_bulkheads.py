"""Bulkheads: a limit of concurrent executions per principal, a queue for the rest, and no lost slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.conftest import asynchronous, idle
from waypost.errors import Busy, CallError
from waypost.execution.limits import Bulkheads


class Work:
    """Executions that hold their slots until the test ends them."""

    def __init__(self, bulkheads: Bulkheads, within: float = 60.0) -> None:
        self.bulkheads = bulkheads
        self.within = within
        self.running: list[str] = []
        self.ended: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, name: str) -> None:
        """Begin an execution whose principal is the first letter of the name."""
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.get_running_loop().create_task(self._run(name))

    async def _run(self, name: str) -> None:
        if not self.bulkheads.try_acquire(name[0]):
            await self.bulkheads.acquire(name[0], self.within)
        self.running.append(name)
        try:
            await self._ends[name].wait()
        finally:
            self.running.remove(name)
            self.bulkheads.release(name[0])
            self.ended.append(name)

    def end(self, name: str) -> None:
        self._ends[name].set()

    async def end_all(self) -> None:
        for end in self._ends.values():
            end.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


def is_empty(bulkheads: Bulkheads) -> bool:
    return bulkheads._running == {} and bulkheads._waiting.total == 0


def test_the_default_limits_are_the_documented_ones() -> None:
    bulkheads = Bulkheads()
    assert (bulkheads._max_running, bulkheads._waiting.limit) == (64, 10_000)
    assert issubclass(Busy, CallError)


@asynchronous
async def test_an_execution_that_gets_no_slot_in_time_is_refused_and_leaves_the_queue() -> None:
    work = Work(Bulkheads(1), within=0.01)
    work.begin("a0")
    await idle()
    work.begin("a1")
    with pytest.raises(Busy, match=r"1 executions? .* run already \(maxRunning\), and none ended within 0\.01 s"):
        await work.tasks["a1"]
    assert work.running == ["a0"]
    await work.end_all()
    assert is_empty(work.bulkheads)
    assert work.bulkheads.try_acquire("a")


@asynchronous
async def test_executions_beyond_the_limit_run_in_order_of_arrival() -> None:
    work = Work(Bulkheads(2))
    for number in range(5):
        work.begin(f"a{number}")
    await idle()
    assert work.running == ["a0", "a1"]

    work.end("a1")
    await idle()
    assert work.running == ["a0", "a2"]
    work.end("a0")
    work.end("a2")
    await idle()
    assert work.running == ["a3", "a4"]
    await work.end_all()
    assert is_empty(work.bulkheads)


@asynchronous
async def test_other_principals_do_not_wait() -> None:
    work = Work(Bulkheads(1))
    for name in ("a0", "a1", "a2", "b0", "c0"):
        work.begin(name)
    await idle()

    assert work.running == ["a0", "b0", "c0"]
    await work.end_all()
    assert is_empty(work.bulkheads)


@asynchronous
async def test_a_newcomer_gets_no_slot_before_queued_executions() -> None:
    work = Work(Bulkheads(1))
    work.begin("a0")
    work.begin("a1")
    await idle()
    work.bulkheads.release("a")  # by hand: the slot is assigned to a1, which has not run yet

    assert not work.bulkheads.try_acquire("a")
    await idle()
    assert work.running == ["a0", "a1"]
    work.bulkheads._running["a"] += 1
    await work.end_all()
    assert is_empty(work.bulkheads)


@asynchronous
async def test_cancelling_a_queued_execution_does_not_block_the_queue() -> None:
    work = Work(Bulkheads(1))
    for name in ("a0", "a1", "a2"):
        work.begin(name)
    await idle()
    work.tasks["a1"].cancel()
    await idle()
    work.end("a0")
    await idle()

    assert work.running == ["a2"]
    assert work.tasks["a1"].cancelled()
    await work.end_all()
    assert is_empty(work.bulkheads)


@asynchronous
async def test_the_last_waiting_execution_that_is_cancelled_leaves_no_queue_behind() -> None:
    work = Work(Bulkheads(1))
    for name in ("a0", "a1", "a2"):
        work.begin(name)
    await idle()
    work.tasks["a1"].cancel()
    await idle()
    assert list(work.bulkheads._queues) == ["a"]
    work.tasks["a2"].cancel()
    await idle()
    assert work.bulkheads._queues == {}
    await work.end_all()
    assert is_empty(work.bulkheads)


@asynchronous
async def test_an_execution_cancelled_as_it_gets_a_slot_passes_the_slot_on() -> None:
    work = Work(Bulkheads(1))
    for name in ("a0", "a1", "a2"):
        work.begin(name)
    await idle()
    work.end("a0")
    await asyncio.sleep(0)
    assert work.ended == ["a0"]
    assert work.running == []
    work.tasks["a1"].cancel()
    await idle()

    assert work.tasks["a1"].cancelled()
    assert work.running == ["a2"]
    await work.end_all()
    assert is_empty(work.bulkheads)


@asynchronous
async def test_a_slot_released_just_before_a_cancellation_goes_to_the_next_execution() -> None:
    work = Work(Bulkheads(1))
    for name in ("a0", "a1", "a2"):
        work.begin(name)
    await idle()
    work.end("a0")
    work.tasks["a1"].cancel()  # a0 releases its slot before a1 is cancelled
    await idle()

    assert work.tasks["a1"].cancelled()
    assert work.running == ["a2"]
    await work.end_all()
    assert is_empty(work.bulkheads)


@asynchronous
async def test_a_full_queue_refuses_with_the_name_of_the_limit() -> None:
    work = Work(Bulkheads(1, max_waiting=2))
    for name in ("a0", "a1", "a2", "a3"):
        work.begin(name)
    await idle()

    with pytest.raises(Busy, match=r"^Busy: 2 executions are waiting already \(maxWaiting\); try again later\.$"):
        await work.tasks["a3"]
    work.begin("b0")
    work.begin("b1")
    await idle()
    assert "b0" in work.running
    with pytest.raises(Busy):
        await work.tasks["b1"]
    await work.end_all()
    assert is_empty(work.bulkheads)


@asynchronous
async def test_a_cancelled_execution_makes_room_in_the_queue() -> None:
    work = Work(Bulkheads(1, max_waiting=1))
    work.begin("a0")
    work.begin("a1")
    await idle()
    work.tasks["a1"].cancel()
    await idle()
    work.begin("a2")
    await idle()
    work.end("a0")
    await idle()

    assert work.running == ["a2"]
    await work.end_all()
    assert is_empty(work.bulkheads)


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from("abc")),
        st.tuples(st.sampled_from(["end", "cancel"]), st.integers(0, 20)),
        st.just(("wait", 0)),
    ),
    max_size=60,
)


@settings(max_examples=200)
@given(MOVES, st.integers(1, 3), st.integers(0, 6))
def test_no_slot_is_lost_or_assigned_twice_in_any_order_of_events(
    moves: list[tuple[str, str | int]], at_once: int, max_waiting: int
) -> None:
    async def play() -> None:
        work = Work(Bulkheads(at_once, max_waiting))
        count = 0
        for move, which in moves:
            names = [name for name, task in work.tasks.items() if not task.done()]
            match move:
                case "begin":
                    work.begin(f"{which}{count}")
                    count += 1
                case "wait":
                    await idle()
                case _ if names:
                    act: Callable[[str], object] = work.end if move == "end" else lambda name: work.tasks[name].cancel()
                    act(names[int(which) % len(names)])
            for who in "abc":
                assert sum(name[0] == who for name in work.running) <= at_once
        await idle()
        for who in "abc":
            mine = [name for name, task in work.tasks.items() if name[0] == who and not task.done()]
            assert len([name for name in work.running if name[0] == who]) == min(len(mine), at_once)
        await work.end_all()
        assert is_empty(work.bulkheads)
        failures = [task.exception() for task in work.tasks.values() if not task.cancelled()]
        assert [error for error in failures if error is not None and not isinstance(error, Busy)] == []

    asyncio.run(play())
