"""What a crash left is taken up when everything is there that it calls, which may be later than the hub itself."""

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
    """Have the tool that was late; how often it was called."""
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
async def test_a_move_waits_for_what_it_calls(executor: Json) -> None:
    async with bench(definition(executor)) as b:
        told = await b.start()
        await crash(b, told)
        for _ in range(2):
            seen = await b.get(told)
            assert (seen["status"], "lastError" in seen.data) == ("executing", False)
        if executor["kind"] == "worker":  # a tool is none
            return
        calls = arrive(b)
        await b.once(told, lambda seen: seen["state"] == "done")
        assert calls == ["once"]


@asynchronous
async def test_what_goes_on_by_itself_waits_for_what_it_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(_: Runner, taken: Outcome, __: object) -> Outcome:
        return Outcome(taken.instance)

    async with bench(definition(LATE)) as b:
        with monkeypatch.context() as patched:
            patched.setattr(Runner, "follow", stop)
            told = await b.submit(await b.start(), "chain")
        watch = b.hub.workflows.watch
        await watch.recover()
        assert (await b.get(told))["status"] == "going_on"
        calls = arrive(b)
        await watch.recover()
        ended = await b.once(told, lambda seen: seen["state"] == "done")
        assert (ended.code, calls) == (None, ["once"])


@asynchronous
async def test_what_never_comes_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(definition(LATE)) as b:
        told = await b.start()
        await crash(b, told)
        assert (await b.get(told))["status"] == "executing"
        monkeypatch.setattr(maintenance, "STARTUP_GRACE_S", 0.0)
        b.engine.recovery.begin()
        seen = await b.once(told, lambda seen: "lastError" in seen.data)
        assert seen["lastError"]["message"] == "Unknown tool: late"
