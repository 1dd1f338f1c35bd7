"""Links: the possible next calls, complete with arguments."""

from __future__ import annotations

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, Json, bench, flow

DONE: Json = {"terminal": True}
SCHEMA = {"type": "object", "properties": {"repo": {"type": "string"}}, "required": ["repo"]}


@asynchronous
async def test_a_link_contains_everything_needed_to_follow_it() -> None:
    transition = {
        "target": "done",
        "title": "Push",
        "description": "Push it",
        "inputSchema": SCHEMA,
        "prefill": {"repo": "$.workflow.input.repo", "missing": "$.context.nowhere", "deep": {"n": ["$.context.n"]}},
    }
    states = {"a": {"transitions": {"push": transition}}, "done": DONE}
    async with bench(flow(states, initialContext={"n": 1})) as b:
        view = await b.start(given={"repo": "r"})
        assert view["links"] == [
            {
                "rel": "transition",
                "title": "Push",
                "description": "Push it",
                "method": "workflow.submit",
                "args": {
                    "workflowId": view.id,
                    "expectedVersion": 1,
                    "transition": "push",
                    "arguments": {"repo": "r", "deep": {"n": [1]}},
                },
                "inputSchema": SCHEMA,
            }
        ]
        assert (await b.follow(view, "push"))["terminal"]


@asynchronous
async def test_links_have_the_current_version() -> None:
    async with bench(flow({"a": {"transitions": {"again": {"target": "a"}}}})) as b:
        view = await b.start()
        for version in (1, 2, 3):
            assert view.link("again")["expectedVersion"] == version
            assert (await b.get(view)).link("again") == view.link("again")
            view = await b.follow(view, "again")


@asynchronous
async def test_links_mark_human_transitions_and_omit_deterministic_ones() -> None:
    states = {
        "a": {
            "transitions": {
                "agent": {"target": "done"},
                "person": {"target": "done", "actor": "human"},
                "auto": {"target": "done", "actor": "deterministic"},
                "system": {"target": "done", "actor": "system"},
            }
        },
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        view = await b.start()
        assert [(link["args"]["transition"], link.get("actor")) for link in view["links"]] == [
            ("agent", None),
            ("person", "human"),
        ]
        assert (await b.follow(view, "person")).code == "ACTOR_MISMATCH"
        assert (await b.follow(view, "person", ANN))["terminal"]


@pytest.mark.parametrize(
    ("workflow", "state", "names"),
    [
        (None, None, ["open", "shut", "args"]),
        ("byGuards", None, ["open"]),
        (None, "byGuards", ["open"]),
        ("byGuards", "all", ["open", "shut", "args"]),
    ],
)
@asynchronous
async def test_links_can_be_filtered_by_guards_for_all_states_or_for_one(
    workflow: str | None, state: str | None, names: list[str]
) -> None:
    def guarded(expr: str) -> Json:
        return {"target": "done", "guards": [{"kind": "expr", "expr": expr}]}

    first: Json = {
        "transitions": {
            "open": guarded("$.context.n == 1"),
            "shut": guarded("$.context.n == 2"),
            "args": guarded("$.arguments.yes == true"),
        }
    }
    if state:
        first["linkFilter"] = state
    more = {"linkFilter": workflow} if workflow else {}
    async with bench(flow({"a": first, "done": DONE}, initialContext={"n": 1}, **more)) as b:
        view = await b.start()
        assert view.names == names
        assert (await b.submit(view, "args", {"yes": True}))["terminal"]


@asynchronous
async def test_filtering_by_guards_is_not_audited() -> None:
    guarded = {"target": "a", "guards": [{"kind": "role", "role": "nobody"}]}
    definition = flow({"a": {"linkFilter": "byGuards", "transitions": {"go": guarded}}})
    async with bench(definition, options={"audit": "store"}) as b:
        view = await b.start()
        before = len([row for row in await b.audited() if row.get("run") == view.id])
        assert view["links"] == []
        await b.get(view)
        assert len([row for row in await b.audited() if row.get("run") == view.id]) == before


@asynchronous
async def test_reading_never_changes_an_instance() -> None:
    async with bench(flow({"a": {"transitions": {"go": {"target": "done"}}}, "done": DONE})) as b:
        view = await b.start()
        before = await b.hub.store.instances.get(view.id)
        first = await b.get(view)
        assert (await b.get(view)).data == first.data
        assert await b.hub.store.instances.get(view.id) == before
        assert len(await b.history(view)) == 1


@asynchronous
async def test_every_rejection_is_audited() -> None:
    states = {"a": {"transitions": {"person": {"target": "done", "actor": "human"}}}, "done": DONE}
    async with bench(flow(states), options={"audit": "store"}) as b:
        view = await b.start()
        await b.submit(view, "person")
        await b.submit(view, "person", version=4)
        rows = [row for row in await b.audited() if row.get("action") == "transition.rejected"]
        assert [row["decision"] for row in rows] == ["deny", "deny"]
        assert "ACTOR_MISMATCH" in rows[0]["reason"]
        assert "STALE_WORKFLOW_VERSION" in rows[1]["reason"]


@asynchronous
async def test_all_transitions_of_an_instance_are_audited() -> None:
    states = {
        "a": {"transitions": {"go": {"target": "b"}}},
        "b": {"transitions": {"on": {"target": "done", "actor": "deterministic"}}},
        "done": DONE,
    }
    async with bench(flow(states), options={"audit": "store"}) as b:
        view = await b.follow(await b.start(by=ANN), "go", ANN)
        rows = [row for row in await b.audited() if row.get("run") == view.id]
        assert [row["action"] for row in rows] == [
            "workflow.started",
            "workflow.transitioned",
            "workflow.transitioned",
            "workflow.completed",
        ]
        assert {row["principal"] for row in rows} == {"ann"}
        assert [row["callerType"] for row in rows][1:3] == ["mcp", "workflow"]
        assert rows[-1]["outcome"] == "succeeded"
