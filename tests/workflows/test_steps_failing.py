"""Steps that fail, are missing, take too long, come again or are interrupted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import Bench, View, bench
from tests.workflows.stepping import Data, Stepping, play, stepping
from waypost.capabilities.principals import ANONYMOUS
from waypost.runtime.assembly import check
from waypost.workflows import transitions
from waypost.workflows.instance import detached_caller, identify_process

HANG = """
    def run(args):
        while True:
            pass
"""
CALM = """
    def run(args):
        return args["input"] + " calmly"
"""
CRASHED = "Tool crashed: RuntimeError: boom"


@asynchronous
async def test_a_failing_step_fails_the_instance_with_the_results_so_far(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", adds="1"), play("two", crash="boom"), play("three")]) as desk:
        answer = await desk.run("in")
        kept = await desk.hub.store.instances.get(answer["run_id"])

    assert (answer["isError"], answer["status"], answer["error"]) == (True, "failed", CRASHED)
    assert answer["result"] is None
    results = answer["context"]["step_results"]
    assert list(results) == ["1", "2"]
    assert results["1"]["output"] == "in1"
    assert (results["2"]["outcome"], results["2"]["branch"], results["2"]["error"]) == ("failed", "on_error", CRASHED)
    assert "output" not in results["2"]
    assert answer["context"]["outputs"] == {"1": "in1"}
    assert kept is not None
    assert (kept.state, kept.status) == ("failed", "failed")


@asynchronous
async def test_a_failing_step_follows_its_on_error_route(tmp_path: Path) -> None:
    steps = [play("one", crash="boom", routes={"on_success": "two", "on_error": "three"}), play("two"), play("three")]
    async with stepping(tmp_path, steps) as desk:
        answer = await desk.run("in")

    assert (answer["isError"], answer["status"]) == (False, "completed")
    assert answer["context"]["outputs"]["1"] == {"error": CRASHED}
    assert answer["result"] == f'{{"error":"{CRASHED}"}}'
    assert answer["context"]["step_results"]["1"]["outcome"] == "failed"


@asynchronous
async def test_the_default_route_is_not_for_failures(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", crash="boom", routes={"default": "two"}), play("two")]) as desk:
        assert (await desk.run())["status"] == "failed"


@asynchronous
async def test_a_branch_named_on_error_is_an_ordinary_route(tmp_path: Path) -> None:
    steps = [play("one", branch="on_error", gives="well", routes={"on_error": "three"}), play("two"), play("three")]
    async with stepping(tmp_path, steps) as desk:
        assert (await desk.run())["context"]["outputs"] == {"1": "well", "3": "well"}


@pytest.mark.parametrize("goto", [1, "one", 2, "two"])
@asynchronous
async def test_an_instance_that_reaches_a_step_again_fails(goto: Any, tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", adds="1"), play("two", adds="2", routes={"default": goto})]) as desk:
        answer = await desk.run("in")

    assert (answer["isError"], answer["status"], answer["error"]) == (True, "failed", "loop_detected")
    assert list(answer["context"]["step_results"]) == ["1", "2"]
    assert answer["context"]["outputs"] == {"1": "in1", "2": "in12"}


@asynchronous
async def test_a_configured_loop_runs_once_and_then_fails(tmp_path: Path) -> None:
    walk = {"steps": [play("one", adds="1"), play("two", adds="2", routes={"on_success": "one"})]}
    async with stepping(tmp_path, sections={"workflows": {"walk": walk}}) as desk:
        answer = await desk.run("in")

    assert [(found.code, found.severity) for found in check(tmp_path / "waypost.yaml")] == [("WF044", "warning")]
    assert (answer["isError"], answer["status"], answer["error"]) == (True, "failed", "loop_detected")
    assert list(answer["context"]["step_results"]) == ["1", "2"]


@asynchronous
async def test_a_missing_skill_fails_the_run(tmp_path: Path) -> None:
    async with stepping(tmp_path, [{"skill": "nobody"}, play("two")]) as desk:
        answer = await desk.run("in")

    assert (answer["status"], answer["error"]) == ("failed", "Unknown skill: nobody")


@asynchronous
async def test_a_missing_skill_can_be_skipped_whatever_its_routes_say(tmp_path: Path) -> None:
    routes = [{"branch": "default", "goto": 3}, {"branch": "skipped", "goto": 3}, {"branch": "on_error", "goto": 3}]
    step = {"skill": "nobody", "on_missing_skill": "skip", "routes": routes}
    async with stepping(tmp_path, [step, play("two", adds="2"), play("three", adds="3")]) as desk:
        answer = await desk.run("in")

    assert answer["result"] == "in23"
    first = answer["context"]["step_results"]["1"]
    assert (first["outcome"], first["branch"], first["output"]) == ("skipped", "skipped", "in")


@asynchronous
async def test_a_run_that_ends_with_a_skipped_step_has_its_input_as_result(tmp_path: Path) -> None:
    step = {"skill": "nobody", "on_missing_skill": "skip"}
    async with stepping(tmp_path, [play("one", adds="1"), step]) as desk:
        assert (await desk.run("in"))["result"] == "in1"


async def broken(desk: Stepping) -> None:
    """Crash the skill `play` until its circuit is open."""
    for _ in range(3):
        await desk.client.call_tool("skill:play", {"config": {"crash": "boom"}})


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ({}, "failed", "Circuit open for skill:play, retry"),
        ({"on_circuit_open": "halt"}, "failed", "Circuit open for skill:play, retry"),
        ({"on_circuit_open": "skip", "routes": {"default": 3, "skipped": 3}}, "completed", "in calmly calmly"),
        ({"on_circuit_open": "fallback", "fallback_skill": "calm"}, "completed", "in calmly calmly calmly"),
        ({"on_circuit_open": "fallback", "fallback_skill": "nobody"}, "failed", "Unknown skill: nobody"),
        ({"on_circuit_open": "fallback", "fallback_skill": "play"}, "failed", "Circuit open for skill:play, retry"),
        ({"on_circuit_open": "halt", "routes": {"on_error": 3}}, "completed", "calmly"),
    ],
)
@asynchronous
async def test_a_step_whose_circuit_is_open_halts_is_skipped_or_falls_back(
    options: Data, status: str, said: str, tmp_path: Path
) -> None:
    steps = [play("one", **options), {"skill": "calm", "name": "two"}, {"skill": "calm", "name": "three"}]
    async with stepping(tmp_path, steps, skills={"calm": CALM}) as desk:
        await broken(desk)
        answer = await desk.run("in")

    assert answer["status"] == status
    assert said in (answer["error"] if status == "failed" else answer["result"])


@asynchronous
async def test_a_fallback_is_named_in_the_results(tmp_path: Path) -> None:
    step = play("one", on_circuit_open="fallback", fallback_skill="calm")
    async with stepping(tmp_path, [step], skills={"calm": CALM}) as desk:
        await broken(desk)
        first = (await desk.run("in"))["context"]["step_results"]["1"]

    assert (first["skill"], first["fallback"], first["output"]) == ("play", "calm", "in calmly")


@asynchronous
async def test_crashes_of_steps_open_the_circuit_and_a_reload_closes_it(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", crash="boom")]) as desk:
        errors = [(await desk.run())["error"] for _ in range(4)]
        assert desk.hub.skills is not None
        await desk.hub.skills.reload("play")
        after = (await desk.run())["error"]
        await desk.hub.skills.unload("play")
        gone = (await desk.run())["error"]

    assert errors[:3] == [CRASHED] * 3
    assert errors[3].startswith("Circuit open for skill:play, retry in ")
    assert after == CRASHED
    assert gone == "Unknown skill: play"


@pytest.mark.parametrize("section", [{}, {"timeoutMs": 10_000}])
@asynchronous
async def test_a_step_that_takes_too_long_is_stopped(section: Data, tmp_path: Path) -> None:
    sections = {"skills": {"dynamic": "./skills", **section}}
    step = {"skill": "hang", "timeout_ms": 100}
    async with stepping(tmp_path, [step], skills={"hang": HANG}, sections=sections) as desk:
        answer = await desk.run()

    assert (answer["status"], answer["error"]) == ("failed", "Tool execution timed out")


@asynchronous
async def test_a_step_may_take_longer_than_other_calls(tmp_path: Path) -> None:
    slow = "import asyncio\n\n\nasync def run(args):\n    await asyncio.sleep(0.4)\n    return 'late'\n"
    step = {"skill": "slow", "timeout_ms": 60_000}
    async with stepping(tmp_path, [step], skills={"slow": slow}) as desk:
        desk.hub.engine.pipeline.timeout = 0.2
        started = await desk.client.call_tool("workflow.start", {"definitionId": "walk"})

    assert started["structuredContent"]["context"]["result"] == "late"


@asynchronous
async def test_a_capability_that_a_policy_denies_fails_the_step(tmp_path: Path) -> None:
    rule = {"name": "calm", "type": "allow_list", "config": {"allow": ["workflow*"]}, "callers": ["workflow"]}
    async with stepping(tmp_path, [play("one")], sections={"policies": [rule]}) as desk:
        answer = await desk.run("in")

    assert answer["status"] == "failed"
    assert "skill:play" in answer["error"]


@asynchronous
async def test_an_instance_is_cancelled_when_its_call_is_cancelled(tmp_path: Path) -> None:
    sections = {"skills": {"dynamic": "./skills", "timeoutMs": 15_000}}
    async with stepping(tmp_path, [{"skill": "hang"}], skills={"hang": HANG}, sections=sections) as desk:
        desk.hub.engine.pipeline.timeout = 1.5  # the instance has to be stored within it
        answer = await desk.client.call_tool("workflow:walk", {})
        found: list[Any] = []
        while not found or found[0].status != "cancelled":
            found = await desk.hub.store.instances.page()
            await asyncio.sleep(0.005)

    assert answer["content"][0]["text"] == "Tool execution timed out"


@asynchronous
async def test_an_instance_of_steps_can_be_cancelled() -> None:
    async with bench({"steps": [{"capability": "work", "name": "one"}, {"capability": "work", "name": "two"}]}) as desk:
        desk.work.hold()
        running = asyncio.ensure_future(desk.client.call_tool("workflow:flow", {}))
        await desk.work.began.wait()
        (instance,) = await desk.hub.store.instances.page()
        cancelled = await desk.engine.cancel(instance.id, detached_caller(ANONYMOUS, ""))
        answer = (await running)["structuredContent"]
        kept = await desk.hub.store.instances.get(instance.id)

    assert cancelled.data["status"] == "cancelled"
    assert (answer["run_id"], answer["state"]) == (instance.id, "one")
    assert kept is not None
    assert kept.status == "cancelled"
    assert desk.work.calls == [None]


def _gone() -> str:
    """The holder name of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    machine, _, rest = identify_process().partition("|")
    return f"{machine}|{ended.pid}|{rest.split('|')[1]}|x"


def steps_of_work(idempotent: bool) -> Data:
    return {"steps": [{"capability": "work", "name": name, "idempotent": idempotent} for name in ("one", "two")]}


async def left_behind(path: Path, definition: Data) -> tuple[str, str]:
    """An instance in `runs.db` whose process ended during its first step, and the key of that step."""
    async with bench(definition) as desk:
        desk.engine.runner.holder = _gone()
        release = desk.work.hold()
        running = asyncio.ensure_future(desk.client.call_tool("workflow:flow", {}))
        await desk.work.began.wait()
        (instance,) = await desk.hub.store.instances.page()
        await desk.hub.store.backup(path / "runs.db")
        release.set()
        await running
        return instance.id, desk.work.keys[0]


async def ended(desk: Bench, run: str) -> View:
    """Wait until an instance that continues by itself has ended."""
    seen = await desk.get(run)
    while seen["state"] != "completed":
        await asyncio.sleep(0.005)
        seen = await desk.get(run)
    return seen


@asynchronous
async def test_a_step_whose_process_ended_has_an_unknown_outcome(tmp_path: Path) -> None:
    run, _ = await left_behind(tmp_path, steps_of_work(idempotent=False))
    async with bench(steps_of_work(idempotent=False), store=f"sqlite:///{tmp_path}/runs.db") as desk:
        seen = await desk.get(run)
        by_links = {link["args"]["resolve"]: link["args"] for link in seen["links"]}
        resolved = await desk.call("workflow.submit", **by_links["succeeded"], output={"said": "done"})

    assert (seen["status"], seen.code) == ("unknown_outcome", "UNKNOWN_OUTCOME")
    assert resolved["state"] == "completed"
    assert resolved["context"]["outputs"]["1"] == {"said": "done"}
    assert len(desk.work.calls) == 1


@asynchronous
async def test_an_idempotent_step_is_run_again_with_the_same_key(tmp_path: Path) -> None:
    run, key = await left_behind(tmp_path, steps_of_work(idempotent=True))
    async with bench(steps_of_work(idempotent=True), store=f"sqlite:///{tmp_path}/runs.db") as desk:
        await ended(desk, run)

    assert desk.work.keys[0] == key
    assert len(set(desk.work.keys)) == len(desk.work.keys) == 2


@asynchronous
async def test_an_instance_that_stopped_between_two_steps_continues_by_itself(tmp_path: Path) -> None:
    definition, where = steps_of_work(idempotent=False), f"sqlite:///{tmp_path}/runs.db"
    async with bench(definition, store=where) as desk:
        found = desk.engine.library.get("flow")
        assert found is not None
        await desk.engine.library.pin(found)
        live, due_at = transitions.create_instance(found, {"input": "in"}, ANONYMOUS)
        await desk.hub.store.instances.start(live.to_record(due_at), time.time(), {"to": "one"})
    async with bench(definition, store=where) as desk:
        seen = await ended(desk, live.id)

    assert seen["context"]["input"] == "in"
    assert len(desk.work.calls) == 2
