"""Whatever has several names is found by each, and what is near to a wrong name is told."""

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
async def test_a_rule_about_a_workflow_counts_by_whichever_name_it_is_started() -> None:
    rule = {"name": "r", "type": "mcp_restriction", "config": {"tool_pattern": "workflow:release"}}
    async with agent(office(policies=[msgspec.convert(rule, Rule)])) as a:
        for name in ("release", "workflow:release"):
            refused = await a.call("workflow.start", definitionId=name, input={})
            assert refused["error"]["code"] == "POLICY_DENIED"


@asynchronous
async def test_a_workflow_keeps_its_own_name_though_it_looks_like_that_of_a_tool() -> None:
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
async def test_a_wrong_name_of_a_tool_is_told_with_the_workflow_that_is_near(tool: str, arguments: Any) -> None:
    async with agent(office()) as a:
        refused = await a.call(tool, **arguments)
        assert (refused["error"]["code"], refused["error"]["nearest"]) == ("UNKNOWN_ID", ["release"])


@asynchronous
async def test_an_unknown_capability_is_told_with_the_nearest() -> None:
    async with agent(office()) as a:
        refused = await a.start(capability="mail.sned", arguments={"to": "ann"})
        assert (refused["error"]["code"], refused["error"]["nearest"]) == ("UNKNOWN_ID", ["mail.send"])
        assert "Did you mean mail.send?" in refused["error"]["message"]
        near, search = refused["links"]
        assert (await a.follow(near))["id"] == "mail.send"
        assert (await a.follow(search))["results"]


@asynchronous
async def test_what_is_near_but_no_capability_or_not_theirs_is_not_told() -> None:
    denied = {"name": "r", "type": "mcp_restriction", "config": {"tool_pattern": "mail"}, "principals": ["mallory"]}
    async with agent(office(policies=[msgspec.convert(denied, Rule)])) as a:
        assert (await a.start(MALLORY, capability="mail.sned"))["error"]["nearest"] == []
        for name in ("releese", "prompt:greet", "docs://guide", "attik"):
            assert (await a.start(capability=name))["error"]["nearest"] == []


@asynchronous
async def test_the_workflow_of_a_single_capability_is_explained() -> None:
    async with agent(office()) as a:
        told = await a.call("workflow.explain", definitionId="proxy_default")
        assert (told["definitionId"], told["initialState"]) == ("proxy_default", "ready")
        assert told["inputSchema"]["required"] == ["capability"]
        assert told["inputSchema"]["properties"].keys() == {"capability", "arguments"}
        assert "context.lastResult" in told["states"]["ready"]["description"]


@asynchronous
async def test_a_capability_is_explained_as_the_transition_that_it_will_be() -> None:
    async with agent(office()) as a:
        told = await a.call("workflow.explain", definitionId="proxy_default", transition="mail.send")
        assert (told["transition"], told["state"], told["title"]) == ("mail.send", "ready", "Send a mail")
        assert told["inputSchema"]["required"] == ["to"]
        assert told["executor"]["capability"] == "mail.send"
        refused = await a.call("workflow.explain", definitionId="proxy_default", transition="mail.sned")
        assert (refused["error"]["code"], refused["error"]["nearest"]) == ("UNKNOWN_ID", ["mail.send"])


@asynchronous
async def test_what_somebody_may_not_use_is_not_explained_to_them() -> None:
    denied = {"name": "r", "type": "mcp_restriction", "config": {"tool_pattern": "mail"}, "principals": ["mallory"]}
    async with agent(office(policies=[msgspec.convert(denied, Rule)])) as a:
        asked = {"definitionId": "proxy_default", "transition": "mail.send"}
        refused = await a.call("workflow.explain", MALLORY, **asked)
        assert refused["error"]["code"] == "POLICY_DENIED"
        assert "inputSchema" not in refused


@pytest.mark.parametrize("tool", ["workflow.start", "workflow.explain"])
@asynchronous
async def test_a_capability_that_is_hidden_from_somebody_is_answered_like_one_that_never_was(tool: str) -> None:
    config = {"tool_pattern": "mail.send"}
    rule = {"name": "r", "type": "mcp_restriction", "config": config, "hide": True, "principals": ["mallory"]}
    async with agent(office(policies=[msgspec.convert(rule, Rule)])) as a:
        told = []
        for name in ("mail.send", "mail.sens"):
            about = {"input": {"capability": name}} if tool == "workflow.start" else {"transition": name}
            told.append(await a.call(tool, MALLORY, definitionId="proxy_default", **about))
        assert told[0]["error"]["code"] == "UNKNOWN_ID"
        assert str(told[0]).replace("mail.send", "mail.sens") == str(told[1])
