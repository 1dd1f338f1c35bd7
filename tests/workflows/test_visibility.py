"""The owner of an instance decides its visibility; to other principals it does not exist."""

from __future__ import annotations

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, BOB, OPERATOR, STRANGER, WORK, Bench, Json, View, bench, flow
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


async def everything(b: Bench, workflow_id: str, version: int, by: Principal) -> list[View]:
    """The responses of all tools about an instance."""
    about = View({"workflowId": workflow_id, "version": version}, False)
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
        View(cancelled.data, cancelled.refused),
    ]


@pytest.mark.parametrize("person", [STRANGER, ANN, LEAD, ANONYMOUS, Principal("system-1", ("system",))])
@asynchronous
async def test_another_principals_instance_is_answered_exactly_like_an_unknown_one(person: Principal) -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start(by=OWNER)
        await b.submit(view, "back", by=OWNER, requestId="known")
        never = f"wf_{'0' * (len(view.id) - 3)}"
        seen = await everything(b, view.id, view["version"], person)
        unknown = await everything(b, never, view["version"], person)
        for foreign, missing in zip(seen, unknown, strict=True):
            assert foreign.code == "UNKNOWN_WORKFLOW"
            assert foreign.refused
            assert str(foreign.data).replace(view.id, never) == str(missing.data)
        assert (await b.get(view, OWNER)).at == view.at


@asynchronous
async def test_the_owner_and_operators_can_read_an_instance() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start(by=OWNER)
        for person in (OWNER, OPERATOR):
            assert (await b.get(view, person)).at == view.at
        assert (await b.submit(view, "go", by=OPERATOR))["state"] == "b"


@asynchronous
async def test_people_can_read_an_instance_only_while_it_needs_them() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start(by=OWNER)
        assert (await b.get(view, ANN)).code == "UNKNOWN_WORKFLOW"
        view = await b.submit(view, "go", by=OWNER)
        assert (await b.get(view, ANN))["state"] == "b"
        assert (await b.submit(view, "sign", by=OWNER)).code == "ACTOR_MISMATCH"
        signed = await b.submit(view, "sign", by=ANN)
        assert signed["state"] == "c"
        assert (await b.get(view, BOB)).code == "UNKNOWN_WORKFLOW"


@asynchronous
async def test_an_approver_can_read_an_instance_that_waits_for_approval() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.submit(await b.start(by=OWNER), "ask", by=OWNER)
        assert (await b.get(view, LEAD))["approval"]["id"] == view["approval"]["id"]
        assert (await b.get(view, ANN)).code == "UNKNOWN_WORKFLOW"


@asynchronous
async def test_a_principal_without_access_does_not_see_later_states(tmp_path: object) -> None:
    place = f"sqlite:///{tmp_path}/shared.db"
    async with bench(flow(STATES), store=place) as one, bench(flow(STATES), store=place) as other:
        view = await one.submit(await one.start(by=OWNER), "go", by=OWNER)
        assert (await one.get(view, ANN))["state"] == "b"
        await other.submit(view, "back", by=OWNER)
        refused = await one.submit(view, "nowhere", by=ANN)
        assert refused.code == "UNKNOWN_WORKFLOW"
        assert "state" not in refused.data


@asynchronous
async def test_links_depend_on_the_asking_principal() -> None:
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
        view = await b.start(by=OWNER)
        assert view.names == ["go"]
        assert (await b.get(view, OPERATOR)).names == ["go", "lead", "system"]
        assert (await b.submit(view, "system", by=OWNER)).code == "ACTOR_MISMATCH"
        assert (await b.submit(view, "system", by=OPERATOR))["terminal"]
