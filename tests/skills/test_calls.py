"""A cleanup runs after the last call, and not before."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.protocol.conftest import asynchronous, idle
from waypost.capabilities.context import Context
from waypost.loops import maybe_await
from waypost.skills.processes import Calls

CTX = cast(Context, None)


async def wait_for(gate: Any, ctx: Context) -> None:
    """A handler that ends when the test says so."""
    await gate.wait()


@asynchronous
async def test_the_cleanup_runs_after_the_last_call_and_after_a_late_one() -> None:
    calls, ended = Calls(), list[str]()
    run, first, second = calls.count(wait_for), asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(maybe_await(run(gate, CTX))) for gate in (first, second)]
        await idle()
        calls.when_idle(lambda: ended.append("end"))
        first.set()
        await running[0]
        assert ended == []
        running[1].cancel()
    assert ended == ["end"]

    await run(first, CTX)
    assert ended == ["end", "end"]


@asynchronous
async def test_without_calls_the_cleanup_runs_at_once_and_after_a_failed_call() -> None:
    calls, ended = Calls(), list[str]()
    calls.when_idle(lambda: ended.append("end"))
    assert ended == ["end"]
    with pytest.raises(AttributeError):
        await calls.count(wait_for)("no gate", CTX)
    assert ended == ["end", "end"]
