"""Workers of this package and of the `iii-sdk` on one hub call each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import failure, settled, working
from tests.worker.sdk import sdk
from tests.workers.wire import address, at_work, hub_for_workers
from waypost.worker import InvocationFailed


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK leaves notes in the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))


@asynchronous
async def test_functions_and_their_failures_reach_the_other_side() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as ours, sdk(address(hub)) as theirs:

        async def double(data: Any) -> Any:
            return {"n": data["n"] * 2}

        async def fail(data: Any) -> Any:
            raise ValueError("not today")

        def refuse(payload: Any) -> Any:
            raise InvocationFailed("no such order", "order_unknown")

        ours.register_function("ours::greet", lambda payload, metadata: [payload, metadata])
        ours.register_function("ours::refuse", refuse)
        await settled(ours)
        await theirs.offer("theirs::double", double)
        await theirs.offer("theirs::fail", fail)

        assert await ours.trigger("theirs::double", {"n": 21}) == {"n": 42}
        error = await failure(ours.trigger("theirs::fail"))
        assert (error.code, error.message) == ("invocation_failed", "not today")
        assert await theirs.trigger("ours::greet", {"ä": None}, metadata={"m": 1}) == [{"ä": None}, {"m": 1}]
        refused = await theirs.refused("ours::refuse")
        assert refused.code == "order_unknown"
        assert "no such order" in str(refused)


@asynchronous
async def test_a_trigger_of_ours_calls_a_function_of_theirs() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as ours, sdk(address(hub)) as theirs:
        kind = ours.register_trigger_type("ours::tick", "Ticks.")
        await theirs.hear("ours::tick")
        await until(lambda: kind.bound)

        kind.fire({"n": 1})

        await theirs.until_heard({"n": 1})
