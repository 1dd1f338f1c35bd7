"""A worker knows which of its functions another offers already, and when they are its own."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.worker.engine import working
from tests.workers.wire import at_work, hub_for_workers
from waypost.errors import InvocationFailed


def named(name: str, payload: Any) -> str:
    """The name of the worker that answers."""
    return name


@pytest.mark.parametrize("observe", [True, False])
def test_a_worker_stands_by_until_the_other_is_gone(observe: bool) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers(workers={"port": 0, "observe": observe})
        async with at_work(hub), working(hub, "first") as first, working(hub, "second") as second:
            for worker in (first, second):
                worker.register_function("a::b", partial(named, worker.name))
                await worker.trigger("engine::workers::list", {})
            assert (set(first.refused), set(second.refused)) == (set(), {"a::b"})
            await first.accepted()
            await first.shutdown()
            if not observe:  # then only a call shows it
                assert await second.trigger("a::b", {}) == "second"
            await second.accepted()
            assert second.refused == frozenset()

    scenario()


@asynchronous
async def test_of_many_refusals_one_is_logged_and_a_withdrawn_function_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub, "first") as first, working(hub, "second") as second:
        ids = [f"a::f{number}" for number in range(10)]
        with caplog.at_level(logging.WARNING):
            for worker in (first, second):
                for one in ids:
                    worker.register_function(one, lambda payload: payload)
                await worker.trigger("engine::workers::list", {})
        assert second.refused == set(ids)
        assert [record.getMessage() for record in caplog.records if "was not accepted" in record.getMessage()] == [
            "the function a::f0 was not accepted: another worker offers it already"
        ]
        for one in ids:
            second.unregister_function(one)
        await second.accepted()


@asynchronous
async def test_waiting_for_functions_ends_with_the_worker() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub, "first") as first, working(hub, "second") as second:
        for worker in (first, second):
            worker.register_function("a::b", lambda payload: payload)
            await worker.trigger("engine::workers::list", {})
        waiting = second.accepted()
        await second.shutdown()
        with pytest.raises(InvocationFailed, match="shut down"):
            await waiting
