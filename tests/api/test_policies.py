"""Rules through the API: listed, and tested without side effects."""

from __future__ import annotations

import pytest

from tests.api.conftest import AGENT, operated_hub, operating
from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.identity import Authentication, Key, digest, new_key

TEST = "/api/v1/policies/test"


@asynchronous
async def test_rules_are_listed_most_important_first() -> None:
    async with operating() as operator:
        rules = (await operator.fetch("GET", "/api/v1/policies"))["policies"]
        assert [(rule["name"], rule["enabled"]) for rule in rules] == [
            ("no-shell", True),
            ("asleep", False),
            ("slowly", True),
        ]
        assert rules[0]["config"] == {"tool_pattern": "shell"}


@pytest.mark.parametrize(
    ("principal", "capability", "decision", "reason", "rule"),
    [
        ("agent", "add", "allow", "", ""),
        ("anonymous", "add", "allow", "", ""),
        ("agent", "deploy", "allow", "", ""),
        ("root", "deploy", "deny", "permission 'deploy' is not granted to root", "permissions"),
        ("anonymous", "note", "deny", "scope 'notes:write' is not granted to anonymous", "scopes"),
        ("agent", "note", "allow", "", ""),
        ("agent", "docs://readme", "allow", "", ""),
        ("agent", "greet", "allow", "", ""),
        (
            "agent",
            "skill:shell",
            "deny",
            "MCP restriction: tool 'skill:shell' blocked by pattern 'shell'",
            "no-shell",
        ),
    ],
)
@asynchronous
async def test_a_decision_is_explained(principal: str, capability: str, decision: str, reason: str, rule: str) -> None:
    async with operating() as operator:
        answer = await operator.fetch("POST", TEST, {"principal": principal, "capability": capability})
        assert answer == {"decision": decision, "reason": reason, "rule": rule}


@asynchronous
async def test_a_tested_call_is_not_run_counted_or_recorded() -> None:
    async with operating() as operator:
        question = {"principal": "agent", "capability": "add", "arguments": {"a": 1, "b": 2}}
        for _ in range(3):
            assert (await operator.fetch("POST", TEST, question))["decision"] == "allow"
        assert (await operator.fetch("GET", "/api/v1/audit"))["entries"] == []
        assert (await operator.use("add", {"a": 1, "b": 2}, AGENT)).json["result"]["structuredContent"]
        assert await operator.fetch("POST", TEST, question) == {
            "decision": "deny",
            "reason": "rate limit exceeded: max 1/60s",
            "rule": "slowly",
        }
        assert len((await operator.fetch("GET", "/api/v1/audit"))["entries"]) == 2


@asynchronous
async def test_a_key_of_the_store_can_be_tested_until_it_is_revoked() -> None:
    async with operating() as operator:
        await operator.fetch("POST", "/api/v1/keys", {"id": "ci", "permissions": ["deploy"]})
        question = {"principal": "ci", "capability": "deploy"}
        assert (await operator.fetch("POST", TEST, question))["decision"] == "allow"
        await operator.fetch("DELETE", "/api/v1/keys/ci")
        assert (await operator.refused("POST", TEST, question))[0] == 404


@pytest.mark.parametrize(
    ("principal", "capability", "sentence"),
    [
        ("nobody", "add", "There is no principal nobody; `waypost keys list` shows all."),
        ("agent", "subtract", "Unknown tool: subtract"),
        ("agent", "skill:dance", "Unknown skill: dance"),
    ],
)
@asynchronous
async def test_an_unknown_principal_or_capability_is_404(principal: str, capability: str, sentence: str) -> None:
    async with operating() as operator:
        question = {"principal": principal, "capability": capability}
        assert await operator.refused("POST", TEST, question) == (404, sentence)


@asynchronous
async def test_an_anonymous_caller_is_denied_if_a_key_is_required() -> None:
    key = new_key()
    hub = Hub("closed", version="1", auth=Authentication([Key("root", digest(key), ("admin",))], anonymous=False))

    @hub.tool
    async def add(a: int) -> int:
        return a

    async with operating(hub) as operator:
        answer = await operator.fetch("POST", TEST, {"principal": "anonymous", "capability": "add"}, key=key)
        assert answer == {"decision": "deny", "reason": "Missing Authorization header", "rule": "authentication"}


@asynchronous
async def test_a_rule_that_changes_decides_at_once() -> None:
    hub = operated_hub()
    async with operating(hub) as operator:
        question = {"principal": "agent", "capability": "skill:shell"}
        assert (await operator.fetch("POST", TEST, question))["decision"] == "deny"
        hub.guard.policy.replace(())
        assert (await operator.fetch("POST", TEST, question))["decision"] == "allow"
