"""An item is found by each of its names, and an unknown name is answered with suggestions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.contract.conftest import asynchronous
from tests.gateway.conftest import MALLORY, RELEASE, agent, office
from waypost.config.models import Workflow
from waypost.kinds import convert
from waypost.policy import Rule


@pytest.mark.parametrize("name", ["release", "workflow:release", "workflow__release"])
@asynchronous
async def test_a_workflow_is_described_by_its_id_and_by_the_names_of_its_tool(name: str) -> None:
    async with agent(office(names="portable")) as a:
        assert await a.describe(name) == await a.describe("release")
        assert (await a.describe(name))["id"] == "release"


@pytest.mark.parametrize(("name", "id"), [("skill__count", "skill:count"), ("mail_send", "mail.send")])
@asynchronous
async def test_a_capability_is_described_by_its_portable_name(name: str, id: str) -> None:
    async with agent(office(names="portable")) as a:
        assert (await a.describe(name))["id"] == id


@asynchronous
async def test_a_workflow_is_started_by_the_name_of_its_tool() -> None:
    async with agent(office()) as a:
        started = await a.call("workflow.start", definitionId="workflow:release", input={})
        assert (started["definitionId"], started["state"]) == ("release", "build")


@asynchronous
async def test_a_rule_about_a_workflow_applies_to_each_of_its_names() -> None:
    rule = {"name": "r", "type": "mcp_restriction", "config": {"tool_pattern": "workflow:release"}}
    async with agent(office(policies=[msgspec.convert(rule, Rule)])) as a:
        for name in ("release", "workflow:release"):
            refused = await a.call("workflow.start", definitionId=name, input={})
            assert refused["error"]["code"] == "POLICY_DENIED"


@asynchronous
async def test_a_workflow_may_have_a_name_with_the_prefix_of_workflow_tools() -> None:
    hub = office()
    hub.workflow("workflow:release", convert({**RELEASE, "title": "Another"}, Workflow))
    async with agent(hub) as a:
        assert (await a.describe("workflow:release"))["title"] == "Another"
        assert (await a.call("workflow.start", definitionId="workflow:release"))["definitionId"] == "workflow:release"
        assert (await a.call("workflow.start", definitionId="release"))["definitionId"] == "release"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("gateway.describe", {"id": "workflow:releese"}),
        ("workflow.start", {"definitionId": "workflow:releese"}),
        ("workflow.explain", {"definitionId": "workflow:releese"}),
    ],
)
@asynchronous
async def test_a_misspelt_workflow_tool_suggests_the_workflow(tool: str, arguments: Any) -> None:
    async with agent(office()) as a:
        refused = await a.call(tool, **arguments)
        assert (refused["error"]["code"], refused["error"]["nearest"]) == ("UNKNOWN_ID", ["release"])


@asynchronous
async def test_an_unknown_capability_is_answered_with_the_nearest() -> None:
    async with agent(office()) as a:
        refused = await a.start(capability="mail.sned", arguments={"to": "ann"})
        assert (refused["error"]["code"], refused["error"]["nearest"]) == ("UNKNOWN_ID", ["mail.send"])
        assert "Did you mean mail.send?" in refused["error"]["message"]
        near, search = refused["links"]
        assert (await a.follow(near))["id"] == "mail.send"
        assert (await a.follow(search))["results"]


@asynchronous
async def test_only_capabilities_that_the_caller_may_use_are_suggested() -> None:
    denied = {"name": "r", "type": "mcp_restriction", "config": {"tool_pattern": "mail"}, "principals": ["mallory"]}
    async with agent(office(policies=[msgspec.convert(denied, Rule)])) as a:
        assert (await a.start(MALLORY, capability="mail.sned"))["error"]["nearest"] == []
        for name in ("releese", "prompt:greet", "docs://guide", "attik"):
            assert (await a.start(capability=name))["error"]["nearest"] == []


@asynchronous
async def test_the_workflow_of_a_single_capability_is_explained() -> None:
    async with agent(office()) as a:
        answer = await a.call("workflow.explain", definitionId="proxy_default")
        assert (answer["definitionId"], answer["initialState"]) == ("proxy_default", "ready")
        assert answer["inputSchema"]["required"] == ["capability"]
        assert answer["inputSchema"]["properties"].keys() == {"capability", "arguments"}
        assert "context.lastResult" in answer["states"]["ready"]["description"]


@asynchronous
async def test_a_capability_is_explained_as_a_transition() -> None:
    async with agent(office()) as a:
        answer = await a.call("workflow.explain", definitionId="proxy_default", transition="mail.send")
        assert (answer["transition"], answer["state"], answer["title"]) == ("mail.send", "ready", "Send a mail")
        assert answer["inputSchema"]["required"] == ["to"]
        assert answer["executor"]["capability"] == "mail.send"
        refused = await a.call("workflow.explain", definitionId="proxy_default", transition="mail.sned")
        assert (refused["error"]["code"], refused["error"]["nearest"]) == ("UNKNOWN_ID", ["mail.send"])


@asynchronous
async def test_a_denied_capability_is_not_explained() -> None:
    denied = {"name": "r", "type": "mcp_restriction", "config": {"tool_pattern": "mail"}, "principals": ["mallory"]}
    async with agent(office(policies=[msgspec.convert(denied, Rule)])) as a:
        asked = {"definitionId": "proxy_default", "transition": "mail.send"}
        refused = await a.call("workflow.explain", MALLORY, **asked)
        assert refused["error"]["code"] == "POLICY_DENIED"
        assert "inputSchema" not in refused


@pytest.mark.parametrize("tool", ["workflow.start", "workflow.explain"])
@asynchronous
async def test_a_hidden_capability_is_answered_like_an_unknown_one(tool: str) -> None:
    config = {"tool_pattern": "mail.send"}
    rule = {"name": "r", "type": "mcp_restriction", "config": config, "hide": True, "principals": ["mallory"]}
    async with agent(office(policies=[msgspec.convert(rule, Rule)])) as a:
        answer = []
        for name in ("mail.send", "mail.sens"):
            about = {"input": {"capability": name}} if tool == "workflow.start" else {"transition": name}
            answer.append(await a.call(tool, MALLORY, definitionId="proxy_default", **about))
        assert answer[0]["error"]["code"] == "UNKNOWN_ID"
        assert str(answer[0]).replace("mail.send", "mail.sens") == str(answer[1])
