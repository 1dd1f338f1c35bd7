"""Starting instances, and refused starts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.workflows.conftest import WORK, Json, bench, flow, model
from waypost import Hub
from waypost.policy.rules import Rule
from waypost.testing import connect
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28
from waypost.workflows.transitions import new_id

SCHEMA = {
    "type": "object",
    "properties": {
        "service": {"type": "string"},
        "environment": {"type": "string", "default": "staging"},
        "limits": {"type": "object", "default": {}, "properties": {"cpu": {"type": "integer", "default": 2}}},
    },
    "required": ["service"],
    "additionalProperties": False,
}
STATES: Json = {
    "lint": {
        "goal": "Clean code",
        "guidance": "Run it",
        "transitions": {"go": {"target": "done", "title": "Go on", "output": {"env": "$.input.environment"}}},
    },
    "done": {"terminal": True},
}


def test_ids_sort_by_creation_also_within_a_millisecond() -> None:
    ids = [new_id() for _ in range(1_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 1_000


@pytest.mark.parametrize("version", [LATEST_LEGACY, V2026_07_28])
@asynchronous
async def test_an_instance_begins_at_version_1_in_its_initial_state(version: str) -> None:
    definition = flow(STATES, inputSchema=SCHEMA, initialContext={"tries": 0}, version="7")
    async with bench(definition, version=version) as b:
        view = await b.start(given={"service": "web"})
        assert not view.refused
        assert view.id.startswith("wf_")
        assert view.at == ("lint", 1, {"tries": 0})
        assert (view["definitionId"], view["definitionVersion"]) == ("flow", "7")
        assert view["status"] == "waiting_for_action"
        assert view["guidance"] == {"goal": "Clean code", "instructions": "Run it"}
        assert view["links"] == [
            {
                "rel": "transition",
                "title": "Go on",
                "method": "workflow.submit",
                "args": {"workflowId": view.id, "expectedVersion": 1, "transition": "go", "arguments": {}},
            }
        ]
        assert "terminal" not in view.data


@asynchronous
async def test_defaults_are_filled_in_at_any_depth_before_the_input_is_looked_at(store: str) -> None:
    async with bench(flow(STATES, inputSchema=SCHEMA), store=store) as b:
        view = await b.start(given={"service": "web", "limits": {}})
        ended = await b.follow(view, "go")
        assert ended["context"] == {"env": "staging"}
        kept = await b.hub.store.instances.get(view.id)
        assert kept is not None
        assert kept.value["input"] == {"service": "web", "environment": "staging", "limits": {"cpu": 2}}


@pytest.mark.parametrize("given", [{}, {"service": 7}, {"service": "web", "colour": "red"}])
@asynchronous
async def test_bad_input_is_refused_and_there_is_no_instance(given: Json) -> None:
    async with bench(flow(STATES, inputSchema=SCHEMA)) as b:
        view = await b.start(given=given)
        assert (view.refused, view.code) == (True, "INPUT_SCHEMA_VIOLATION")
        assert view["error"]["problems"]
        assert view["definitionId"] == "flow"
        assert await b.hub.store.instances.page() == []


@asynchronous
async def test_a_refused_start_links_to_the_input_schema() -> None:
    async with bench(flow(STATES, inputSchema=SCHEMA)) as b:
        view = await b.start()
        assert [link["method"] for link in view["links"]] == ["workflow.explain"]
        explained = await b.explain(**view["links"][0]["args"])
        assert explained["inputSchema"] == SCHEMA


@asynchronous
async def test_the_error_for_an_unknown_definition_suggests_similar_names() -> None:
    async with bench(deploy_pipeline=flow(STATES)) as b:
        view = await b.start("deploy_pipelin")
        assert (view.refused, view.code) == (True, "UNKNOWN_ID")
        assert "deploy_pipeline" in view["error"]["message"]
        assert view["links"][0]["args"] == {"definitionId": "deploy_pipeline"}
        assert not (await b.call(view["links"][0]["method"], **view["links"][0]["args"])).refused


@asynchronous
async def test_input_may_be_left_out() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.call("workflow.start", definitionId="flow")
        assert view.at == ("lint", 1, {})


@asynchronous
async def test_a_workflow_with_a_terminal_initial_state_ends_at_once() -> None:
    async with bench(flow({"done": {"terminal": True, "outcome": "failed"}})) as b:
        view = await b.start()
        assert (view["terminal"], view["outcome"], view["links"], view["version"]) == (True, "failed", [], 1)


@asynchronous
async def test_the_entry_of_the_first_state_runs_before_the_response(store: str) -> None:
    states = {
        "look": {
            "onEnter": {"executor": WORK, "output": {"seen": "$.output.count"}},
            "transitions": {"go": {"target": "done"}},
        },
        "done": {"terminal": True},
    }
    async with bench(flow(states), store=store) as b:
        view = await b.start()
        assert view.at == ("look", 2, {"seen": 1})
        assert view.names == ["go"]
        assert [row["transition"] for row in await b.history(view)] == ["$start", "$enter"]


@asynchronous
async def test_a_disabled_workflow_is_not_started() -> None:
    async with bench(flow(STATES, enabled=False)) as b:
        view = await b.start()
        assert view.refused
        assert view["error"]["message"] == "Workflow flow is disabled"
        assert await b.hub.store.instances.page() == []


@asynchronous
async def test_a_rule_that_denies_a_workflow_denies_its_start_and_its_moves() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        b.hub.guard.policy.replace([Rule(name="no", type="mcp_restriction", config={"tool_pattern": "flow:"})])
        assert (await b.start()).code == "POLICY_DENIED"
        refused = await b.submit(view, "go")
        assert (refused.refused, refused.code) == (True, "POLICY_DENIED")
        assert "self" in refused.rels
        assert (await b.get(view)).at == view.at


@asynchronous
async def test_a_stopping_hub_starts_nothing_and_lets_running_moves_finish() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        b.engine.draining = True
        refused = await b.start()
        assert (refused.refused, refused.code) == (True, "DRAINING")
        assert (await b.get(view)).at == view.at
        assert (await b.follow(view, "go"))["terminal"]


@asynchronous
async def test_stopping_waits_for_moves_that_run() -> None:
    states = {"a": {"transitions": {"go": {"target": "done", "executor": WORK}}}, "done": {"terminal": True}}
    async with bench(flow(states)) as b:
        view = await b.start()
        release = b.work.hold()
        moving = asyncio.create_task(b.follow(view, "go"))
        await b.work.began.wait()
        stopping = asyncio.create_task(b.engine.stop())
        await until(lambda: b.engine.draining)
        assert not stopping.done()
        release.set()
        assert (await moving)["terminal"]
        await stopping


@asynchronous
async def test_a_cancelled_opening_leaves_the_store_usable(store: str) -> None:
    hub = Hub("short", version="1", store=store).workflow("flow", model(flow(STATES)))
    opening = asyncio.create_task(hub.store.open())
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait({opening})
    await hub.store.open()
    assert await hub.store.health() == "ok"
    await hub.stop()


@asynchronous
async def test_a_hub_that_was_stopped_can_be_started_again(tmp_path: Path) -> None:
    hub = Hub("again", version="1", store=f"sqlite:///{tmp_path}/again.db").workflow("flow", model(flow(STATES)))
    async with connect(hub) as client:
        first = await client.call_tool("workflow.start", {"definitionId": "flow"})
        await hub.stop()
    async with connect(hub) as client:
        arguments = first["structuredContent"]["links"][0]["args"]
        assert (await client.call_tool("workflow.submit", arguments))["structuredContent"]["terminal"]
        assert not (await client.call_tool("workflow.start", {"definitionId": "flow"})).get("isError")
        await hub.stop()
