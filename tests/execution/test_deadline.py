from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from waypost.errors import DeadlineExceeded
from waypost.execution.limits import Deadline

SOON = 0.01


async def forever() -> None:
    await asyncio.Event().wait()


async def under(seconds: float, work: Callable[[], Awaitable[Any]]) -> Any:
    with Deadline(seconds):
        return await work()


def test_work_that_finishes_in_time_is_not_cancelled() -> None:
    async def work() -> int:
        return 3

    async def scenario() -> None:
        assert await under(30, work) == 3
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    asyncio.run(scenario())


def test_asynchronous_work_is_stopped_at_once() -> None:
    with pytest.raises(DeadlineExceeded, match=r"^Tool execution timed out$"):
        asyncio.run(under(SOON, forever))


def test_cancelled_work_can_clean_up() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await forever()
        finally:
            cleaned.append(True)

    with pytest.raises(DeadlineExceeded):
        asyncio.run(under(SOON, work))
    assert cleaned == [True]


@pytest.mark.parametrize("times", [1, 3])
def test_work_that_swallows_a_cancellation_is_cancelled_again(times: int) -> None:
    ignored: list[bool] = []

    async def work() -> None:
        while len(ignored) < times:
            try:
                await forever()
            except asyncio.CancelledError:
                ignored.append(True)
        await forever()

    with pytest.raises(DeadlineExceeded):
        asyncio.run(under(SOON, work))
    assert len(ignored) == times


def test_a_value_returned_after_the_deadline_is_ignored() -> None:
    async def work() -> str:
        try:
            await forever()
        except asyncio.CancelledError:
            return "late"
        return "never"

    with pytest.raises(DeadlineExceeded):
        asyncio.run(under(SOON, work))


def test_the_task_continues_after_the_deadline() -> None:
    async def scenario() -> str:
        with pytest.raises(DeadlineExceeded):
            await under(SOON, forever)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        return "went on"

    assert asyncio.run(scenario()) == "went on"


def test_an_error_of_the_work_passes_before_the_deadline() -> None:
    async def work() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        asyncio.run(under(30, work))


def test_an_error_while_cleaning_up_is_the_cause() -> None:
    async def work() -> None:
        try:
            await forever()
        finally:
            raise ValueError("while cleaning up")

    with pytest.raises(DeadlineExceeded) as caught:
        asyncio.run(under(SOON, work))
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_cancellation_from_outside_is_not_a_deadline() -> None:
    async def scenario() -> None:
        started = asyncio.Event()

        async def work() -> None:
            started.set()
            await forever()

        task = asyncio.create_task(under(30, work))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(scenario())


def test_a_cancellation_from_outside_wins_over_a_deadline_that_has_passed() -> None:
    async def scenario() -> None:
        cleaning = asyncio.Event()

        async def work() -> None:
            try:
                await forever()
            finally:
                cleaning.set()
                await forever()

        task = asyncio.create_task(under(SOON, work))
        await cleaning.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(scenario())


def test_an_inner_deadline_does_not_touch_the_outer_one() -> None:
    async def outer() -> str:
        with pytest.raises(DeadlineExceeded):
            await under(SOON, forever)
        return "outer went on"

    assert asyncio.run(under(30, outer)) == "outer went on"


def test_an_outer_deadline_stops_work_under_a_longer_inner_one() -> None:
    inner_saw: list[type[BaseException]] = []

    async def inner() -> None:
        try:
            await under(30, forever)
        except BaseException as error:
            inner_saw.append(type(error))
            raise

    with pytest.raises(DeadlineExceeded):
        asyncio.run(under(SOON, inner))
    assert inner_saw == [asyncio.CancelledError]


def test_two_deadlines_that_pass_together_end_in_one_timeout() -> None:
    with pytest.raises(DeadlineExceeded):
        asyncio.run(under(SOON, lambda: under(SOON, forever)))


def test_a_deadline_does_not_fire_after_its_block_has_ended() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        later = asyncio.Event()
        with Deadline(SOON):
            loop.call_later(SOON * 4, later.set)
        await asyncio.wait_for(later.wait(), 60)

    asyncio.run(scenario())


async def in_a_while(seconds: float) -> None:
    """Return after some time on the loop's clock."""
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, later.set)
    await asyncio.wait_for(later.wait(), 60)


def test_a_paused_deadline_continues_after_the_pause() -> None:
    reached = []

    async def scenario() -> None:
        with Deadline(SOON) as deadline:
            with deadline.paused():
                await in_a_while(SOON * 4)
                reached.append("waited longer than the deadline")
            await forever()

    with pytest.raises(DeadlineExceeded):
        asyncio.run(scenario())
    assert reached == ["waited longer than the deadline"]


def test_overlapping_pauses_last_until_the_last_one_ends() -> None:
    reached = []

    async def scenario() -> None:
        with Deadline(SOON) as deadline:
            with deadline.paused():
                with deadline.paused():
                    pass
                await in_a_while(SOON * 4)
                reached.append("still paused")
            await forever()

    with pytest.raises(DeadlineExceeded):
        asyncio.run(scenario())
    assert reached == ["still paused"]


def test_a_deadline_with_two_overlapping_pauses_does_not_fire_later() -> None:
    async def scenario() -> str:
        with Deadline(SOON) as deadline:
            first, second = deadline.paused(), deadline.paused()
            first.__enter__()
            second.__enter__()
            first.__exit__(None, None, None)
            second.__exit__(None, None, None)
        await in_a_while(SOON * 4)
        return "left alone"

    assert asyncio.run(scenario()) == "left alone"
