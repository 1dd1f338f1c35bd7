"""Calls that are made later are kept, tried again, and survive a restart."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import Wire, at_work, hub_for_workers, wired
from waypost import Hub

QUEUED = {"action": {"type": "enqueue", "queue": "jobs"}}


async def put_back(hub: Hub) -> None:
    """Wait until a job waits to be tried again."""
    for _ in range(10_000):
        if ((await hub.store.jobs.next_due("workers")) or 0) > time.time():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("nothing waits to be tried again")


async def looked_for(hub: Hub, receipt: str, times: int) -> None:
    """Wait until a call was tried so many times without a worker for it."""
    job = await hub.store.jobs.get("workers", receipt)
    assert job is not None
    until_then = job.version + 2 * times
    while job.version < until_then:
        await asyncio.sleep(0.001)
        job = await hub.store.jobs.get("workers", receipt)
        assert job is not None


def given_up(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log messages about calls that were given up."""
    return [record.getMessage() for record in caplog.records if "given up" in record.getMessage()]


async def fail(owner: Wire, function: str, code: str = "invocation_failed") -> None:
    """Wait for a call and fail."""
    call = await owner.next("invokefunction", function_id=function)
    error = {"code": code, "message": "not now"}
    await owner.send("invocationresult", invocation_id=call["invocation_id"], function_id=function, error=error)


@asynchronous
async def test_a_call_for_later_has_a_receipt_at_once_and_is_made() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::b")
        receipt = await caller.result("a::b", {"n": 1}, **QUEUED, metadata={"m": 1})
        assert len(receipt["messageReceiptId"]) == 36
        call = await owner.serve("a::b", "done")
        assert (call["data"], call["metadata"]) == ({"n": 1}, {"m": 1})
        assert "action" not in call
        while await hub.store.jobs.next_due("workers") is not None:
            await owner.settled()


@asynchronous
async def test_a_call_for_later_without_an_id_is_made_and_not_answered() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::b")
        await caller.send("invokefunction", function_id="a::b", data=1, **QUEUED)
        await caller.send("invokefunction", function_id="a::b", data=2, action={"type": "enqueue"})
        assert (await owner.serve("a::b", "done"))["data"] == 1
        await caller.settled()
        assert [frame["type"] for frame in caller.seen] == []


@asynchronous
async def test_a_call_for_later_needs_a_queue() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as caller:
        for action in ({"type": "enqueue"}, {"type": "enqueue", "queue": " "}):
            assert (await caller.error("a::b", {}, action=action))["code"] == "enqueue_error"
        blank = await caller.error("a::b", {}, **QUEUED, namespace=" ")
        assert blank["code"] == "INVALID_NAMESPACE"


@asynchronous
async def test_a_failed_call_is_retried_and_given_up_after_a_few_attempts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("waypost.workers.calls._RETRY_DELAYS_S", (0.01,))
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner:
        await owner.offer("a::b", "a::c")
        await owner.result("a::b", 1, **QUEUED)
        await fail(owner, "a::b")
        await fail(owner, "a::b")
        await owner.serve("a::b", "at last")
        await owner.result("a::c", 2, **QUEUED)
        for _ in range(5):
            await fail(owner, "a::c")
        while await hub.store.jobs.next_due("workers") is not None:
            await owner.settled()
        assert not any(message["type"] == "invokefunction" for message in owner.seen)
        assert given_up(caplog) == ["the call of a::c in the queue jobs was given up: not now"]


@asynchronous
async def test_waiting_for_a_function_does_not_count_as_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.calls._MIN_POSTPONE_S", 0.001)
    monkeypatch.setattr("waypost.workers.calls._MAX_POSTPONE_S", 0.01)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as caller:
        await caller.introduce("caller")
        receipt = (await caller.result("a::b", {"n": 1}, **QUEUED))["messageReceiptId"]
        await looked_for(hub, receipt, 10)
        for _ in range(6):
            async with wired(hub) as owner:
                await owner.offer("a::b")
                await owner.next("invokefunction")
        async with wired(hub) as owner:
            await owner.offer("a::b")
            assert (await owner.serve("a::b", "done"))["data"] == {"n": 1}


@asynchronous
async def test_a_function_that_misses_another_has_failed_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.calls._RETRY_DELAYS_S", (0.001,))
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner:
        await owner.offer("a::b")
        await owner.result("a::b", 1, **QUEUED)
        for _ in range(5):
            await fail(owner, "a::b", "function_not_found")
        while await hub.store.jobs.next_due("workers") is not None:
            await owner.settled()


@asynchronous
async def test_a_function_that_never_comes_is_waited_for_no_longer_than_a_day(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("waypost.workers.calls._MAX_WAIT_S", 0.0)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as caller:
        await caller.introduce("caller")
        await caller.result("a::b", 1, **QUEUED)
        await until(lambda: given_up(caplog))
        (line,) = given_up(caplog)
        assert line.startswith("the call of a::b in the queue jobs was given up: Function a::b not found")


@asynchronous
async def test_a_queued_call_without_a_worker_is_made_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.workers.calls._MIN_POSTPONE_S", 0.3)
    store = f"sqlite:///{tmp_path}/kept.db"
    hub = hub_for_workers(store=store)
    async with at_work(hub), wired(hub) as caller:
        await caller.introduce("gone by then")
        await caller.result("a::b", {"n": 1}, **QUEUED)
        await put_back(hub)
    again = hub_for_workers(store=store)
    async with at_work(again), wired(again) as owner:
        await owner.offer("a::b")
        assert (await owner.serve("a::b", "done"))["data"] == {"n": 1}


@asynchronous
async def test_a_call_that_ran_when_the_hub_stopped_is_made_again(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/kept.db"
    hub = hub_for_workers(store=store)
    async with at_work(hub), wired(hub) as owner:
        await owner.offer("a::b")
        await owner.result("a::b", {"n": 1}, **QUEUED)
        await owner.next("invokefunction")
        await hub.workers.stop()
    again = hub_for_workers(store=store)
    async with at_work(again), wired(again) as owner:
        await owner.offer("a::b")
        assert (await owner.serve("a::b", "done"))["data"] == {"n": 1}


@asynchronous
async def test_many_calls_for_later_are_all_made() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::b")
        asked = [await caller.ask("a::b", number, **QUEUED) for number in range(100)]
        done = [(await owner.serve("a::b", None))["data"] for _ in range(100)]
        assert sorted(done) == list(range(100))
        for one in asked:
            await caller.next("invocationresult", invocation_id=one)
        await until(lambda: not hub.workers.calls.queue._jobs)


@asynchronous
async def test_no_more_queued_calls_run_at_once_than_the_limit() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::b")
        for number in range(40):
            await caller.result("a::b", number, **QUEUED)
        unanswered = [await owner.next("invokefunction") for _ in range(16)]
        for _ in range(24):
            await owner.answer(unanswered.pop(0), None)
            unanswered.append(await owner.next("invokefunction"))
            assert len(hub.workers.calls.queue._jobs) <= 16
