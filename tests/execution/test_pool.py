from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.protocol.conftest import until
from waypost.errors import Busy
from waypost.execution.pool import Pool

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class Gate:
    """A synchronous call that signals its start and waits to be opened."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.opened = threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self) -> str:
        self.thread = threading.current_thread()
        self.started.set()
        assert self.opened.wait(60)
        return "through"

    async def entered(self) -> None:
        assert await asyncio.to_thread(self.started.wait, 10)

    def open_and_join(self) -> None:
        """Open it and wait until its thread has ended."""
        self.opened.set()
        if self.thread is not None:
            self.thread.join(60)
            assert not self.thread.is_alive()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


def run(pool: Pool, function: Callable[..., Any], *args: Any) -> Any:
    async def scenario() -> Any:
        return await asyncio.wait_for(pool.run("work", function, *args), 60)

    return asyncio.run(scenario())


def test_a_call_runs_in_another_thread_and_returns_its_value() -> None:
    assert run(Pool(), lambda a, b: (a + b, threading.current_thread() is threading.main_thread()), 1, 2) == (3, False)


def test_an_exception_reaches_the_caller() -> None:
    def fail() -> None:
        raise ValueError("from the thread")

    with pytest.raises(ValueError, match="from the thread"):
        run(Pool(), fail)


def test_stop_iteration_is_not_lost_in_the_loop() -> None:
    def fail() -> None:
        raise StopIteration("value")

    with pytest.raises(RuntimeError, match="StopIteration"):
        run(Pool(), fail)


def test_context_variables_reach_the_thread_and_stay_there() -> None:
    def read_and_write() -> str:
        seen = who.get()
        who.set("thread")
        return seen

    async def scenario() -> tuple[str, str]:
        who.set("caller")
        return await Pool().run("work", read_and_write), who.get()

    assert asyncio.run(scenario()) == ("caller", "caller")


def test_calls_run_side_by_side_up_to_the_size() -> None:
    meeting = threading.Barrier(3, timeout=60)

    async def scenario() -> None:
        pool = Pool(size=3)
        await asyncio.gather(*(pool.run("work", meeting.wait) for _ in range(3)))

    asyncio.run(scenario())


def test_no_more_calls_run_at_once_than_the_size() -> None:
    lock = threading.Lock()
    running = most = 0

    def work() -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.002)
        with lock:
            running -= 1
        return threading.get_ident()

    async def scenario() -> set[int]:
        pool = Pool(size=2)
        return set(await asyncio.gather(*(pool.run("work", work) for _ in range(20))))

    assert len(asyncio.run(scenario())) <= 2
    assert most <= 2


def test_too_many_waiting_calls_are_refused_with_the_limit(gate: Gate) -> None:
    async def scenario() -> None:
        pool = Pool(size=1, max_waiting=1)
        first = asyncio.create_task(pool.run("first", gate))
        await gate.entered()
        second = asyncio.create_task(pool.run("second", lambda: "waited"))
        await asyncio.sleep(0)
        with pytest.raises(Busy, match=r"^1 synchronous calls are waiting"):
            await pool.run("third", lambda: None)
        gate.opened.set()
        assert (await first, await second) == ("through", "waited")
        assert await pool.run("fourth", lambda: "room again") == "room again"

    asyncio.run(scenario())


def test_a_cancelled_call_is_logged_and_frees_its_slot(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> Pool:
        pool = Pool(size=1, max_waiting=0)
        stuck = asyncio.create_task(pool.run("the tool", gate))
        await gate.entered()
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        assert pool.stuck == 1
        assert await asyncio.wait_for(pool.run("next", lambda: "next"), 60) == "next"
        return pool

    pool = asyncio.run(scenario())
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "the tool is synchronous and cannot be stopped; its thread runs on until it returns")
    ]
    gate.open_and_join()
    assert pool.stuck == 0


def test_a_cancelled_call_that_ends_does_not_enlarge_the_pool(gate: Gate) -> None:
    async def scenario() -> None:
        pool = Pool(size=1, max_waiting=1)
        stuck = asyncio.create_task(pool.run("stuck", gate))
        await gate.entered()
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        await asyncio.to_thread(gate.open_and_join)
        later = Gate()
        first = asyncio.create_task(pool.run("first", later))
        await later.entered()
        second = asyncio.create_task(pool.run("second", lambda: "second"))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await pool.run("third", lambda: None)
        later.opened.set()
        assert (await first, await second) == ("through", "second")

    asyncio.run(scenario())


def test_a_call_cancelled_before_it_started_never_runs_and_is_not_logged(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    ran = []

    async def scenario() -> None:
        pool = Pool(size=1, max_waiting=1)
        first = asyncio.create_task(pool.run("first", gate))
        await gate.entered()
        waiting = asyncio.create_task(pool.run("waiting", lambda: ran.append(True)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert pool.stuck == 0
        after = asyncio.create_task(pool.run("after", lambda: "after"))
        gate.opened.set()
        assert (await first, await after) == ("through", "after")

    asyncio.run(scenario())
    assert ran == []
    assert caplog.records == []


def test_closing_ends_idle_threads() -> None:
    pool = Pool()
    thread = run(pool, threading.current_thread)
    pool.close()
    thread.join(60)
    assert not thread.is_alive()


def test_closing_lets_busy_threads_finish(gate: Gate) -> None:
    async def scenario() -> str:
        pool = Pool()
        running = asyncio.create_task(pool.run("work", gate))
        await gate.entered()
        pool.close()
        gate.opened.set()
        return await asyncio.wait_for(running, 60)

    assert asyncio.run(scenario()) == "through"
    gate.open_and_join()


def test_a_closed_pool_can_be_used_again() -> None:
    pool = Pool(size=1)
    for _ in range(3):
        assert run(pool, lambda: "done") == "done"
        pool.close()
        pool.close()


def test_a_finished_call_keeps_no_reference_to_its_arguments() -> None:
    class Argument:
        pass

    async def scenario() -> None:
        pool = Pool()
        argument = Argument()
        alive = weakref.ref(argument)
        await pool.run("work", lambda _: None, argument)
        del argument
        gc.collect()
        assert alive() is None

    asyncio.run(scenario())


def test_a_call_cancelled_after_closing_does_not_enlarge_the_pool(gate: Gate) -> None:
    async def scenario() -> None:
        pool = Pool(size=1)
        stuck = asyncio.create_task(pool.run("stuck", gate))
        await gate.entered()
        pool.close()
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        later = Gate()
        first = asyncio.create_task(pool.run("first", later))
        await later.entered()
        second = asyncio.create_task(pool.run("second", threading.current_thread))
        # A spare thread would have run this before the first call is opened.
        await asyncio.wait([second], timeout=0.1)
        assert not second.done()
        later.opened.set()
        assert await first == "through"
        assert await second is later.thread

    asyncio.run(scenario())


def test_calls_that_wait_while_the_pool_closes_still_run(gate: Gate) -> None:
    async def scenario() -> None:
        pool = Pool(size=1)
        first = asyncio.create_task(pool.run("first", gate))
        await gate.entered()
        second = asyncio.create_task(pool.run("second", lambda: "second"))
        await asyncio.sleep(0)
        pool.close()
        gate.opened.set()
        assert (await first, await asyncio.wait_for(second, 60)) == ("through", "second")

    asyncio.run(scenario())


def test_cancelled_calls_start_a_bounded_number_of_threads(gate: Gate) -> None:
    async def scenario() -> None:
        pool, running = Pool(size=2, max_stuck=3), []

        def block() -> None:
            running.append(1)
            gate()

        for number in range(10):
            job = asyncio.create_task(pool.run("stuck", block))
            if number < 5:
                await until(lambda: len(running) > number)  # noqa: B023  # awaited at once
            job.cancel()
            await asyncio.wait((job,))
        assert (len(running), pool.stuck) == (5, 3)
        waiting = asyncio.create_task(pool.run("next", lambda: "next"))
        assert not (await asyncio.wait((waiting,), timeout=0.05))[0]
        gate.opened.set()
        assert await asyncio.wait_for(waiting, 60) == "next"

    asyncio.run(scenario())


def test_the_event_loop_does_not_wait_for_a_thread_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    starters: dict[str, threading.Thread] = {}
    start = threading.Thread.start

    def note(thread: threading.Thread) -> None:
        starters[thread.name] = threading.current_thread()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note)
    assert run(Pool(2), lambda: threading.current_thread().name) == "waypost-handler"
    assert starters["waypost-handler"] is not threading.current_thread()


def test_starting_a_thread_is_retried(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    start, refusals = threading.Thread.start, iter((True, False))

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "waypost-handler" and next(refusals, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    monkeypatch.setattr("waypost.execution.pool._RETRY_S", 0.0)
    assert run(Pool(2), lambda: "done") == "done"
    assert "cannot be started, trying again: can't start new thread" in caplog.text
