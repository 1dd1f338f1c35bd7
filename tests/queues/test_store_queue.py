"""The queue in the store: the records that remain of abandoned jobs."""

from __future__ import annotations

import pytest

from tests.queues.conftest import Place, asynchronous
from waypost.queues import StoreQueue
from waypost.stores.records import GIVEN_UP


@asynchronous
async def test_an_abandoned_job_has_a_reason(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    store = place.store()
    try:
        queue = StoreQueue(store, "jobs", lease=0.05, max_attempts=1)
        for job_id in ("by hand", "by trying", "in silence"):
            await queue.put(job_id, job_id)
        by_hand, by_trying, _ = await queue.take(3)
        await by_hand.give_up("it cannot be done")
        await by_trying.retry(0.0, "it failed")
        jobs = {job.id: job for job in await store.jobs.page("jobs")}
        while {job.status for job in jobs.values()} != {GIVEN_UP}:
            assert await queue.take(within=0.4) == []
            jobs = {job.id: job for job in await store.jobs.page("jobs")}
        assert jobs["by hand"].reason == "it cannot be done"
        assert jobs["by trying"].reason == "it failed"
        assert "expired" in jobs["in silence"].reason
        assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
            "the job in silence was given up: it was taken 1 times"
        ]
    finally:
        await store.close()


@asynchronous
async def test_a_reopened_store_has_its_jobs(shared_place: Place) -> None:
    async with shared_place.opened() as open_queue:
        await open_queue().put("one", 1)
        await open_queue().put("two", 2)
        (taken,) = await open_queue().take()
        await taken.retry(0.0, "later")
    async with shared_place.opened() as open_queue:
        assert {(one.id, one.attempts) for one in await open_queue().take(5)} == {("one", 2), ("two", 1)}
