"""Bulkheads: so many at once for each principal, the others in line, and no place is ever lost."""

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
    """Executions that hold their places until they are told to end."""

    def __init__(self, bulkheads: Bulkheads) -> None:
        self.bulkheads = bulkheads
        self.running: list[str] = []
        self.ended: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, name: str) -> None:
        """Begin one; its principal is the first letter."""
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.get_running_loop().create_task(self._run(name))

    async def _run(self, name: str) -> None:
        if not self.bulkheads.try_acquire(name[0]):
            await self.bulkheads.acquire(name[0])
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


def test_the_limits_are_those_that_are_promised() -> None:
    bulkheads = Bulkheads()
    assert (bulkheads._max_running, bulkheads._waiting.limit) == (64, 10_000)
    assert issubclass(Busy, CallError)


@asynchronous
async def test_so_many_run_at_once_and_the_others_in_the_order_they_came() -> None:
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
async def test_nobody_who_comes_later_gets_a_place_before_those_in_line() -> None:
    work = Work(Bulkheads(1))
    work.begin("a0")
    work.begin("a1")
    await idle()
    work.bulkheads.release("a")  # by hand, so that the place is on its way to a1 and a1 has not woken yet

    assert not work.bulkheads.try_acquire("a")
    await idle()
    assert work.running == ["a0", "a1"]
    work.bulkheads._running["a"] += 1
    await work.end_all()
    assert is_empty(work.bulkheads)


@asynchronous
async def test_who_leaves_the_line_leaves_no_hole_in_it() -> None:
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
async def test_who_leaves_the_line_in_the_moment_a_place_comes_hands_it_on() -> None:
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
async def test_a_place_that_comes_right_after_somebody_left_the_line_goes_to_the_next() -> None:
    work = Work(Bulkheads(1))
    for name in ("a0", "a1", "a2"):
        work.begin(name)
    await idle()
    work.end("a0")
    work.tasks["a1"].cancel()  # a0 gives its place back before a1 hears of its own end
    await idle()

    assert work.tasks["a1"].cancelled()
    assert work.running == ["a2"]
    await work.end_all()
    assert is_empty(work.bulkheads)


@asynchronous
async def test_more_than_the_line_holds_are_refused_by_name_of_the_limit() -> None:
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
async def test_there_is_room_in_line_again_when_somebody_left_it() -> None:
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
def test_whatever_comes_and_goes_no_place_is_lost_and_none_is_given_twice(
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
