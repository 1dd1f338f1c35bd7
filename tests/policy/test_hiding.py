"""Capabilities that rules hide from lists, for each group of principals they distinguish."""

from __future__ import annotations

from typing import Any

import pytest

from tests.policy.guarded import ANN, BOB, add, ask, hub_for, recorded, says
from tests.protocol.conftest import asynchronous
from tests.transports.http.conftest import Web, browsing
from waypost import Hub
from waypost.capabilities.principals import ANONYMOUS
from waypost.policy.rules import Policy, Rule, hidden, onlookers

NAMES = ("mail", "files")


def against(tool: str, **more: Any) -> Rule:
    return Rule(**{"name": "r", "type": "mcp_restriction", "config": {"tool_pattern": tool}, "hide": True, **more})


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ([], [against("mail")], True),
        ([against("mail")], [], True),
        ([], [against("mail", principals=("bob",))], True),
        ([], [against("mail", roles=("guest",))], True),
        ([], [against("mail", principals=("bob",), roles=("guest",))], True),
        ([against("mail", principals=("bob",))], [against("mail", principals=("ann",))], True),
        ([against("mail")], [against("mail", name="s", priority=5)], False),
        ([], [against("deploy")], False),
        ([], [against("mail", hide=False)], False),
        ([], [against("mail", enabled=False)], False),
        ([against("mail")], [against("mail"), against("mail", name="s", principals=("bob",))], False),
    ],
)
def test_a_change_of_rules_is_noticed_by_what_it_hides_from_principals(
    before: list[Rule], after: list[Rule], differs: bool
) -> None:
    people = onlookers([*before, *after])
    assert (hidden(Policy(before), people, NAMES) != hidden(Policy(after), people, NAMES)) is differs


def test_without_hiding_rules_no_principals_are_checked() -> None:
    assert onlookers([against("mail", hide=False)]) == []
    assert ANONYMOUS in onlookers([against("mail", principals=("bob",))])


HIDES = Rule(name="discreet", type="allow_list", config={"allow": ["open*"]}, roles=("agent",), hide=True)


def discreet_hub() -> Hub:
    """A hub in which an agent sees only names that begin with `open`, and other principals see everything."""
    first = Rule(name="first", type="mcp_restriction", config={"tool_pattern": "refund"}, roles=("agent",), priority=9)
    hub = hub_for(audit="store", policies=[HIDES, first])
    add(hub, "refund")
    add(hub, "open.way", ["skill_invoke"])
    add(hub, "locked", ["deploy"], owner=None)

    @hub.prompt
    def secret_greeting(name: str) -> str:
        return name

    @hub.resource("desk://secret/{name}")
    def drawer(name: str) -> str:
        return name

    return hub


async def answers(web: Web, method: str, there: str, absent: str, **params: Any) -> tuple[Any, Any]:
    """The responses to an agent about a hidden capability and about one that does not exist."""

    def named(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: named(name, one) for key, one in value.items()}
        if isinstance(value, list):
            return [named(name, one) for one in value]
        return value.replace("NAME", name) if isinstance(value, str) else value

    found = [await ask(web, BOB, method, **named(name, params)) for name in (there, absent)]
    return [str(one).replace(name, "NAME") for one, name in zip(found, (there, absent), strict=True)], found[0]


@pytest.mark.parametrize(
    ("method", "there", "absent", "params"),
    [
        ("tools/call", "refund", "refnud", {"name": "NAME", "arguments": {}}),
        ("tools/call", "locked", "lokced", {"name": "NAME", "arguments": {}}),
        ("tools/call", "refund", "refnud", {"name": "open.way", "arguments": {"path": ["NAME"]}}),
        ("prompts/get", "secret_greeting", "sercet_greeting", {"name": "NAME", "arguments": {"name": "x"}}),
        ("prompts/get", "secret_greeting", "sercet_greeting", {"name": "NAME", "arguments": {}}),
        ("resources/read", "desk://secret/a", "desk://sercet/a", {"uri": "NAME"}),
        (
            "completion/complete",
            "secret_greeting",
            "sercet_greeting",
            {"ref": {"type": "ref/prompt", "name": "NAME"}, "argument": {"name": "name", "value": "x"}},
        ),
    ],
)
@asynchronous
async def test_a_hidden_capability_is_answered_like_one_that_does_not_exist(
    method: str, there: str, absent: str, params: dict[str, Any]
) -> None:
    async with browsing(discreet_hub()) as web:
        (of_hidden, of_absent), answer = await answers(web, method, there, absent, **params)

        assert of_hidden == of_absent
        assert "discreet" not in str(answer)
        assert "allow list" not in str(answer)


@asynchronous
async def test_the_audit_names_the_hiding_rule_and_other_principals_are_not_affected() -> None:
    hub = discreet_hub()
    async with browsing(hub) as web:
        assert await says(web, BOB, "refund") == "-32602 Unknown tool: refund"
        assert await says(web, BOB, "refnud") == "-32602 Unknown tool: refnud"
        assert await says(web, BOB, "open.way", path=["refund"]) == "Unknown tool: refund"
        assert await says(web, ANN, "refund") == "arrived"
        denied = [(one["capability"], one["rule"]) for one in await recorded(hub) if one["decision"] == "deny"]

        assert denied == [("refund", "first"), ("refund", "discreet")]


@asynchronous
async def test_a_rule_without_hide_gives_its_reason() -> None:
    hub = hub_for(policies=[Rule(name="frank", type="allow_list", config={"allow": []})])
    add(hub, "refund")
    async with browsing(hub) as web:
        assert "allow list: 'refund' is not on it" in await says(web, BOB, "refund")
