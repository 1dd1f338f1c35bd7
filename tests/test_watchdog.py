from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from tests.protocol.conftest import asynchronous, stateless, until
from tests.transports.http.conftest import browsing, routing
from waypost import Hub
from waypost.loops import Stall, Watchdog

Runner = Callable[[Coroutine[Any, Any, None]], None]
both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
THRESHOLD = 0.1


def watch(
    run: Runner, work: Callable[[], Coroutine[Any, Any, None]], *, at_least: float = 0.0, min_beats: int = 0
) -> tuple[list[Stall], int]:
    """The stalls while something runs on a loop, and how often the watchdog had the loop give a sign of life.

    Waits until stalls of `at_least` so many seconds were reported, and repeats the work until there were so many signs
    of life: on a busy machine the watchdog's thread may be late.
    """
    stalls: list[Stall] = []
    beats = 0

    class Counted(Watchdog):
        def _note_beat(self) -> None:
            nonlocal beats
            beats += 1
            super()._note_beat()

    async def main() -> None:
        watchdog = Counted(THRESHOLD, stalls.append)
        watchdog.start()
        await work()
        while beats < min_beats:
            await work()
        await asyncio.sleep(2 * THRESHOLD)  # the end of the last turn is seen at the next look
        if at_least:
            await until(lambda: sum(stall.seconds for stall in stalls) > at_least)
        watchdog.stop()

    run(main())
    return stalls, beats


def wait_without_awaiting() -> None:
    time.sleep(8 * THRESHOLD)  # so long that the watchdog's thread looks in between on a busy machine too


def calculate_in_c() -> None:
    began = time.thread_time()
    while time.thread_time() - began < 4 * THRESHOLD:
        sum(range(10_000_000))


@both_loops
def test_a_function_that_waits_without_awaiting_is_named(run: Runner) -> None:
    async def work() -> None:
        wait_without_awaiting()

    stalls, _ = watch(run, work, at_least=6 * THRESHOLD)
    # A busy machine may hold up other turns too.
    (stall,) = [one for one in stalls if one.function.startswith("wait_without_awaiting (")]
    assert stall.seconds > 2 * THRESHOLD
    assert stall.cpu_seconds < THRESHOLD
    assert f"{__file__}:" in stall.function
    assert ".work (" in stall.callers[0]


@both_loops
def test_a_function_that_calculates_is_named_though_other_threads_cannot_run(run: Runner) -> None:
    async def work() -> None:
        calculate_in_c()

    stalls, _ = watch(run, work, at_least=2 * THRESHOLD)
    assert sum(stall.cpu_seconds for stall in stalls) > THRESHOLD
    assert any(stall.function.startswith("calculate_in_c (") for stall in stalls)


@both_loops
def test_many_short_turns_are_not_a_stall(run: Runner) -> None:
    async def work() -> None:
        until = time.monotonic() + 5 * THRESHOLD
        while time.monotonic() < until:
            time.sleep(THRESHOLD / 100)  # noqa: ASYNC251  # a short turn
            await asyncio.sleep(0)

    stalls, beats = watch(run, work, min_beats=4)
    assert [stall for stall in stalls if "test_watchdog.py" in stall.function and stall.cpu_seconds > THRESHOLD] == []
    assert beats > 3


@both_loops
def test_a_loop_that_waits_for_input_is_not_woken(run: Runner) -> None:
    stalls, beats = watch(run, lambda: asyncio.sleep(10 * THRESHOLD))
    # A busy machine may hold up the turns before and after; a loop that is woken gives dozens of signs.
    assert [stall for stall in stalls if stall.seconds > 9 * THRESHOLD] == []
    assert beats <= 5


@asynchronous
async def test_a_hub_logs_and_counts_stalls_of_its_loop(caplog: pytest.LogCaptureFixture) -> None:
    hub = Hub("held", version="1")

    @hub.tool
    async def hold() -> str:
        wait_without_awaiting()
        return "held"

    caplog.set_level(logging.WARNING, "waypost.loops")
    async with browsing(hub) as web:
        call = stateless(1, "tools/call", {"name": "hold", "arguments": {}})
        assert (await web.open_modern(call, routing(call)).done()).status == 200
        counters = hub.core.pipeline.counters
        await until(lambda: counters.stalls)
        metrics = (await web.open("GET", path="/metrics", headers={"accept": "text/plain"}).done()).body.decode()
    assert "the event loop was held for" in caplog.text
    assert "wait_without_awaiting" in caplog.text
    assert f"waypost_loop_stalls_total {counters.stalls}\n" in metrics
    assert counters.stall_seconds > 2 * THRESHOLD
