"""Recovery after a crash waits for capabilities that are registered after the hub has started."""

from __future__ import annotations

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import WORK, Bench, Json, bench, flow
from tests.workflows.test_unknown_outcomes import crash
from waypost.workflows import maintenance
from waypost.workflows.runner import Outcome, Runner

LATE: Json = {**WORK, "capability": "late", "idempotent": True}
DONE: Json = {"terminal": True}


def definition(executor: Json) -> Json:
    states = {
        "a": {"transitions": {"go": {"target": "done", "executor": executor}, "chain": {"target": "hop"}}},
        "hop": {"transitions": {"on": {"target": "done", "actor": "deterministic", "executor": executor}}},
        "done": DONE,
    }
    return flow(states)


def arrive(b: Bench) -> list[str]:
    """Register the late tool, and return the record of its calls."""
    calls: list[str] = []

    @b.hub.tool(name="late")
    def late(value: int = 0) -> str:
        calls.append("once")
        return "well"

    return calls


@pytest.mark.parametrize(
    "executor",
    [
        LATE,
        {"kind": "worker", "function": "late", "idempotent": True},
        {"kind": "pipeline", "steps": [{"kind": "noop"}, LATE], "idempotent": True},
        {"kind": "parallel", "branches": [LATE, {"kind": "noop"}]},
    ],
    ids=lambda executor: executor["kind"],
)
@asynchronous
async def test_a_recovered_move_waits_for_its_capability(executor: Json) -> None:
    async with bench(definition(executor)) as b:
        view = await b.start()
        await crash(b, view)
        for _ in range(2):
            seen = await b.get(view)
            assert (seen["status"], "lastError" in seen.data) == ("executing", False)
        if executor["kind"] == "worker":  # a tool is not a worker
            return
        calls = arrive(b)
        await b.once(view, lambda seen: seen["state"] == "done")
        assert calls == ["once"]


@asynchronous
async def test_a_recovered_chain_waits_for_its_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(_: Runner, taken: Outcome, __: object) -> Outcome:
        return Outcome(taken.instance)

    async with bench(definition(LATE)) as b:
        with monkeypatch.context() as patched:
            patched.setattr(Runner, "follow", stop)
            view = await b.submit(await b.start(), "chain")
        watch = b.hub.workflows.watch
        await watch.recover()
        assert (await b.get(view))["status"] == "going_on"
        calls = arrive(b)
        await watch.recover()
        ended = await b.once(view, lambda seen: seen["state"] == "done")
        assert (ended.code, calls) == (None, ["once"])


@asynchronous
async def test_recovery_stops_waiting_for_a_capability_after_the_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(definition(LATE)) as b:
        view = await b.start()
        await crash(b, view)
        assert (await b.get(view))["status"] == "executing"
        monkeypatch.setattr(maintenance, "STARTUP_GRACE_S", 0.0)
        b.engine.recovery.begin()
        seen = await b.once(view, lambda seen: "lastError" in seen.data)
        assert seen["lastError"]["message"] == "Unknown tool: late"
