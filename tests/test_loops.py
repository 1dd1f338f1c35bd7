"""Small matters of asyncio: how long a loop stays awake for an answer, seen from its selector."""

from __future__ import annotations

import asyncio
import itertools
import platform
import selectors
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from waypost import loops
from waypost.loops import BusyPoll, run_to_pause


class Sleeps(selectors.DefaultSelector):
    """Notes how often the loop was ready to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.sleeps += timeout is None or timeout > 0
        return super().select(timeout)


class Time:
    """A clock that goes on by so many vigils whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0
        self.step = 1.0

    def __call__(self) -> float:
        self.now += self.step * loops._BUSY_SECONDS
        return self.now


@pytest.fixture
def selector() -> Sleeps:
    return Sleeps()


@pytest.fixture
def play(selector: Sleeps) -> Iterator[Callable[[Coroutine[Any, Any, None]], None]]:
    loop = asyncio.SelectorEventLoop(selector)
    yield loop.run_until_complete
    loop.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(loops, "perf_counter", clock)
    return clock


Play = Callable[[Coroutine[Any, Any, None]], None]


async def answered(poll: BusyPoll) -> None:
    """Wait for an answer that takes a few milliseconds."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[None] = loop.create_future()
    loop.call_later(0.003, answer.set_result, None)
    poll.wait_for(answer)
    await answer


async def in_vain(poll: BusyPoll) -> None:
    """Begin to wait for an answer that never comes."""
    poll.wait_for(asyncio.get_running_loop().create_future())


def waits_without(poll: BusyPoll, play: Play, clock: Time) -> int:
    """How many waits have no poll before the next one, which is in vain."""
    for number in itertools.count():
        before = clock.now
        play(in_vain(poll))
        if clock.now > before:
            return number
    raise AssertionError


def test_nobody_sleeps_while_a_vigil_is_kept(play: Play, selector: Sleeps, clock: Time) -> None:
    clock.step = 0
    poll = BusyPoll()
    for _ in range(10):
        play(answered(poll))

    assert selector.sleeps == 0


def test_the_loop_sleeps_when_there_is_no_vigil(play: Play, selector: Sleeps, clock: Time) -> None:
    poll = BusyPoll()
    play(in_vain(poll))
    clock.step = 0
    play(answered(poll))

    assert selector.sleeps > 0


def test_a_vigil_ends_when_its_time_is_over(play: Play, selector: Sleeps, clock: Time) -> None:
    clock.step = 1 / 3
    play(answered(BusyPoll()))

    assert selector.sleeps > 0
    assert clock.now < 3 * loops._BUSY_SECONDS


def test_after_vigils_in_vain_there_are_fewer_and_fewer(play: Play, clock: Time) -> None:
    poll = BusyPoll()
    rests = [waits_without(poll, play, clock) for _ in range(13)]

    assert rests == [0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]


def test_one_answer_in_time_makes_up_for_all_in_vain(play: Play, clock: Time) -> None:
    poll = BusyPoll()
    assert [waits_without(poll, play, clock) for _ in range(3)] == [0, 2, 4]
    for _ in range(8):
        play(in_vain(poll))
    clock.step = 0
    play(answered(poll))
    clock.step = 1

    assert [waits_without(poll, play, clock) for _ in range(3)] == [0, 2, 4]


MEMORY_USE = """
import os, sys
from waypost.loops import return_large_blocks

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

if sys.argv[1] == "set":
    return_large_blocks()
before = resident()
bytearray(b"x") * 8_000_000
kept = []
for _ in range(5):
    blocks = []
    for _ in range(10):
        blocks.append(b"x" * 8_000_000)
        kept.append(b"y" * 100_000)
    blocks.clear()
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_the_memory_of_large_messages_is_returned_to_the_system() -> None:
    def measure(setting: str) -> int:
        command = [sys.executable, "-c", MEMORY_USE, setting]
        return int(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout)

    assert measure("set") < 30_000_000 < measure("default")


def test_what_ends_at_once_has_its_result_without_a_wait() -> None:
    async def answer() -> str:
        return "at once"

    async def use() -> str | None:
        return run_to_pause(answer())[0]

    assert asyncio.run(use()) == "at once"


def test_what_pauses_goes_on_when_its_rest_is_awaited() -> None:
    async def answer(first: asyncio.Future[str]) -> str:
        return await first + await asyncio.wait_for(asyncio.sleep(0, "then"), 10)

    async def use() -> tuple[str | None, str]:
        first = asyncio.get_running_loop().create_future()
        ended, rest = run_to_pause(answer(first))
        asyncio.get_running_loop().call_soon(first.set_result, "first, ")
        return ended, await rest

    assert asyncio.run(use()) == (None, "first, then")


def test_a_cancellation_reaches_what_has_paused() -> None:
    seen: list[str] = []

    async def answer() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def use() -> None:
        _, rest = run_to_pause(answer())
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await rest

    asyncio.run(use())
    assert seen == ["cancelled"]


def test_an_error_before_the_first_pause_is_raised() -> None:
    async def answer() -> None:
        raise LookupError("none")

    async def use() -> None:
        with pytest.raises(LookupError):
            run_to_pause(answer())

    asyncio.run(use())
