"""The seven tools: the same for every hub, and limited to the capabilities that a caller may use."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.contract.conftest import asynchronous
from tests.gateway.conftest import ERAS, MALLORY, RELEASE, agent, eras, office
from waypost import Hub
from waypost.capabilities.capability import GATEWAY_TOOLS, Kind
from waypost.config.models import Workflow
from waypost.kinds import convert
from waypost.policy import Rule
from waypost.wire.versions import ALL

READ_ONLY = GATEWAY_TOOLS - {"workflow.start", "workflow.submit"}


def hub_of(many: int) -> Hub:
    hub = Hub("gate", version="1", surface="gateway")
    for number in range(many):
        hub.tool(name=f"tool.{number}", description=f"Tool {number}", category=f"c{number % 3}")(lambda: "x")
    return hub


@pytest.mark.parametrize("version", ALL)
def test_the_list_is_the_same_bytes_for_0_1_and_10_000_capabilities(version: str) -> None:
    nothing, one, many = (hub_of(many).engine.lists.page(Kind.TOOL, None, version) for many in (0, 1, 10_000))

    assert nothing == one == many
    assert {tool["name"] for tool in json.loads(many)["tools"]} == GATEWAY_TOOLS
    assert office().engine.lists.page(Kind.TOOL, None, version) == nothing


@eras
@asynchronous
async def test_clients_get_exactly_the_seven_tools_with_closed_schemas(version: str) -> None:
    async with agent(office(), version) as a:
        tools = await a.client.list_tools()
        assert [tool["name"] for tool in tools] == sorted(GATEWAY_TOOLS)
        assert all(tool["inputSchema"]["additionalProperties"] is False for tool in tools)
        for tool in tools:
            hints = tool.get("annotations") or {}
            assert (hints.get("readOnlyHint"), hints.get("idempotentHint")) == (
                (True, True) if tool["name"] in READ_ONLY else (None, None)
            )


@eras
@asynchronous
async def test_arguments_beyond_the_schema_are_refused(version: str) -> None:
    async with agent(office(), version) as a:
        for tool, arguments in (("home", {"page": 1}), ("describe", {}), ("search", {"query": "x", "kind": "planet"})):
            result = await a.client.call_tool(f"gateway.{tool}", arguments)
            assert result["isError"]
            assert result.text.startswith(f"Invalid arguments for tool gateway.{tool}: ")


@asynchronous
async def test_an_unlisted_tool_can_be_called_by_its_name() -> None:
    async with agent(office()) as a:
        assert (await a.client.call_tool("skill:count", {"text": "to be"})).text == "2"


# Policy


def rule(**more: Any) -> Rule:
    return msgspec.convert({"name": "r", "type": "allow_list", "config": {"allow": ["gateway.*"]}, **more}, Rule)


@pytest.mark.parametrize("hide", [False, True])
@asynchronous
async def test_a_caller_does_not_find_a_denied_tool(hide: bool) -> None:
    no_mail = rule(type="mcp_restriction", config={"tool_pattern": "mail"}, principals=["mallory"], hide=hide)
    async with agent(office(policies=[no_mail])) as a:
        assert "mail.send" in await a.ids()
        assert await a.found("mail") == ["mail.send"]

        assert "mail.send" not in await a.ids(MALLORY)
        assert await a.found("mail", MALLORY) == []
        for query in ("", "please send a mail to somebody"):
            assert "mail.send" in await a.found(query)
            assert "mail.send" not in await a.found(query, MALLORY)
        described = await a.describe("mail.send", MALLORY)
        assert described["error"]["code"] == "UNKNOWN_ID"
        assert "mail.send" not in described["error"]["nearest"]


@asynchronous
async def test_a_denied_tool_is_described_like_one_that_does_not_exist() -> None:
    no_mail = rule(type="mcp_restriction", config={"tool_pattern": "mail"}, principals=["mallory"])
    async with agent(office(policies=[no_mail])) as a:
        forbidden = json.dumps(await a.describe("mail.send", MALLORY))
        unknown = json.dumps(await a.describe("fail.send", MALLORY))
        assert forbidden.replace("mail.send", "fail.send") == unknown


@asynchronous
async def test_a_tool_is_found_only_with_its_permission_or_scope() -> None:
    hub = office()
    hub.tool(name="vault.open", description="Open the vault.", permissions=["vault"])(lambda: "gold")
    hub.tool(name="vault.close", description="Close the vault.", scopes=["vault"])(lambda: "gold")
    async with agent(hub) as a:
        assert await a.found("vault", MALLORY) == []
        permitted = msgspec.structs.replace(MALLORY, permissions=("vault",))
        scoped = msgspec.structs.replace(MALLORY, scopes=("vault",))
        assert await a.found("vault", permitted) == ["vault.open"]
        assert await a.found("vault", scoped) == ["vault.close"]


@asynchronous
async def test_a_denied_workflow_is_not_found() -> None:
    denied = rule(type="mcp_restriction", config={"tool_pattern": "workflow:release"}, principals=["mallory"])
    async with agent(office(policies=[denied])) as a:
        assert await a.found("release") == ["release"]
        assert await a.found("release", MALLORY) == []


@asynchronous
async def test_a_new_rule_applies_to_the_next_search() -> None:
    async with agent(office()) as a:
        assert await a.found("mail", MALLORY) == ["mail.send"]
        a.hub.guard.policy.replace([rule(type="mcp_restriction", config={"tool_pattern": "mail"})])
        assert await a.found("mail", MALLORY) == []


# Links in errors


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("workflow.get", {"workflowId": "wf_none"}, "UNKNOWN_WORKFLOW"),
        ("workflow.start", {"definitionId": "nothing", "input": {}}, "UNKNOWN_ID"),
        ("workflow.explain", {"definitionId": "nothing"}, "UNKNOWN_ID"),
        (
            "workflow.submit",
            {"workflowId": "wf_none", "expectedVersion": 1, "transition": "go", "arguments": {}},
            "UNKNOWN_WORKFLOW",
        ),
        ("gateway.home", {"cursor": "made up"}, "INVALID_CURSOR"),
    ],
)
@asynchronous
async def test_an_error_about_an_unknown_id_links_to_the_catalog(
    tool: str, arguments: dict[str, Any], code: str
) -> None:
    async with agent(office()) as a:
        refused = await a.call(tool, **arguments)
        assert refused["error"]["code"] == code
        assert (await a.follow(refused["links"][-1]))["items"]


@asynchronous
async def test_without_a_gateway_errors_have_no_links_to_it() -> None:
    hub = Hub("plain", version="1")
    hub.workflow("release", convert(RELEASE, Workflow))
    async with agent(hub) as a:
        assert (await a.call("workflow.get", workflowId="wf_none"))["links"] == []


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_an_agent_completes_a_workflow_by_following_links_from_the_catalog(version: str) -> None:
    async with agent(office(), version) as a:
        found = await a.follow((await a.home())["links"][-1], query="publish a release")
        started = await a.follow(found["results"][0]["item"]["links"][0])
        assert (started["definitionId"], started["version"]) == ("release", 1)
        ended = await a.follow(started["links"][0])
        assert (ended["state"], ended["terminal"], ended["links"]) == ("out", True, [])
