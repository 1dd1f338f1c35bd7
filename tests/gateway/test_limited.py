"""The catalog has tools that a rule denies temporarily, but not those that it always denies."""

from __future__ import annotations

import pytest

from tests.gateway.conftest import Agent, agent, office
from tests.protocol.conftest import asynchronous
from waypost.policy import Rule

MAIL = ("mail.send",)
FOR_A_WHILE = [
    Rule(name="limit", type="rate_limit", config={"max_calls": 1, "permission": "execute"}, capabilities=MAIL),
    Rule(name="hours", type="time_window", config={"deny_start_hour": 0, "deny_end_hour": 24}, capabilities=MAIL),
    Rule(
        name="freeze",
        type="permission_override",
        config={"permission": "execute", "expires_at": "2999-01-01T00:00:00Z"},
        capabilities=MAIL,
    ),
]
FOR_GOOD = [
    Rule(name="none", type="mcp_restriction", config={"tool_pattern": "mail"}),
    Rule(name="taken", type="permission_override", config={"permission": "*"}, capabilities=MAIL),
    Rule(name="others", type="allow_list", config={"allow": ["skill:*", "gateway.*", "workflow.*"]}),
]


async def seen(someone: Agent) -> list[bool]:
    """Whether home, search and describe show the tool."""
    described = await someone.describe("mail.send")
    return ["mail.send" in await someone.ids(), "mail.send" in await someone.found("mail"), "error" not in described]


@pytest.mark.parametrize("rule", FOR_A_WHILE, ids=lambda rule: rule.name)
@asynchronous
async def test_a_temporarily_denied_tool_is_listed_found_and_described(rule: Rule) -> None:
    async with agent(office(policies=[rule])) as someone:
        if rule.type == "rate_limit":
            assert (await someone.start(capability="mail.send", arguments={"to": "ann"}))["version"] == 2

        assert await seen(someone) == [True, True, True]
        refused = await someone.start(capability="mail.send", arguments={"to": "ann"})
        assert refused["error"]["code"] == "POLICY_DENIED"


@pytest.mark.parametrize("rule", FOR_GOOD, ids=lambda rule: rule.name)
@asynchronous
async def test_a_permanently_denied_tool_is_not_listed_found_or_described(rule: Rule) -> None:
    async with agent(office(policies=[rule])) as someone:
        assert await seen(someone) == [False, False, False]


@asynchronous
async def test_a_misspelt_name_suggests_a_temporarily_denied_tool() -> None:
    async with agent(office(policies=[FOR_A_WHILE[1]])) as someone:
        assert (await someone.describe("mail.sned"))["error"]["nearest"] == ["mail.send"]


@asynchronous
async def test_a_denied_use_of_a_capability_is_in_the_audit_with_its_rule() -> None:
    async with agent(office(policies=[FOR_A_WHILE[1]], audit="store")) as someone:
        for arguments in (None, {"to": "ann"}):
            refused = await someone.start(capability="mail.send", arguments=arguments)
            assert refused["error"]["code"] == "POLICY_DENIED"
        await someone.call("workflow.explain", definitionId="proxy_default", transition="mail.send")

        log = someone.hub.guard.audit
        assert log is not None
        await log.written()
        rows = [entry.value for entry in await someone.hub.store.audit.latest(100)]
        denied = [(row["capability"], row["rule"]) for row in rows if row["decision"] == "deny"]
        assert denied == [("mail.send", "hours")] * 2
