"""Whose instance it is decides who sees it; to everybody else there is none."""

from __future__ import annotations

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, BOB, OPERATOR, STRANGER, WORK, Bench, Json, Told, bench, flow
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE, Principal

DONE: Json = {"terminal": True}
OWNER = Principal("owner")
LEAD = Principal("lead-1", ("lead",))
STATES: Json = {
    "a": {
        "transitions": {
            "go": {"target": "b"},
            "ask": {"target": "done", "executor": {"kind": "human", "role": "lead"}},
            "run": {"target": "b", "executor": WORK},
        }
    },
    "b": {"transitions": {"sign": {"target": "c", "actor": "human"}, "back": {"target": "a"}}},
    "c": {"transitions": {"end": {"target": "done"}}},
    "done": DONE,
}


async def everything(b: Bench, workflow_id: str, version: int, by: Principal) -> list[Told]:
    """What each way to an instance answers."""
    about = Told({"workflowId": workflow_id, "version": version}, False)
    cancelled = await b.engine.cancel(workflow_id, DetachedCaller(by, FROM_OUTSIDE))
    return [
        await b.get(about, by),
        await b.submit(about, "go", by=by),
        await b.submit(about, "go", by=by, version=99),
        await b.submit(about, "go", by=by, requestId="known"),
        await b.submit(about, "go", by=by, resolve="succeeded"),
        await b.submit(about, "$resume", by=by),
        await b.explain(by, definitionId="flow", workflowId=workflow_id),
        await b.explain(by, definitionId="flow", transition="go", workflowId=workflow_id),
        Told(cancelled.data, cancelled.refused),
    ]


@pytest.mark.parametrize("somebody", [STRANGER, ANN, LEAD, ANONYMOUS, Principal("system-1", ("system",))])
@asynchronous
async def test_somebody_elses_instance_is_answered_exactly_like_one_that_never_was(somebody: Principal) -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start(by=OWNER)
        await b.submit(told, "back", by=OWNER, requestId="known")
        never = f"wf_{'0' * (len(told.id) - 3)}"
        seen = await everything(b, told.id, told["version"], somebody)
        unknown = await everything(b, never, told["version"], somebody)
        for foreign, missing in zip(seen, unknown, strict=True):
            assert foreign.code == "UNKNOWN_WORKFLOW"
            assert foreign.refused
            assert str(foreign.data).replace(told.id, never) == str(missing.data)
        assert (await b.get(told, OWNER)).at == told.at


@asynchronous
async def test_who_started_it_and_operators_see_it() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start(by=OWNER)
        for somebody in (OWNER, OPERATOR):
            assert (await b.get(told, somebody)).at == told.at
        assert (await b.submit(told, "go", by=OPERATOR))["state"] == "b"


@asynchronous
async def test_people_see_it_where_people_are_needed_and_only_there() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start(by=OWNER)
        assert (await b.get(told, ANN)).code == "UNKNOWN_WORKFLOW"
        told = await b.submit(told, "go", by=OWNER)
        assert (await b.get(told, ANN))["state"] == "b"
        assert (await b.submit(told, "sign", by=OWNER)).code == "ACTOR_MISMATCH"
        signed = await b.submit(told, "sign", by=ANN)
        assert signed["state"] == "c"
        assert (await b.get(told, BOB)).code == "UNKNOWN_WORKFLOW"


@asynchronous
async def test_who_may_approve_sees_what_waits_for_them() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.submit(await b.start(by=OWNER), "ask", by=OWNER)
        assert (await b.get(told, LEAD))["approval"]["id"] == told["approval"]["id"]
        assert (await b.get(told, ANN)).code == "UNKNOWN_WORKFLOW"


@asynchronous
async def test_whoever_saw_it_once_does_not_see_where_it_went(tmp_path: object) -> None:
    place = f"sqlite:///{tmp_path}/shared.db"
    async with bench(flow(STATES), store=place) as one, bench(flow(STATES), store=place) as other:
        told = await one.submit(await one.start(by=OWNER), "go", by=OWNER)
        assert (await one.get(told, ANN))["state"] == "b"
        await other.submit(told, "back", by=OWNER)
        refused = await one.submit(told, "nowhere", by=ANN)
        assert refused.code == "UNKNOWN_WORKFLOW"
        assert "state" not in refused.data


@asynchronous
async def test_links_are_for_who_asks() -> None:
    states = {
        "a": {
            "linkFilter": "byGuards",
            "transitions": {
                "go": {"target": "done"},
                "lead": {"target": "done", "guards": [{"kind": "role", "role": "admin"}]},
                "system": {"target": "done", "actor": "system"},
            },
        },
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        told = await b.start(by=OWNER)
        assert told.names == ["go"]
        assert (await b.get(told, OPERATOR)).names == ["go", "lead", "system"]
        assert (await b.submit(told, "system", by=OWNER)).code == "ACTOR_MISMATCH"
        assert (await b.submit(told, "system", by=OPERATOR))["terminal"]
