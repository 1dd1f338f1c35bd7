"""Views of workflows: hidden parts are left out, and denials by rules are shown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, OPERATOR, STRANGER, WORK, Json, View, bench, flow, model
from waypost.errors import RemoteError
from waypost.policy import Rule

STATES: Json = {
    "a": {"transitions": {"go": {"target": "b"}, "run": {"target": "b", "executor": WORK}}},
    "b": {"transitions": {"end": {"target": "done"}}},
    "done": {"terminal": True},
}
CLOSED = {"deny_start_hour": 0, "deny_end_hour": 24}


def rules(*given: Json) -> Json:
    """The options of a hub with rules for strangers."""
    named = [{"name": f"r{place}", "principals": ["stranger"], **one} for place, one in enumerate(given)]
    return {"policies": [msgspec.convert(one, Rule) for one in named]}


def restricted(pattern: str, **more: Any) -> Json:
    return {"type": "mcp_restriction", "config": {"tool_pattern": pattern}, **more}


def never(capability: str, **more: Any) -> Json:
    return {"type": "permission_override", "config": {"permission": "execute"}, "capabilities": [capability], **more}


def for_now(capability: str) -> Json:
    return {"type": "time_window", "config": CLOSED, "capabilities": [capability]}


def reasons(view: View) -> dict[str, list[str]]:
    """The codes of the reasons against each transition of an instance."""
    return {one["transition"]: [reason["code"] for reason in one["reasons"]] for one in view["allowed"]}


@pytest.mark.parametrize("transition", [{}, {"transition": "go"}, {"transition": "nowhere"}])
@pytest.mark.parametrize("tool", ["workflow.explain", "workflow.start"])
@asynchronous
async def test_a_hidden_workflow_is_answered_like_an_unknown_one(tool: str, transition: Json) -> None:
    given = {"input": {}} if tool == "workflow.start" else transition
    hidden = rules(restricted("workflow:flow", hide=True))
    async with bench(flow(STATES), flaw=flow(STATES), options=hidden) as b:
        seen, missing = [
            await b.call(tool, STRANGER, definitionId=name, **given) for name in ("workflow:flow", "workflow:flot")
        ]
        assert seen.code == "UNKNOWN_ID"
        assert str(seen.data).replace("flow", "flot") == str(missing.data).replace("flow", "flot")
        assert seen["error"]["nearest"] == ["flaw"]
        assert (await b.call(tool, ANN, definitionId="flow", **given)).code != "UNKNOWN_ID"


@asynchronous
async def test_a_workflow_is_not_explained_to_a_principal_who_may_never_start_it() -> None:
    async with bench(flow(STATES), options=rules(never("workflow:flow"))) as b:
        for given in ({}, {"transition": "go"}):
            view = await b.explain(STRANGER, definitionId="flow", **given)
            assert (view.code, view["error"]["message"]) == ("POLICY_DENIED", "permission override: execute is denied")
            assert not {"states", "target", "inputSchema"} & view.data.keys()


@asynchronous
async def test_a_temporarily_denied_workflow_is_explained_with_the_reason() -> None:
    async with bench(flow(STATES), options=rules(for_now("workflow:flow"))) as b:
        whole = await b.explain(STRANGER, definitionId="flow")
        assert whole["states"].keys() == STATES.keys()
        one = await b.explain(STRANGER, definitionId="flow", transition="go")
        for view in (whole, one):
            assert view["denied"]["code"] == "POLICY_DENIED"
            assert "time window" in view["denied"]["message"]
        assert "denied" not in (await b.explain(ANN, definitionId="flow")).data


@asynchronous
async def test_explaining_does_not_count_against_a_limit() -> None:
    limit = {"type": "rate_limit", "config": {"max_calls": 1}, "capabilities": ["workflow:flow"]}
    async with bench(flow(STATES), options=rules(limit)) as b:
        for _ in range(3):
            assert "denied" not in (await b.explain(STRANGER, definitionId="flow")).data
        started = await b.start(by=STRANGER)
        assert "rate limit" in (await b.explain(STRANGER, definitionId="flow"))["denied"]["message"]
        assert reasons(await b.explain(STRANGER, workflowId=started.id)) == {
            "go": ["POLICY_DENIED"],
            "run": ["POLICY_DENIED"],
        }


@asynchronous
async def test_explaining_an_instance_shows_the_denials_of_its_submits() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start(by=STRANGER)
        b.hub.guard.policy.replace(rules(for_now("work"))["policies"])

        explained = await b.explain(STRANGER, workflowId=view.id, transition="run")

        assert reasons(explained) == {"go": [], "run": ["POLICY_DENIED"]}
        assert explained["denied"]["message"] == explained["allowed"][1]["reasons"][0]["message"]
        refused = await b.submit(view, "run", by=STRANGER)
        assert refused["error"]["message"] == explained["denied"]["message"]


@asynchronous
async def test_explaining_an_instance_of_a_denied_workflow_shows_only_the_denials() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start(by=STRANGER)
        b.hub.guard.policy.replace(rules(never("workflow:flow", hide=True))["policies"])

        for given in ({}, {"transition": "go"}):
            explained = await b.explain(STRANGER, workflowId=view.id, **given)
            assert explained.data.keys() == {"definitionId", "workflowId", "state", "version", "allowed"}
            assert reasons(explained) == {"go": ["POLICY_DENIED"], "run": ["POLICY_DENIED"]}
        assert (await b.explain(OPERATOR, workflowId=view.id))["states"]


@pytest.mark.parametrize(
    "executor",
    [
        WORK,
        {"kind": "pipeline", "steps": [{"kind": "noop"}, {**WORK, "arguments": {"value": "inner-1"}}]},
        {"kind": "parallel", "branches": [{"kind": "workflow", "definitionId": "inner"}]},
        {"kind": "workflow", "definitionId": "inner"},
    ],
)
@asynchronous
async def test_hidden_capabilities_are_not_shown_in_explained_executors(executor: Json) -> None:
    states = {"a": {"transitions": {"run": {"target": "done", "executor": executor}}}, "done": {"terminal": True}}
    hidden = rules(restricted("work", capabilities=["work", "*inner"], hide=True))
    async with bench(flow(states), inner=flow(STATES), options=hidden) as b:
        view = await b.explain(STRANGER, definitionId="flow", transition="run")
        assert view["executor"]["kind"] == executor["kind"]
        assert "inner" not in str(view["executor"])
        assert "'work'" not in str(view["executor"])
        others = str((await b.explain(ANN, definitionId="flow", transition="run"))["executor"])
        assert "inner" in others or "'work'" in others


@asynchronous
async def test_the_denial_of_a_hidden_capability_does_not_name_it() -> None:
    async with bench(flow(STATES), options=rules(never("work", hide=True))) as b:
        view = await b.explain(STRANGER, definitionId="flow", transition="run")
        assert view["denied"]["message"] == "a rule denies what it runs"


@asynchronous
async def test_rules_apply_to_steps_like_to_transitions() -> None:
    steps = {"steps": [{"name": "first", "capability": "work"}]}
    async with bench(steps, options=rules(for_now("work"))) as b:
        assert "time window" in (await b.explain(STRANGER, definitionId="flow", transition="run"))["denied"]["message"]
        assert "denied" not in (await b.explain(ANN, definitionId="flow", transition="run")).data


@asynchronous
async def test_hidden_workflows_are_not_readable_as_resources() -> None:
    given = {"principals": ["anonymous"]}
    hidden = rules(
        restricted("flow", capabilities=["workflow:flow"], hide=True, **given),
        restricted("wor", capabilities=["work"], **given),
    )
    async with bench(flow(STATES), open=flow(STATES), options=hidden) as b:
        listed = await b.client.read_resource("waypost://workflows/list")
        assert [one["id"] for one in read(listed)] == ["open"]
        whole = str(read(await b.client.read_resource("waypost://workflows/open")))
        assert "'work'" not in whole
        with pytest.raises(RemoteError, match="workflow not found: flow"):
            await b.client.read_resource("waypost://workflows/flow")


def read(answer: Any) -> Any:
    return msgspec.json.decode(answer["contents"][0]["text"])


@pytest.mark.parametrize("tool", ["workflow.start", "workflow.explain"])
@pytest.mark.parametrize("name", ["workflow__flow", "workflow__a_b"])
@asynchronous
async def test_a_workflow_can_be_named_by_the_portable_name_of_its_tool(tool: str, name: str) -> None:
    async with bench(flow(STATES)) as b:
        b.hub.workflow("a.b", model(flow(STATES)))
        given: Json = {"input": {}} if tool == "workflow.start" else {}
        view = await b.call(tool, definitionId=name, **given)
        assert view["definitionId"] == ("flow" if name == "workflow__flow" else "a.b")
        if tool == "workflow.start":
            explained = await b.explain(definitionId=name, workflowId=view.id)
            assert explained["state"] == "a"


@asynchronous
async def test_a_name_similar_to_a_portable_one_is_unknown() -> None:
    async with bench(flow(STATES)) as b:
        assert (await b.start("workflow__flo")).code == "UNKNOWN_ID"
        assert (await b.start("work")).code == "UNKNOWN_ID"
