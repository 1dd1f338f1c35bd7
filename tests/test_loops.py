"""Small matters of asyncio: how long a loop stays awake for an answer, seen from its selector."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from typing import Any

import pytest

from waypost import loops
from waypost.loops import Vigil


class Sleeps(selectors.DefaultSelector):
    """Notes how often the loop was ready to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.sleeps += timeout is None or timeout > 0
        return super().select(timeout)


class Time:
    """A clock that goes on by a step whenever somebody looks."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def selector() -> Sleeps:
    return Sleeps()


@pytest.fixture
def play(selector: Sleeps) -> Iterator[Callable[[Coroutine[Any, Any, None]], None]]:
    loop = asyncio.SelectorEventLoop(selector)
    yield loop.run_until_complete
    loop.close()


async def answered(vigil: Vigil) -> None:
    """Wait for an answer that takes a few milliseconds."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[None] = loop.create_future()
    loop.call_later(0.003, answer.set_result, None)
    vigil.keep(answer)
    await answer


Play = Callable[[Coroutine[Any, Any, None]], None]


def test_nobody_sleeps_while_a_vigil_is_kept(play: Play, selector: Sleeps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "perf_counter", Time(0))
    vigil = Vigil()
    for _ in range(10):
        play(answered(vigil))

    assert selector.sleeps == 0


def test_the_loop_sleeps_when_there_is_no_vigil(play: Play, selector: Sleeps) -> None:
    vigil = Vigil()
    vigil._rest = 1
    play(answered(vigil))

    assert selector.sleeps > 0


def test_a_vigil_ends_when_its_time_is_over(play: Play, selector: Sleeps, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Time(loops._AWAKE / 3)
    monkeypatch.setattr(loops, "perf_counter", clock)

    async def wait() -> None:
        Vigil().keep(asyncio.get_running_loop().create_future())
        await asyncio.sleep(0.01)

    play(wait())
    assert selector.sleeps > 0
    assert clock.now < 3 * loops._AWAKE


def test_after_vigils_in_vain_there_are_fewer_and_fewer(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "perf_counter", Time(loops._AWAKE))
    looks: list[int] = []
    vigil = Vigil()

    async def wait(number: int) -> None:
        before = loops.perf_counter.now  # type: ignore[attr-defined]  # it is ours
        vigil.keep(asyncio.get_running_loop().create_future())
        await asyncio.sleep(0)
        if loops.perf_counter.now > before:  # type: ignore[attr-defined]
            looks.append(number)

    for number in range(4000):
        play(wait(number))

    assert looks[:5] == [0, 3, 8, 17, 34]
    assert max(later - one for one, later in pairwise(looks)) == loops._LONGEST_REST + 1


def test_one_answer_in_time_makes_up_for_all_in_vain(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    vigil = Vigil()
    vigil._in_vain = 512
    monkeypatch.setattr(loops, "perf_counter", Time(0))
    play(answered(vigil))

    assert vigil._in_vain == 1
