"""Explaining: what a workflow would do, told without doing anything."""

from __future__ import annotations

import time

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, WORK, Json, bench, flow, later
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

SCHEMA = {"type": "object", "properties": {"value": {"type": "integer"}}}
GUARD = {"kind": "expr", "expr": "$.context.coverage >= 90"}
STATES: Json = {
    "lint": {
        "description": "Look",
        "transitions": {
            "go": {"target": "test", "title": "Go on"},
            "abort": {"target": "aborted", "description": "Stop"},
            "people": {"target": "test", "actor": "human"},
        },
    },
    "test": {
        "transitions": {
            "deploy": {"target": "done", "guards": [GUARD], "inputSchema": SCHEMA, "executor": WORK},
            "abort": {"target": "aborted", "title": "Abort late"},
        }
    },
    "done": {"terminal": True},
    "aborted": {"terminal": True, "outcome": "cancelled"},
}
DEFINITION = flow(STATES, title="Pipeline", description="All of it", version="3", inputSchema={"type": "object"})


@pytest.mark.parametrize("version", [LATEST_LEGACY, V2026_07_28])
@asynchronous
async def test_a_definition_is_told_as_a_whole(version: str) -> None:
    async with bench(DEFINITION, version=version) as b:
        told = await b.explain(definitionId="flow")
        assert not told.refused
        assert told.data == {
            "definitionId": "flow",
            "definitionVersion": "3",
            "title": "Pipeline",
            "description": "All of it",
            "initialState": "lint",
            "inputSchema": {"type": "object"},
            "states": {
                "lint": {"transitions": ["go", "abort", "people"], "description": "Look"},
                "test": {"transitions": ["deploy", "abort"]},
                "done": {"terminal": True},
                "aborted": {"terminal": True, "outcome": "cancelled"},
            },
        }


@asynchronous
async def test_a_transition_is_told_with_everything_it_takes() -> None:
    async with bench(DEFINITION) as b:
        told = await b.explain(definitionId="flow", transition="deploy")
        assert (told["state"], told["title"], told["target"], told["actor"]) == ("test", "deploy", "done", "agent")
        assert told["guards"] == [GUARD]
        assert told["inputSchema"] == SCHEMA
        assert told["executor"] == {**WORK}


@asynchronous
async def test_a_name_that_stands_in_several_states_is_told_for_each() -> None:
    async with bench(DEFINITION) as b:
        told = await b.explain(definitionId="flow", transition="abort")
        assert [(one["state"], one["title"]) for one in told["transitions"]] == [
            ("lint", "abort"),
            ("test", "Abort late"),
        ]


@asynchronous
async def test_with_an_instance_it_tells_what_is_allowed_and_why_not() -> None:
    async with bench({**DEFINITION, "initialContext": {"coverage": 80}}) as b:
        told = await b.start()
        explained = await b.explain(definitionId="flow", workflowId=told.id)
        assert (explained["workflowId"], explained["state"], explained["version"]) == (told.id, "lint", 1)
        allowed = {one["transition"]: (one["allowed"], one["reasons"]) for one in explained["allowed"]}
        assert allowed["go"] == (True, [])
        assert allowed["people"][0] is False
        assert allowed["people"][1][0]["code"] == "ACTOR_MISMATCH"
        moved = await b.follow(told, "go")
        explained = await b.explain(definitionId="flow", workflowId=told.id, transition="deploy")
        assert (explained["state"], explained["version"], explained["target"]) == ("test", 2, "done")
        reasons = {one["transition"]: one["reasons"] for one in explained["allowed"]}
        assert reasons["deploy"][0]["code"] == "GUARD_REJECTED"
        assert "80" in str(reasons["deploy"])
        assert (await b.get(moved)).at == moved.at


@asynchronous
async def test_what_it_says_about_an_instance_is_for_who_asks() -> None:
    async with bench(DEFINITION) as b:
        told = await b.start(by=ANN)
        explained = await b.explain(ANN, definitionId="flow", workflowId=told.id)
        assert all(one["allowed"] for one in explained["allowed"])


@asynchronous
async def test_an_instance_alone_is_enough() -> None:
    async with bench(DEFINITION) as b:
        told = await b.start()
        explained = await b.explain(workflowId=told.id)
        assert (explained["definitionId"], explained["state"]) == ("flow", "lint")


@pytest.mark.parametrize("transition", [{}, {"transition": "go"}])
@asynchronous
async def test_an_instance_is_not_explained_by_another_definition(transition: Json) -> None:
    async with bench(DEFINITION, other=DEFINITION) as b:
        told = await b.start()
        refused = await b.explain(definitionId="other", workflowId=told.id, **transition)
        assert (refused.refused, refused.code) == (True, "DEFINITION_MISMATCH")
        assert "allowed" not in refused.data
        assert f"{told.id} is an instance of flow, not of other" in refused["error"]["message"]
        assert refused["links"][0]["args"] == {"definitionId": "flow"}


@asynchronous
async def test_a_definition_may_be_named_like_its_tool() -> None:
    async with bench(DEFINITION) as b:
        told = await b.start()
        explained = await b.explain(definitionId="workflow:flow", workflowId=told.id)
        assert (explained["definitionId"], explained["state"]) == ("flow", "lint")
        assert (await b.explain(definitionId="workflow:flow"))["definitionId"] == "flow"


@asynchronous
async def test_in_an_instance_that_ended_nothing_is_allowed() -> None:
    async with bench(DEFINITION) as b:
        told = await b.start()
        await b.engine.cancel(told.id, DetachedCaller(ANONYMOUS, FROM_OUTSIDE))
        explained = await b.explain(definitionId="flow", workflowId=told.id)
        assert not any(one["allowed"] for one in explained["allowed"])
        ended = await b.follow(await b.start(), "abort")
        assert (await b.explain(definitionId="flow", workflowId=ended.id))["allowed"] == []


@asynchronous
async def test_while_people_decide_nothing_is_allowed() -> None:
    states = {
        "a": {"transitions": {"ask": {"target": "done", "executor": {"kind": "human"}}}},
        "done": {"terminal": True},
    }
    async with bench(flow(states)) as b:
        told = await b.follow(await b.start(), "ask")
        (one,) = (await b.explain(definitionId="flow", workflowId=told.id))["allowed"]
        assert (one["allowed"], one["reasons"][0]["code"]) == (False, "APPROVAL_PENDING")


@asynchronous
async def test_it_changes_nothing_even_where_a_timeout_is_due() -> None:
    async with bench({**DEFINITION, "timeoutMs": 1, "onTimeout": {"target": "aborted"}}) as b:
        await b.hub.workflows.watch.stop()
        told = await b.start()
        await later(time.time() + 0.002)
        await b.explain(definitionId="flow", workflowId=told.id)
        assert len(await b.history(told)) == 1
        assert b.work.calls == []


@asynchronous
async def test_secrets_are_not_told() -> None:
    rest = {
        "kind": "rest",
        "connection": "api",
        "method": "POST",
        "path": "/x",
        "headers": {"X-Trace": "s3cret-1"},
        "query": {"api_key": "s3cret-2", "page": 1},
        "body": {"password": "s3cret-3", "inner": [{"accessToken": "s3cret-4"}], "name": "visible"},
    }
    cli = {"kind": "cli", "command": "true", "env": {"ANY": "s3cret-5"}}
    nested = {"kind": "pipeline", "steps": [rest, {"kind": "parallel", "branches": [cli]}]}
    states = {
        "a": {"transitions": {"one": {"target": "a", "executor": nested}, "two": {"target": "a", "executor": cli}}},
    }
    async with bench(flow(states)) as b:
        for name in ("one", "two"):
            told = await b.explain(definitionId="flow", transition=name)
            assert "s3cret" not in str(told.data)
            assert "[REDACTED]" in str(told.data)
        one = await b.explain(definitionId="flow", transition="one")
        assert "visible" in str(one.data)


@asynchronous
async def test_what_does_not_exist_is_told_so_and_leads_on() -> None:
    async with bench(DEFINITION) as b:
        told = await b.explain(definitionId="flo")
        assert (told.refused, told.code) == (True, "UNKNOWN_ID")
        assert told["links"][0]["args"] == {"definitionId": "flow"}
        told = await b.explain(definitionId="flow", transition="nowhere")
        assert (told.refused, told.code) == (True, "INVALID_TRANSITION")
        assert "deploy" in told["error"]["message"]
        assert told["links"]
        told = await b.explain(definitionId="flow", workflowId="wf_0")
        assert (told.refused, told.code) == (True, "UNKNOWN_WORKFLOW")
