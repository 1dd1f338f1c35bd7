"""The contract of the queue, over every kind of store."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Final

import pytest

from tests.queues.conftest import OpenQueue, Place, asynchronous
from tests.queues.takers import take_and_kill
from waypost import queues
from waypost.errors import StaleVersion
from waypost.queues import Delivery, StoreQueue

SHORT: Final = 0.2
LONG_ENOUGH: Final = 60.0
LOOKS_AGAIN_WITHIN: Final = 45.0

COMPLETIONS: Final[dict[str, Callable[[Delivery], Awaitable[object]]]] = {
    "keep": lambda delivery: delivery.keep(),
    "done": lambda delivery: delivery.done(),
    "retry": lambda delivery: delivery.retry(0.0, "again"),
    "postpone": lambda delivery: delivery.postpone(0.0, "later"),
    "give up": lambda delivery: delivery.give_up("enough"),
}


async def fill(queue: StoreQueue, number: int) -> list[str]:
    """Put `number` jobs and return their ids in order."""
    ids = [f"job-{place:04}" for place in range(number)]
    for job_id in ids:
        assert await queue.put(job_id, {"number": job_id})
    return ids


async def only(queue: StoreQueue) -> Delivery:
    """Wait for one job and take it."""
    (delivery,) = await queue.take(1, within=LONG_ENOUGH)
    return delivery


# Putting


@asynchronous
async def test_a_job_is_taken_as_it_was_put(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue()
        value = {"text": "Grüße\n\x7f", "numbers": [1, 2.5, None, True], "deep": {"a": {"b": []}}}
        assert await queue.put("one", value)
        delivery = await only(queue)
        assert (delivery.id, delivery.value, delivery.attempts) == ("one", value, 1)


@asynchronous
async def test_a_job_is_put_once_by_its_id(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue()
        assert await queue.put("one", "first")
        assert not await queue.put("one", "second")
        assert (await only(queue)).value == "first"
        assert not await queue.put("one", "while it is taken")
        assert await queue.take() == []


@asynchronous
async def test_of_concurrent_puts_of_one_job_one_succeeds(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue()
        assert sum(await asyncio.gather(*(queue.put("one", number) for number in range(20)))) == 1
        assert len(await queue.take(20)) == 1


@asynchronous
async def test_a_finished_job_is_removed_and_may_be_put_again(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue()
        await queue.put("one", 1)
        await (await only(queue)).done()
        assert await queue.take() == []
        assert await queue.put("one", 2)
        assert (await only(queue)).value == 2


@asynchronous
async def test_queues_do_not_see_each_other(place: Place) -> None:
    async with place.opened() as open_queue:
        await open_queue("a").put("one", "of a")
        assert await open_queue("b").put("one", "of b")
        assert [delivery.value for delivery in await open_queue("b").take(10)] == ["of b"]


# Taking


@asynchronous
async def test_jobs_are_taken_in_the_order_they_were_put(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue()
        ids = await fill(queue, 5)
        assert [delivery.id for delivery in await queue.take(3)] == ids[:3]
        assert [delivery.id for delivery in await queue.take(3)] == ids[3:]


@asynchronous
async def test_a_retried_job_comes_after_waiting_jobs(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue()
        await fill(queue, 3)
        first = await only(queue)
        await first.retry(0.0)
        assert [delivery.id for delivery in await queue.take(3)] == ["job-0001", "job-0002", "job-0000"]


@asynchronous
async def test_taking_from_an_empty_queue_returns_at_once_by_default(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue()
        await queue.take()
        async with asyncio.timeout(LONG_ENOUGH):
            assert await queue.take(5) == []
        assert await queue.take(within=0.05) == []


@asynchronous
async def test_a_waiting_taker_is_woken_by_a_put(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_POLL_S", LONG_ENOUGH)
    async with place.opened() as open_queue:
        queue = open_queue()
        await queue.take(within=0.01)
        waiting = asyncio.create_task(queue.take(within=LONG_ENOUGH))
        await asyncio.sleep(0.1)  # so that it most likely waits by now; it passes either way
        began = time.monotonic()
        await queue.put("one", 1)
        assert [delivery.id for delivery in await waiting] == ["one"]
        assert time.monotonic() - began < LONG_ENOUGH / 2


@asynchronous
async def test_a_waiting_taker_finds_a_job_of_another_process_by_polling(shared_place: Place) -> None:
    async with shared_place.opened() as here, shared_place.opened() as elsewhere:
        await here().take()
        waiting = asyncio.create_task(here().take(within=LONG_ENOUGH))
        await asyncio.sleep(0.1)
        began = time.monotonic()
        await elsewhere().put("one", 1)
        assert [delivery.id for delivery in await waiting] == ["one"]
        assert time.monotonic() - began < LOOKS_AGAIN_WITHIN


@asynchronous
async def test_a_job_is_never_taken_by_two_takers(place: Place) -> None:
    executions: Counter[str] = Counter()

    async def work(queue: StoreQueue) -> None:
        while taken := await queue.take(7, within=0.3):
            for delivery in taken:
                executions[delivery.id] += 1
                await delivery.done()

    async with AsyncExitStack() as stack:
        open_queue: OpenQueue = await stack.enter_async_context(place.opened())
        ids = await fill(open_queue(), 300)
        openers = [open_queue] * 4
        if place.where is not None:
            openers += [await stack.enter_async_context(place.opened()) for _ in range(2)]
        await asyncio.gather(*(work(opener()) for opener in openers))
    assert executions == Counter(ids)


# Leases


@asynchronous
async def test_a_job_is_delivered_again_when_its_lease_expires(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue(lease=SHORT)
        await queue.put("one", 1)
        began = time.monotonic()
        await only(queue)
        again = await only(queue)
        assert time.monotonic() - began >= SHORT * 0.9
        assert again.attempts == 2


@asynchronous
async def test_a_job_whose_lease_is_extended_is_not_delivered_again(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue(lease=4.0)
        await queue.put("one", 1)
        mine = await only(queue)

        async def keep() -> None:
            while True:
                await asyncio.sleep(0.1)
                await mine.keep()

        keeping = asyncio.create_task(keep())
        assert await queue.take(within=5.0) == []
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        await mine.done()


@pytest.mark.parametrize("settle", COMPLETIONS)
def test_a_taker_whose_lease_expired_gets_an_error_and_changes_nothing(settle: str, place: Place) -> None:
    @asynchronous
    async def scenario() -> None:
        async with place.opened() as open_queue:
            queue = open_queue(lease=SHORT)
            await queue.put("one", 1)
            lost = await only(queue)
            winner = await only(open_queue(lease=60.0))
            with pytest.raises(StaleVersion):
                await COMPLETIONS[settle](lost)
            await winner.keep()
            await winner.done()
            with pytest.raises(StaleVersion):
                await COMPLETIONS[settle](lost)

    scenario()


@pytest.mark.parametrize("settle", [name for name in COMPLETIONS if name != "keep"])
def test_a_job_is_completed_once(settle: str, place: Place) -> None:
    @asynchronous
    async def scenario() -> None:
        async with place.opened() as open_queue:
            queue = open_queue()
            await queue.put("one", 1)
            mine = await only(queue)
            await COMPLETIONS[settle](mine)
            for other in COMPLETIONS.values():
                with pytest.raises(StaleVersion):
                    await other(mine)

    scenario()


@asynchronous
async def test_the_jobs_of_a_killed_process_are_done_by_another(shared_place: Place) -> None:
    async with shared_place.opened() as open_queue:
        queue = open_queue()
        ids = await fill(queue, 3)
        taken = await asyncio.to_thread(take_and_kill, shared_place, 0.5, 2)
        done: dict[str, int] = {}
        while len(done) < 3:
            delivery = await only(queue)
            done[delivery.id] = delivery.attempts
            await delivery.done()
        assert done == {job_id: 1 + (job_id in taken) for job_id in ids}
        assert len(taken) == 2


# Trying again, and giving up


@asynchronous
async def test_a_retried_job_waits_for_its_delay(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue()
        await queue.put("one", 1)
        began = time.monotonic()
        await (await only(queue)).retry(0.4, "not yet")
        again = await only(queue)
        assert time.monotonic() - began >= 0.36
        assert again.attempts == 2


@asynchronous
async def test_an_abandoned_job_stays_and_is_not_taken(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue()
        await queue.put("one", 1)
        await (await only(queue)).give_up("it cannot be done")
        assert await queue.take(within=0.1) == []
        assert not await queue.put("one", 2)


@asynchronous
async def test_a_job_retried_too_often_is_given_up(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue(max_attempts=3)
        await queue.put("one", 1)
        seen = []
        while taken := await queue.take(within=0.1):
            seen.append((taken[0].attempts, await taken[0].retry(0.0, "failed again")))
        assert seen == [(1, True), (2, True), (3, False)]
        assert not await queue.put("one", 2)


@asynchronous
async def test_postponing_a_job_does_not_count_as_an_attempt(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue(max_attempts=2)
        await queue.put("one", 1)
        for _ in range(5):
            await (await only(queue)).postpone(0.0, "nobody is there")
        await (await only(queue)).retry(0.0, "failed")
        again = await only(queue)
        await again.postpone(0.0)
        assert (again.attempts, (await only(queue)).attempts) == (2, 2)


@asynchronous
async def test_a_job_whose_lease_expires_too_often_is_given_up(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue(lease=0.05, max_attempts=2)
        await queue.put("one", 1)
        assert [(await only(queue)).attempts for _ in range(2)] == [1, 2]
        assert await queue.take(within=0.5) == []
        assert not await queue.put("one", 2)


@asynchronous
async def test_a_job_that_is_given_up_does_not_hold_up_the_others(place: Place) -> None:
    async with place.opened() as open_queue:
        queue = open_queue(lease=0.05, max_attempts=1)
        await queue.put("poison", 1)
        await only(queue)
        await queue.put("sound", 2)
        assert (await only(queue)).id == "sound"
