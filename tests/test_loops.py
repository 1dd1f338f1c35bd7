"""Helpers for asyncio: busy polling as seen by the loop's selector, eager awaiting, and locks per key."""

from __future__ import annotations

import asyncio
import gc
import itertools
import platform
import selectors
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from waypost import loops
from waypost.loops import BusyPoll, KeyLocks, run_to_pause


class Sleeps(selectors.DefaultSelector):
    """A selector that counts how often the loop was ready to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.sleeps += timeout is None or timeout > 0
        return super().select(timeout)


class Time:
    """A clock that advances by `step` poll times with every reading."""

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


async def wait_answered(poll: BusyPoll) -> None:
    """Wait for an answer that takes a few milliseconds."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[None] = loop.create_future()
    loop.call_later(0.003, answer.set_result, None)
    poll.wait_for(answer)
    await answer


async def wait_unanswered(poll: BusyPoll) -> None:
    """Begin to wait for an answer that never comes."""
    poll.wait_for(asyncio.get_running_loop().create_future())


def count_unpolled_waits(poll: BusyPoll, play: Play, clock: Time) -> int:
    """How many unanswered waits are not polled before the next one that is."""
    for number in itertools.count():
        before = clock.now
        play(wait_unanswered(poll))
        if clock.now > before:
            return number
    raise AssertionError


def test_the_loop_does_not_sleep_while_it_polls(play: Play, selector: Sleeps, clock: Time) -> None:
    clock.step = 0
    poll = BusyPoll()
    for _ in range(10):
        play(wait_answered(poll))

    assert selector.sleeps == 0


def test_the_loop_sleeps_while_it_does_not_poll(play: Play, selector: Sleeps, clock: Time) -> None:
    poll = BusyPoll()
    play(wait_unanswered(poll))
    clock.step = 0
    play(wait_answered(poll))

    assert selector.sleeps > 0


def test_a_poll_ends_after_its_time(play: Play, selector: Sleeps, clock: Time) -> None:
    clock.step = 1 / 3
    play(wait_answered(BusyPoll()))

    assert selector.sleeps > 0
    assert clock.now < 3 * loops._BUSY_SECONDS


def test_unanswered_polls_become_exponentially_rarer(play: Play, clock: Time) -> None:
    poll = BusyPoll()
    rests = [count_unpolled_waits(poll, play, clock) for _ in range(13)]

    assert rests == [0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]


def test_one_answered_poll_resets_the_backoff(play: Play, clock: Time) -> None:
    poll = BusyPoll()
    assert [count_unpolled_waits(poll, play, clock) for _ in range(3)] == [0, 2, 4]
    for _ in range(8):
        play(wait_unanswered(poll))
    clock.step = 0
    play(wait_answered(poll))
    clock.step = 1

    assert [count_unpolled_waits(poll, play, clock) for _ in range(3)] == [0, 2, 4]


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


def test_a_coroutine_that_never_pauses_returns_its_result_at_once() -> None:
    async def answer() -> str:
        return "at once"

    async def use() -> str | None:
        return run_to_pause(answer())[0]

    assert asyncio.run(use()) == "at once"


def test_a_paused_coroutine_continues_when_its_rest_is_awaited() -> None:
    async def answer(first: asyncio.Future[str]) -> str:
        return await first + await asyncio.wait_for(asyncio.sleep(0, "then"), 60)

    async def use() -> tuple[str | None, str]:
        first = asyncio.get_running_loop().create_future()
        ended, rest = run_to_pause(answer(first))
        asyncio.get_running_loop().call_soon(first.set_result, "first, ")
        return ended, await rest

    assert asyncio.run(use()) == (None, "first, then")


def test_a_cancellation_reaches_a_paused_coroutine() -> None:
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


def test_a_key_has_one_lock_while_it_is_used_and_none_afterwards() -> None:
    async def scenario() -> None:
        locks, order = KeyLocks(), []

        async def work(key: str, name: str) -> None:
            async with locks[key]:
                order.append(f"{name} begins")
                await asyncio.sleep(0)
                order.append(f"{name} ends")

        await asyncio.gather(work("a", "first"), work("a", "second"), work("b", "other"))
        assert order.index("first ends") < order.index("second begins")
        assert order.index("other begins") < order.index("first ends")
        gc.collect()
        assert not len(locks._locks)

    asyncio.run(scenario())


def test_the_interpreter_is_handed_over_within_a_millisecond() -> None:
    before = sys.getswitchinterval()
    try:
        loops.share_interpreter()
        assert sys.getswitchinterval() < 0.001
    finally:
        sys.setswitchinterval(before)


HEAPS = """
import ctypes, os, sys, threading
from waypost.loops import return_large_blocks

if sys.argv[1] == "set":
    return_large_blocks()
kept = []
threads = [threading.Thread(target=lambda: kept.append(b"x" * 100_000)) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
output = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, output)
libc.fflush(output)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_threads_share_one_heap() -> None:
    def count(setting: str) -> int:
        command = [sys.executable, "-c", HEAPS, setting]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout.count(b"<heap nr=")

    assert count("set") == 1 < count("default")
