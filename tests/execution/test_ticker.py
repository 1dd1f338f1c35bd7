from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from waypost.execution.limits import TICK_S, Ticker, ticker


class Bell:
    """Records its name when it is due."""

    def __init__(self, name: str, rung: list[str], then: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.due = 0.0
        self._rung = rung
        self._then = then

    def on_due(self) -> None:
        self._rung.append(self.name)
        self._then()


class Loop(asyncio.SelectorEventLoop):
    """A loop with a manual clock that records its timers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.timers: list[tuple[float, Callable[..., object]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], *_: Any, **__: Any) -> Any:  # type: ignore[override]
        self.timers.append((self.now + delay, callback))

    def pass_by(self, seconds: float) -> None:
        """Advance the clock and run everything that is due meanwhile."""
        until = self.now + seconds
        while self.timers and min(self.timers, key=lambda timer: timer[0])[0] <= until:
            timer = min(self.timers, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now = timer[0]
            timer[1]()
        self.now = until


@pytest.fixture
def loop() -> Any:
    loop = Loop()
    yield loop
    loop.close()


def test_an_entry_is_called_when_it_is_due_or_at_most_a_tick_later(loop: Loop) -> None:
    rung: list[str] = []
    Ticker(loop).add(Bell("a", rung), 1.0)
    loop.pass_by(0.999)
    assert rung == []
    loop.pass_by(0.001 + TICK_S)
    assert rung == ["a"]


def test_entries_are_called_once_in_the_order_they_are_due(loop: Loop) -> None:
    rung: list[str] = []
    clock = Ticker(loop)
    for name, seconds in (("late", 0.9), ("soon", 0.1), ("next", 0.5)):
        clock.add(Bell(name, rung), seconds)
    loop.pass_by(5)
    assert rung == ["soon", "next", "late"]


def test_all_entries_due_in_one_tick_are_called_in_it(loop: Loop) -> None:
    rung: list[str] = []
    clock = Ticker(loop)
    for number in range(20):
        clock.add(Bell(str(number), rung), 0.1 + number * TICK_S / 40)
    loop.pass_by(0.1 + 2 * TICK_S)
    assert sorted(rung, key=int) == [str(number) for number in range(20)]


def test_a_discarded_entry_is_never_called(loop: Loop) -> None:
    rung: list[str] = []
    clock = Ticker(loop)
    kept, dropped = Bell("kept", rung), Bell("dropped", rung)
    clock.add(kept, 0.1)
    clock.add(dropped, 0.1)
    clock.waiting.discard(dropped)
    clock.waiting.discard(dropped)
    loop.pass_by(1)
    assert rung == ["kept"]


def test_an_entry_may_be_discarded_after_it_was_called(loop: Loop) -> None:
    rung: list[str] = []
    clock = Ticker(loop)
    bell = Bell("a", rung)
    clock.add(bell, 0)
    loop.pass_by(1)
    clock.waiting.discard(bell)
    assert rung == ["a"]


def test_an_entry_that_is_added_again_is_called_at_its_new_time_only(loop: Loop) -> None:
    rung: list[str] = []
    clock = Ticker(loop)
    bell = Bell("a", rung)
    clock.add(bell, 0.1)
    clock.add(bell, 1.0)
    loop.pass_by(0.9)
    assert rung == []
    loop.pass_by(0.2)
    assert rung == ["a"]


def test_an_entry_may_add_itself_and_others_while_it_is_called(loop: Loop) -> None:
    rung: list[str] = []
    clock = Ticker(loop)

    def again() -> None:
        if len(rung) < 3:
            clock.add(first, 0.1)
            clock.add(Bell("other", rung), 10)

    first = Bell("first", rung, again)
    clock.add(first, 0.1)
    loop.pass_by(1)
    assert rung == ["first", "first", "first"]
    assert len(loop.timers) == 1


def test_all_entries_share_one_timer(loop: Loop) -> None:
    clock = Ticker(loop)
    for _ in range(100):
        clock.add(Bell("a", []), 1)
    assert len(loop.timers) == 1


def test_the_ticker_stops_without_entries_and_starts_again(loop: Loop) -> None:
    rung: list[str] = []
    clock = Ticker(loop)
    assert loop.timers == []
    bell = Bell("a", rung)
    clock.add(bell, 10)
    clock.waiting.discard(bell)
    loop.pass_by(TICK_S)
    assert loop.timers == []
    clock.add(Bell("b", rung), 0.1)
    assert len(loop.timers) == 1
    loop.pass_by(1)
    assert (rung, loop.timers) == (["b"], [])


def test_every_loop_has_its_own_ticker() -> None:
    async def own() -> Ticker:
        assert ticker() is ticker()
        return ticker()

    with asyncio.Runner() as one, asyncio.Runner() as other:
        first, second = one.run(own()), other.run(own())
    assert first is not second


def test_alternating_loops_do_not_lose_each_others_entries() -> None:
    rung: list[str] = []

    async def add(name: str) -> asyncio.Event:
        heard = asyncio.Event()
        ticker().add(Bell(name, rung, heard.set), 0)
        return heard

    async def hear(heard: asyncio.Event) -> None:
        async with asyncio.timeout(60):
            await heard.wait()

    with asyncio.Runner() as one, asyncio.Runner() as other:
        first, second = one.run(add("one")), other.run(add("other"))
        one.run(hear(first))
        assert rung == ["one"]
        other.run(hear(second))
    assert rung == ["one", "other"]
