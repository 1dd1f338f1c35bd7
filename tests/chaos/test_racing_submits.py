"""Concurrent submits on one version of an instance, or concurrent approvals: the move is made and run once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from tests.chaos.racers import ADA, QUORUM, Json, Orders, Track, all_at_once, racing_hub, read_answer, two_processes
from tests.chaos.visitor import eventually
from waypost import Hub
from waypost.config.models import Workflow
from waypost.kinds import convert
from waypost.stores.instances import HistoryEntry, Reservation
from waypost.workflows import transitions
from waypost.workflows.instance import PendingMove

T = TypeVar("T")

MANY: Final = 32
DEADLINE: Final = 120.0
STALE: Final = "STALE_WORKFLOW_VERSION"
MOVES: Final = pytest.mark.parametrize("move", ["move", "note", "program"])


@pytest.fixture(params=["sqlite", "postgres"])
def track(request: pytest.FixtureRequest, tmp_path: Path) -> Track:
    """A track on each kind of store that processes can share."""
    where = tmp_path / "store.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    return Track(where, tmp_path / "runs")


def on_hub(track: Track, work: Callable[[Hub], Coroutine[Any, Any, T]]) -> T:
    """Run a function with a hub of its own on the track and return the result."""

    async def bounded() -> T:
        async with asyncio.timeout(DEADLINE), racing_hub(track) as hub:
            return await work(hub)

    return asyncio.run(bounded())


async def started(hub: Hub) -> str:
    """A new instance at version 1."""
    answer = read_answer(await hub.workflows.engine.start("race", {}, ADA))
    assert answer["version"] == 1
    workflow_id: str = answer["workflowId"]
    return workflow_id


async def left_behind(hub: Hub, workflow_id: str) -> list[HistoryEntry]:
    """The history of an instance at version 2, after a check that the store is sound."""
    found = await hub.store.instances.get(workflow_id)
    assert found is not None
    assert (found.version, found.state, found.reservation) == (2, "done", None)
    history = await hub.store.instances.history(workflow_id)
    assert [entry.version for entry in history] == [1, 2]
    assert await hub.store.check() == []
    return history


def codes(answers: Iterable[Json]) -> Counter[str]:
    """How often each refusal was given; an empty one is an answer."""
    return Counter(answer.get("error", {}).get("code", "") for answer in answers)


def judge(track: Track, workflow_id: str, move: str, answers: list[Json]) -> None:
    """Check that one submit succeeded, all others got a version conflict, and the move ran once."""
    assert codes(answers) == {"": 1, STALE: MANY - 1}
    (won,) = (answer for answer in answers if "error" not in answer)
    assert (won["version"], won["state"]) == (2, "done")
    entry = on_hub(track, lambda hub: left_behind(hub, workflow_id))[1].value
    assert track.keys() == ([] if move == "move" else [entry["key"]])


@MOVES
def test_of_many_tasks_on_one_version_one_runs(track: Track, move: str) -> None:
    async def scenario(hub: Hub) -> tuple[str, list[Json]]:
        workflow_id = await started(hub)
        return workflow_id, await all_at_once(hub, Orders(track, "submit", workflow_id, [""] * MANY, move))

    workflow_id, answers = on_hub(track, scenario)
    judge(track, workflow_id, move, answers)


@MOVES
def test_of_many_threads_with_hubs_of_their_own_on_one_version_one_runs(track: Track, move: str) -> None:
    threads = 4
    workflow_id = on_hub(track, started)
    line = threading.Barrier(threads)

    async def scenario(hub: Hub) -> list[Json]:
        await hub.store.open()
        line.wait(DEADLINE)
        return await all_at_once(hub, Orders(track, "submit", workflow_id, [""] * (MANY // threads), move))

    with ThreadPoolExecutor(threads) as pool:
        racing = [pool.submit(on_hub, track, scenario) for _ in range(threads)]
        answers = [answer for one in racing for answer in one.result(DEADLINE)]
    judge(track, workflow_id, move, answers)


@MOVES
def test_of_many_in_two_processes_on_one_version_one_runs(track: Track, move: str) -> None:
    workflow_id = on_hub(track, started)
    orders = Orders(track, "submit", workflow_id, [""] * (MANY // 2), move)
    judge(track, workflow_id, move, two_processes(orders, orders))


@MOVES
def test_of_many_with_one_request_id_one_runs_and_all_are_answered_alike(track: Track, move: str) -> None:
    workflow_id = on_hub(track, started)
    orders = Orders(track, "submit", workflow_id, ["same"] * (MANY // 2), move)
    answers = two_processes(orders, orders)
    assert codes(answers) == {"": MANY}
    assert {answer["status"] for answer in answers} <= {"waiting_for_action", "executing"}
    done = [answer for answer in answers if answer["version"] == 2]

    async def again(hub: Hub) -> Json:
        return read_answer(await hub.workflows.engine.submit(workflow_id, 1, move, {}, ADA, request_id="same"))

    later = on_hub(track, again)
    assert done
    assert all(answer == later for answer in done)
    on_hub(track, lambda hub: left_behind(hub, workflow_id))
    assert len(track.keys()) == (0 if move == "move" else 1)


async def asked(hub: Hub) -> tuple[str, str]:
    """An instance that waits for approval, and the approval."""
    workflow_id = await started(hub)
    answer = read_answer(await hub.workflows.engine.submit(workflow_id, 1, "agree", {}, ADA))
    return workflow_id, answer["approval"]["id"]


def test_concurrent_approvals_in_two_processes_count_once_each_and_the_move_runs_once(track: Track) -> None:
    workflow_id, approval = on_hub(track, asked)
    answers = two_processes(
        Orders(track, "approve", approval, ["ann", "ann", "bob", "cleo"]),
        Orders(track, "approve", approval, ["ann", "bob", "dan", "eve"]),
    )
    counted = [answer["by"] for answer in answers if "error" not in answer]
    entry = on_hub(track, lambda hub: left_behind(hub, workflow_id))[1].value
    assert len(set(counted)) == len(counted) == QUORUM
    assert sorted(one["by"] for one in entry["approvals"]) == sorted(counted)
    found_codes = codes(answers)
    assert found_codes.keys() <= {"", "APPROVAL_GIVEN", "APPROVAL_SETTLED"}
    assert (found_codes[""], sum(found_codes.values())) == (QUORUM, 8)


def test_an_approval_too_late_for_a_quorum_is_refused_and_leaves_no_evidence(track: Track) -> None:
    """Two principals give the last missing approval at two hubs at once."""

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), racing_hub(track) as one, racing_hub(track) as other:
            for _ in range(10):
                workflow_id, approval = await asked(one)
                await all_at_once(one, Orders(track, "approve", approval, ["ann", "bob"]))
                tries = [
                    all_at_once(hub, Orders(track, "approve", approval, [who]))
                    for hub, who in ((one, "cleo"), (other, "dan"))
                ]
                answers = [answer for answers in await asyncio.gather(*tries) for answer in answers]
                assert codes(answers) == {"": 1, "APPROVAL_SETTLED": 1}
                (counted,) = (answer["by"] for answer in answers if "error" not in answer)
                for version, hub in ((2, other), (3, one)):
                    move = "back" if version == 2 else "move"
                    answer = read_answer(await hub.workflows.engine.submit(workflow_id, version, move, {}, ADA))
                    assert {proof["by"] for proof in answer["evidence"]} == {"ann", "bob", counted}

    asyncio.run(scenario())


def test_a_hub_does_not_rerun_a_move_that_was_taken_over(tmp_path: Path) -> None:
    """A process stalls for so long that another takes over its move and resolves it."""
    track = Track(tmp_path / "store.db", tmp_path / "runs")
    runs: list[str] = []

    async def scenario(hub: Hub) -> None:
        @hub.tool
        async def stall(workflow: str) -> str:
            """Run until another process has recorded it as failed."""
            runs.append(workflow)
            found = await hub.store.instances.get(workflow)
            assert found is not None
            assert found.reservation is not None
            theirs = Reservation("theirs", time.time() + 9, found.reservation.value)
            assert await hub.store.instances.reserve(workflow, found.version, theirs, found.reservation.token)
            await hub.store.instances.settle(found, time.time(), {"outcome": "failed"}, "theirs")
            return "done"

        calls = {"kind": "capability", "capability": "stall", "arguments": {"workflow": "$.workflow.id"}}
        stalls = {"target": "done", "executor": calls}
        define(hub, "stalling", {"open": {"transitions": {"stall": stalls}}, "done": {"terminal": True}})
        begun = read_answer(await hub.workflows.engine.start("stalling", {}, ADA))
        answer = read_answer(await hub.workflows.engine.submit(begun["workflowId"], 1, "stall", {}, ADA))
        assert runs == [begun["workflowId"]]
        assert answer["error"]["code"] == STALE

    on_hub(track, scenario)


def test_a_parent_that_another_hub_looks_at_goes_on_as_soon_as_its_child_ends(track: Track) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), racing_hub(track) as one, racing_hub(track) as other:
            began, may_end = asyncio.Event(), asyncio.Event()

            @one.tool
            async def wait() -> str:
                """Run until it may end."""
                began.set()
                await may_end.wait()
                return "waited"

            waits = {"kind": "capability", "capability": "wait"}
            on = {"target": "end", "actor": "deterministic", "executor": waits}
            define(one, "child", {"here": {"transitions": {"on": on}}, "end": {"terminal": True}})
            ends = {"target": "end", "executor": {"kind": "workflow", "definitionId": "child"}}
            define(one, "parent", {"here": {"transitions": {"go": ends}}, "end": {"terminal": True}})
            begun = read_answer(await one.workflows.engine.start("parent", {}, ADA))
            going = asyncio.create_task(one.workflows.engine.submit(begun["workflowId"], 1, "go", {}, ADA))
            await began.wait()
            await other.workflows.watch.recover()
            may_end.set()
            answer = read_answer(await going)
            assert (answer["version"], answer["status"]) == (2, "succeeded")

    asyncio.run(scenario())


def define(hub: Hub, name: str, states: Json) -> None:
    """Have a workflow with these states, beginning in the first."""
    hub.workflow(name, convert({"initialState": next(iter(states)), "states": states}, Workflow))


def test_a_long_recovered_move_does_not_delay_other_recoveries(tmp_path: Path) -> None:
    """A parent whose child was never begun, and a chain that stopped: the child runs for long."""
    began, may_end = asyncio.Event(), asyncio.Event()

    async def scenario(hub: Hub) -> None:
        @hub.tool
        async def wait() -> str:
            """Run until it may end."""
            began.set()
            await may_end.wait()
            return "waited"

        await hub.workflows.watch.stop()
        end = {"terminal": True}
        on = {"target": "end", "actor": "deterministic"}
        waits = {**on, "executor": {"kind": "capability", "capability": "wait"}}
        goes = {"target": "end", "executor": {"kind": "workflow", "definitionId": "slow"}}
        define(hub, "slow", {"here": {"transitions": {"on": waits}}, "end": end})
        define(hub, "parent", {"here": {"transitions": {"go": goes}}, "end": end})
        define(hub, "stopped", {"here": {"transitions": {"on": on}}, "end": end})
        parent = await interrupted(hub, "parent")
        held = PendingMove(kind="child", move="go", by=ADA.principal, key="k", child="wf_0123456789abcdef01234567")
        assert await hub.store.instances.reserve(parent, 1, Reservation("t", time.time() + 60, held))
        stopped = await interrupted(hub, "stopped")

        async def is_over() -> bool | None:
            found = await hub.store.instances.get(stopped)
            return (found is not None and found.status == "succeeded") or None

        hub.workflows.watch.start()
        try:
            await began.wait()
            await eventually(is_over, "the chain did not go on")
        finally:
            may_end.set()

    on_hub(Track(tmp_path / "store.db", tmp_path / "runs"), scenario)


def test_an_instance_that_is_damaged_keeps_no_other_from_going_on(tmp_path: Path) -> None:
    track = Track(tmp_path / "store.db", tmp_path / "runs")

    async def leave_behind(hub: Hub) -> str:
        await hub.workflows.watch.stop()
        on = {"target": "end", "actor": "deterministic"}
        for name in ("one", "other"):
            define(hub, name, {"here": {"transitions": {"on": on}}, "end": {"terminal": True}})
        definitions = {await interrupted(hub, name): name for name in ("one", "other")}
        # Ids of one millisecond are in no order, and the damaged instance has to be the first that is found.
        damaged, sound = sorted(definitions)
        found = hub.workflows.engine.library.get(definitions[damaged])
        assert found is not None
        await hub.store.definitions.remove(found.digest, 1)
        return sound

    async def go_on(hub: Hub) -> None:
        async def is_over() -> bool | None:
            found = await hub.store.instances.get(sound)
            return (found is not None and found.status == "succeeded") or None

        await eventually(is_over, "the chain did not go on")

    sound = on_hub(track, leave_behind)
    on_hub(track, go_on)


async def interrupted(hub: Hub, definition: str) -> str:
    """An instance that was started by a process that died right then."""
    engine = hub.workflows.engine
    found = engine.library.get(definition)
    assert found is not None
    await engine.library.pin(found)
    live, due_at = transitions.create_instance(found, {}, ADA.principal)
    await hub.store.instances.start(live.to_record(due_at), time.time(), {"transition": "$start"})
    return live.id
