"""No transition is possible in a state before its entry has succeeded."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, WORK, Bench, Json, View, bench, flow, later
from waypost.capabilities.principals import ANONYMOUS
from waypost.workflows import transitions
from waypost.workflows.instance import Instance, detached_caller
from waypost.workflows.runner import Outcome

DONE: Json = {"terminal": True}


def entering(executor: Json, **way: Any) -> Json:
    """A workflow whose first state runs something on entry."""
    ways = {"go": {"target": "done", **way}, "other": {"target": "done"}}
    return flow({"a": {"onEnter": {"executor": executor, "output": {"in": True}}, "transitions": ways}, "done": DONE})


async def failed_entry(b: Bench, how: str) -> View:
    """An instance whose entry failed."""
    view = await b.start()
    if how == "rejected":
        await b.engine.approvals.reject(view["approval"]["id"], ANN, "cli", "no")
    elif how == "expired":
        await later(time.time() + 0.002)
    return await b.get(view)


ENTRIES: dict[str, Json] = {
    "rejected": {"kind": "human"},
    "expired": {"kind": "human", "expiresMs": 1},
    "failed": WORK,
}


@pytest.mark.parametrize("how", ENTRIES)
@asynchronous
async def test_a_failed_entry_blocks_all_transitions(how: str, store: str) -> None:
    async with bench(entering(ENTRIES[how]), store=store) as b:
        b.work.fails = 1
        view = await failed_entry(b, how)
        assert (view["status"], view.code, view.names) == ("chain_failed", "CHAIN_FAILED", ["$resume"])
        for transition in ("go", "other", "nowhere"):
            refused = await b.submit(view, transition)
            assert (refused.refused, refused.code, refused.names) == (True, "CHAIN_FAILED", ["$resume"])
            assert "self" in refused.rels
            assert view["error"]["message"] in refused["error"]["message"]
            assert refused["error"].get("errorClass") == view["error"].get("errorClass")
        assert (await b.get(view)).data == view.data
        assert len(await b.history(view)) == 1


@asynchronous
async def test_transitions_are_possible_once_the_state_is_entered() -> None:
    async with bench(entering({"kind": "human"})) as b:
        view = await b.follow(await failed_entry(b, "rejected"), "$resume")
        assert view["status"] == "waiting_for_approval"
        await b.engine.approvals.approve(view["approval"]["id"], ANN, "cli")
        seen = await b.get(view)
        assert (seen.at, seen.names) == (("a", 2, {"in": True}), ["go", "other"])
        assert (await b.follow(seen, "go")).at == ("done", 3, {"in": True})


@asynchronous
async def test_a_deterministic_transition_cannot_be_submitted_before_the_entry() -> None:
    async with bench(entering(WORK, actor="deterministic")) as b:
        b.work.fails = 1
        view = await b.start()
        assert (await b.submit(view, "go")).code == "CHAIN_FAILED"


@asynchronous
async def test_explaining_shows_that_no_transition_is_allowed_before_the_entry() -> None:
    async with bench(entering(WORK)) as b:
        b.work.fails = 1
        view = await b.start()
        allowed = (await b.explain(workflowId=view.id))["allowed"]
        assert [(one["allowed"], one["reasons"][0]["code"]) for one in allowed] == [(False, "CHAIN_FAILED")] * 2


@asynchronous
async def test_a_submit_during_the_entry_is_stale() -> None:
    async with bench(entering(WORK)) as b:
        release = b.work.hold()
        running = asyncio.create_task(b.start())
        await b.work.began.wait()
        (instance,) = await b.hub.store.instances.page()
        view = await b.get(instance.id)
        assert (await b.submit(view, "go")).code == "STALE_WORKFLOW_VERSION"
        release.set()
        assert (await running).at == ("a", 2, {"in": True})


async def committed(b: Bench) -> Instance:
    """An instance between the commit into a state and its entry."""
    definition = b.engine.library.get("flow")
    assert definition is not None
    await b.engine.library.pin(definition)
    live, due_at = transitions.create_instance(definition, {}, ANONYMOUS)
    await b.hub.store.instances.start(live.to_record(due_at), time.time(), {"transition": "$start", "to": "a"})
    b.engine.cache.keep(live)
    return live


@pytest.mark.parametrize("executor", [WORK, {"kind": "human"}, {"kind": "noop"}])
@asynchronous
async def test_a_submit_between_a_commit_and_the_entry_is_stale(executor: Json) -> None:
    async with bench(entering(executor)) as b:
        await b.hub.workflows.watch.stop()
        live = await committed(b)
        view = await b.get(live.id)
        assert (view["status"], view.rels) == ("going_on", ["self"])
        for transition in ("go", "other"):
            refused = await b.submit(view, transition)
            assert (refused.code, refused.rels, refused["version"]) == ("STALE_WORKFLOW_VERSION", ["self"], 1)
        assert (await b.submit(view, "$resume")).code == "INVALID_TRANSITION"
        assert (await b.get(view)).at == ("a", 1, {})


@asynchronous
async def test_an_entry_that_failed_at_another_hub_blocks_transitions_here_too(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/shared.db"
    async with bench(entering(WORK), store=place) as one, bench(entering(WORK), store=place) as other:
        for hub in (one, other):
            await hub.hub.workflows.watch.stop()
        live = await committed(one)
        seen = await other.engine.cache.get(live.id)
        assert seen is not None
        other.work.fails = 1
        await other.engine.runner.follow(Outcome(seen), detached_caller(ANONYMOUS, live.id))
        submitted = {"workflowId": live.id, "expectedVersion": 1, "transition": "go", "arguments": {}}
        assert (await one.call("workflow.submit", **submitted)).code == "CHAIN_FAILED"


@asynchronous
async def test_an_outdated_record_does_not_repeat_a_failed_entry() -> None:
    async with bench(entering(WORK)) as b:
        watch = b.hub.workflows.watch
        await watch.stop()
        live = await committed(b)
        older = await b.hub.store.instances.get(live.id)
        assert older is not None
        b.work.fails = 1
        await b.engine.runner.follow(Outcome(live), detached_caller(ANONYMOUS, live.id))
        await watch._check(older)
        assert live.id not in b.engine.runner.busy
        assert ((await b.get(live.id))["status"], len(b.work.calls)) == ("chain_failed", 1)
