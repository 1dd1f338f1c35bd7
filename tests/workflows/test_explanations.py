"""Explaining what a workflow would do, without side effects."""

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
async def test_a_whole_definition_is_explained(version: str) -> None:
    async with bench(DEFINITION, version=version) as b:
        view = await b.explain(definitionId="flow")
        assert not view.refused
        assert view.data == {
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
async def test_a_transition_is_explained_with_all_its_requirements() -> None:
    async with bench(DEFINITION) as b:
        view = await b.explain(definitionId="flow", transition="deploy")
        assert (view["state"], view["title"], view["target"], view["actor"]) == ("test", "deploy", "done", "agent")
        assert view["guards"] == [GUARD]
        assert view["inputSchema"] == SCHEMA
        assert view["executor"] == {**WORK}


@asynchronous
async def test_a_transition_of_several_states_is_explained_for_each() -> None:
    async with bench(DEFINITION) as b:
        view = await b.explain(definitionId="flow", transition="abort")
        assert [(one["state"], one["title"]) for one in view["transitions"]] == [
            ("lint", "abort"),
            ("test", "Abort late"),
        ]


@asynchronous
async def test_explaining_an_instance_shows_allowed_transitions_and_reasons() -> None:
    async with bench({**DEFINITION, "initialContext": {"coverage": 80}}) as b:
        view = await b.start()
        explained = await b.explain(definitionId="flow", workflowId=view.id)
        assert (explained["workflowId"], explained["state"], explained["version"]) == (view.id, "lint", 1)
        allowed = {one["transition"]: (one["allowed"], one["reasons"]) for one in explained["allowed"]}
        assert allowed["go"] == (True, [])
        assert allowed["people"][0] is False
        assert allowed["people"][1][0]["code"] == "ACTOR_MISMATCH"
        moved = await b.follow(view, "go")
        explained = await b.explain(definitionId="flow", workflowId=view.id, transition="deploy")
        assert (explained["state"], explained["version"], explained["target"]) == ("test", 2, "done")
        reasons = {one["transition"]: one["reasons"] for one in explained["allowed"]}
        assert reasons["deploy"][0]["code"] == "GUARD_REJECTED"
        assert "80" in str(reasons["deploy"])
        assert (await b.get(moved)).at == moved.at


@asynchronous
async def test_an_instance_is_explained_for_the_asking_principal() -> None:
    async with bench(DEFINITION) as b:
        view = await b.start(by=ANN)
        explained = await b.explain(ANN, definitionId="flow", workflowId=view.id)
        assert all(one["allowed"] for one in explained["allowed"])


@asynchronous
async def test_an_instance_is_explained_without_its_definition_id() -> None:
    async with bench(DEFINITION) as b:
        view = await b.start()
        explained = await b.explain(workflowId=view.id)
        assert (explained["definitionId"], explained["state"]) == ("flow", "lint")


@pytest.mark.parametrize("transition", [{}, {"transition": "go"}])
@asynchronous
async def test_an_instance_is_not_explained_by_another_definition(transition: Json) -> None:
    async with bench(DEFINITION, other=DEFINITION) as b:
        view = await b.start()
        refused = await b.explain(definitionId="other", workflowId=view.id, **transition)
        assert (refused.refused, refused.code) == (True, "DEFINITION_MISMATCH")
        assert "allowed" not in refused.data
        assert f"{view.id} is an instance of flow, not of other" in refused["error"]["message"]
        assert refused["links"][0]["args"] == {"definitionId": "flow"}


@asynchronous
async def test_a_definition_may_be_named_by_its_tool_name() -> None:
    async with bench(DEFINITION) as b:
        view = await b.start()
        explained = await b.explain(definitionId="workflow:flow", workflowId=view.id)
        assert (explained["definitionId"], explained["state"]) == ("flow", "lint")
        assert (await b.explain(definitionId="workflow:flow"))["definitionId"] == "flow"


@asynchronous
async def test_no_transition_is_allowed_in_an_ended_instance() -> None:
    async with bench(DEFINITION) as b:
        view = await b.start()
        await b.engine.cancel(view.id, DetachedCaller(ANONYMOUS, FROM_OUTSIDE))
        explained = await b.explain(definitionId="flow", workflowId=view.id)
        assert not any(one["allowed"] for one in explained["allowed"])
        ended = await b.follow(await b.start(), "abort")
        assert (await b.explain(definitionId="flow", workflowId=ended.id))["allowed"] == []


@asynchronous
async def test_no_transition_is_allowed_while_an_approval_is_pending() -> None:
    states = {
        "a": {"transitions": {"ask": {"target": "done", "executor": {"kind": "human"}}}},
        "done": {"terminal": True},
    }
    async with bench(flow(states)) as b:
        view = await b.follow(await b.start(), "ask")
        (one,) = (await b.explain(definitionId="flow", workflowId=view.id))["allowed"]
        assert (one["allowed"], one["reasons"][0]["code"]) == (False, "APPROVAL_PENDING")


@asynchronous
async def test_explaining_changes_nothing_even_if_a_timeout_is_due() -> None:
    async with bench({**DEFINITION, "timeoutMs": 1, "onTimeout": {"target": "aborted"}}) as b:
        await b.hub.workflows.watch.stop()
        view = await b.start()
        await later(time.time() + 0.002)
        await b.explain(definitionId="flow", workflowId=view.id)
        assert len(await b.history(view)) == 1
        assert b.work.calls == []


@asynchronous
async def test_secrets_are_not_explained() -> None:
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
            view = await b.explain(definitionId="flow", transition=name)
            assert "s3cret" not in str(view.data)
            assert "[REDACTED]" in str(view.data)
        one = await b.explain(definitionId="flow", transition="one")
        assert "visible" in str(one.data)


@asynchronous
async def test_an_unknown_name_is_an_error_with_links() -> None:
    async with bench(DEFINITION) as b:
        view = await b.explain(definitionId="flo")
        assert (view.refused, view.code) == (True, "UNKNOWN_ID")
        assert view["links"][0]["args"] == {"definitionId": "flow"}
        view = await b.explain(definitionId="flow", transition="nowhere")
        assert (view.refused, view.code) == (True, "INVALID_TRANSITION")
        assert "deploy" in view["error"]["message"]
        assert view["links"]
        view = await b.explain(definitionId="flow", workflowId="wf_0")
        assert (view.refused, view.code) == (True, "UNKNOWN_WORKFLOW")
