"""Links: what can be done next, each a call that can be made as it is."""

from __future__ import annotations

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, Json, bench, flow

DONE: Json = {"terminal": True}
SCHEMA = {"type": "object", "properties": {"repo": {"type": "string"}}, "required": ["repo"]}


@asynchronous
async def test_a_link_says_everything_that_is_needed_to_follow_it() -> None:
    transition = {
        "target": "done",
        "title": "Push",
        "description": "Push it",
        "inputSchema": SCHEMA,
        "prefill": {"repo": "$.workflow.input.repo", "missing": "$.context.nowhere", "deep": {"n": ["$.context.n"]}},
    }
    states = {"a": {"transitions": {"push": transition}}, "done": DONE}
    async with bench(flow(states, initialContext={"n": 1})) as b:
        told = await b.start(given={"repo": "r"})
        assert told["links"] == [
            {
                "rel": "transition",
                "title": "Push",
                "description": "Push it",
                "method": "workflow.submit",
                "args": {
                    "workflowId": told.id,
                    "expectedVersion": 1,
                    "transition": "push",
                    "arguments": {"repo": "r", "deep": {"n": [1]}},
                },
                "inputSchema": SCHEMA,
            }
        ]
        assert (await b.follow(told, "push"))["terminal"]


@asynchronous
async def test_links_carry_the_version_of_now() -> None:
    async with bench(flow({"a": {"transitions": {"again": {"target": "a"}}}})) as b:
        told = await b.start()
        for version in (1, 2, 3):
            assert told.link("again")["expectedVersion"] == version
            assert (await b.get(told)).link("again") == told.link("again")
            told = await b.follow(told, "again")


@asynchronous
async def test_what_is_for_people_says_so_and_what_goes_by_itself_is_not_shown() -> None:
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
        told = await b.start()
        assert [(link["args"]["transition"], link.get("actor")) for link in told["links"]] == [
            ("agent", None),
            ("person", "human"),
        ]
        assert (await b.follow(told, "person")).code == "ACTOR_MISMATCH"
        assert (await b.follow(told, "person", ANN))["terminal"]


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
        told = await b.start()
        assert told.names == names
        assert (await b.submit(told, "args", {"yes": True}))["terminal"]


@asynchronous
async def test_filtering_by_guards_leaves_no_trace() -> None:
    guarded = {"target": "a", "guards": [{"kind": "role", "role": "nobody"}]}
    definition = flow({"a": {"linkFilter": "byGuards", "transitions": {"go": guarded}}})
    async with bench(definition, options={"audit": "store"}) as b:
        told = await b.start()
        before = len([row for row in await b.audited() if row.get("run") == told.id])
        assert told["links"] == []
        await b.get(told)
        assert len([row for row in await b.audited() if row.get("run") == told.id]) == before


@asynchronous
async def test_looking_never_changes_anything() -> None:
    async with bench(flow({"a": {"transitions": {"go": {"target": "done"}}}, "done": DONE})) as b:
        told = await b.start()
        before = await b.hub.store.instances.get(told.id)
        first = await b.get(told)
        assert (await b.get(told)).data == first.data
        assert await b.hub.store.instances.get(told.id) == before
        assert len(await b.history(told)) == 1


@asynchronous
async def test_every_rejection_is_on_record() -> None:
    states = {"a": {"transitions": {"person": {"target": "done", "actor": "human"}}}, "done": DONE}
    async with bench(flow(states), options={"audit": "store"}) as b:
        told = await b.start()
        await b.submit(told, "person")
        await b.submit(told, "person", version=4)
        rows = [row for row in await b.audited() if row.get("action") == "transition.rejected"]
        assert [row["decision"] for row in rows] == ["deny", "deny"]
        assert "ACTOR_MISMATCH" in rows[0]["reason"]
        assert "STALE_WORKFLOW_VERSION" in rows[1]["reason"]


@asynchronous
async def test_a_whole_life_is_on_record() -> None:
    states = {
        "a": {"transitions": {"go": {"target": "b"}}},
        "b": {"transitions": {"on": {"target": "done", "actor": "deterministic"}}},
        "done": DONE,
    }
    async with bench(flow(states), options={"audit": "store"}) as b:
        told = await b.follow(await b.start(by=ANN), "go", ANN)
        rows = [row for row in await b.audited() if row.get("run") == told.id]
        assert [row["action"] for row in rows] == [
            "workflow.started",
            "workflow.transitioned",
            "workflow.transitioned",
            "workflow.completed",
        ]
        assert {row["principal"] for row in rows} == {"ann"}
        assert [row["callerType"] for row in rows][1:3] == ["mcp", "workflow"]
        assert rows[-1]["outcome"] == "succeeded"
