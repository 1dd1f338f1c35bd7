"""One decision from many rules: by priority, the first rule that denies decides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.issuer import Clock
from tests.protocol.conftest import asynchronous, in_session, request
from waypost import Hub
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE, Chain, Principal
from waypost.errors import DefinitionError
from waypost.policy.rules import ALLOWED, Decision, Policy, Question, Rule

DEPLOY = Question(ANONYMOUS, "deploy", FROM_OUTSIDE)


def against(pattern: str = "deploy", **options: Any) -> Rule:
    return Rule(**{"name": "no", "type": "mcp_restriction", "config": {"tool_pattern": pattern}, **options})


def at_most(calls: int, **options: Any) -> Rule:
    return Rule(**{"name": "calm", "type": "rate_limit", "config": {"max_calls": calls}, **options})


def test_without_rules_everything_is_allowed() -> None:
    assert Policy().decide(DEPLOY) == ALLOWED == Decision(True)


def test_a_call_is_allowed_unless_a_rule_denies_it() -> None:
    assert Policy([against("shell"), at_most(5)]).decide(DEPLOY).allowed


def test_the_first_rule_that_denies_decides_and_is_named() -> None:
    policy = Policy(
        [against("dep", name="low", priority=1), against("ploy", name="high", priority=9), against("x", priority=99)]
    )

    reason = "MCP restriction: tool 'deploy' blocked by pattern 'ploy'"
    assert policy.decide(DEPLOY) == Decision(False, reason, "high", "mcp_restriction")


def test_equal_priorities_go_by_name() -> None:
    rules = [against("deploy", name=name, priority=5) for name in ("b", "c", "a")]

    assert Policy(rules).decide(DEPLOY).rule == "a"
    assert [rule.name for rule in Policy(rules).rules] == ["a", "b", "c"]


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans(), st.booleans()), max_size=8))
def test_a_denial_names_the_enabled_denying_rule_of_the_highest_priority(
    given_rules: list[tuple[int, bool, bool]],
) -> None:
    rules = [
        against("deploy" if denies else "other", name=f"r{number}", priority=priority, enabled=enabled)
        for number, (priority, denies, enabled) in enumerate(given_rules)
    ]
    denying = [rule for rule in rules if rule.enabled and rule.config["tool_pattern"] == "deploy"]
    expected = min(denying, key=lambda rule: (-rule.priority, rule.name)).name if denying else ""

    decision = Policy(rules).decide(DEPLOY)
    assert (decision.allowed, decision.rule) == (not denying, expected)


def test_disabled_rules_have_no_effect_but_must_be_valid() -> None:
    assert Policy([against(enabled=False)]).decide(DEPLOY).allowed
    with pytest.raises(DefinitionError):
        Policy([Rule(name="typo", type="rate_limits", enabled=False)])


def test_a_chain_deeper_than_three_is_denied_without_any_rule() -> None:
    for policy in (Policy(), Policy([at_most(100)])):
        assert policy.decide(Question(ANONYMOUS, "deploy", Chain("a", "core", 3))).allowed
        assert policy.decide(Question(ANONYMOUS, "deploy", Chain("a", "core", 4))) == Decision(
            False, "chain depth 4 exceeds maximum 3", "chain depth", "chain_depth"
        )


def test_a_rule_that_fails_while_it_decides_denies(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(float("1e300"))  # a time no calendar has
    policy = Policy([Rule(name="night", type="time_window")], clock=clock)

    decision = policy.decide(DEPLOY)
    assert (decision.allowed, decision.rule) == (False, "night")
    assert decision.reason.startswith("policy 'night' failed: ")
    assert "the policy night failed" in caplog.text


def test_replaced_rules_apply_to_the_next_decision() -> None:
    policy = Policy([against("deploy", name="old")])
    assert policy.decide(DEPLOY).rule == "old"

    policy.replace([against("ploy", name="new")])
    assert policy.decide(DEPLOY).rule == "new"
    policy.replace([])
    assert policy.decide(DEPLOY).allowed


@pytest.mark.parametrize(
    "wrong",
    [
        [against("x", name="fine"), Rule(name="wrong", type="no_such")],
        [against("x", name="fine"), Rule(name="wrong", type="rate_limit", config={"max_calls": -1})],
        [against("x", name="twice"), at_most(3, name="twice")],
    ],
)
def test_an_invalid_rule_leaves_the_old_rules_in_place(wrong: list[Rule]) -> None:
    policy = Policy([against("deploy", name="old", hide=True)])

    with pytest.raises(DefinitionError):
        policy.replace(wrong)
    assert [rule.name for rule in policy.rules] == ["old"]
    assert policy.decide(DEPLOY).rule == "old"
    assert policy.hides


def test_two_rules_with_the_same_name_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"^Two policies are called 'calm'; give one of them another name\.$"):
        Policy([at_most(1), at_most(2)])


def test_unchanged_rules_keep_their_counts() -> None:
    policy = Policy([at_most(2)], clock=Clock())
    policy.decide(DEPLOY)
    policy.replace([at_most(2), against("shell")])
    policy.decide(DEPLOY)

    assert policy.decide(DEPLOY).rule == "calm"


def test_a_changed_rule_starts_with_a_count_of_zero() -> None:
    policy = Policy([at_most(1)], clock=Clock())
    policy.decide(DEPLOY)
    policy.replace([at_most(2)])

    assert [policy.decide(DEPLOY).allowed for _ in range(3)] == [True, True, False]


def test_an_explanation_does_not_count() -> None:
    policy = Policy([at_most(1)], clock=Clock())

    assert all(policy.decide(DEPLOY, counts=False).allowed for _ in range(5))
    assert policy.decide(DEPLOY).allowed
    assert not policy.decide(DEPLOY, counts=False).allowed


def test_only_an_enabled_rule_with_hide_hides_the_denied_capability() -> None:
    assert Policy([against(hide=True)]).is_hidden(ANONYMOUS, "deploy")
    assert not Policy([against(hide=True)]).is_hidden(ANONYMOUS, "status")
    assert not Policy([against()]).is_hidden(ANONYMOUS, "deploy")
    assert not Policy([against(hide=True, enabled=False)]).is_hidden(ANONYMOUS, "deploy")
    assert not Policy([against()]).hides


@pytest.mark.parametrize(
    ("type", "config"),
    [
        ("rate_limit", {"max_calls": 0}),
        ("time_window", {"deny_start_hour": 0, "deny_end_hour": 24}),
        ("chain_restriction", {"caller_pattern": ""}),
        ("permission_override", {"permission": "*", "expires_at": "2999-01-01T00:00:00Z"}),
    ],
)
def test_rules_that_deny_temporarily_hide_nothing(type: str, config: dict[str, Any]) -> None:
    policy = Policy([Rule(name="now", type=type, config=config, hide=True)], clock=Clock())

    assert not policy.hides
    assert not policy.is_hidden(ANONYMOUS, "deploy")


@pytest.mark.parametrize(
    ("type", "config"),
    [
        ("permission_override", {"permission": "*"}),
        ("mcp_restriction", {"tool_pattern": "dep"}),
        ("mcp_restriction", {"tool_pattern": "ping", "action": "allow"}),
        ("allow_list", {"allow": ["ping"]}),
    ],
)
def test_permanently_denied_capabilities_are_hidden_from_the_denied_principals(
    type: str, config: dict[str, Any]
) -> None:
    policy = Policy([Rule(name="good", type=type, config=config, hide=True, principals=("ann",))])

    assert policy.hides
    assert policy.is_hidden(Principal("ann"), "deploy")
    assert not policy.is_hidden(Principal("bob"), "deploy")


def test_rules_for_other_callers_hide_nothing_from_clients() -> None:
    assert not Policy([against(hide=True, callers=("dynamic",))]).is_hidden(ANONYMOUS, "deploy")


@asynchronous
async def test_unknown_beats_denied() -> None:
    hub = Hub("h", version="1", policies=[Rule(name="none", type="allow_list", config={"allow": []})])
    hub.tool(lambda: "x", name="deploy")
    async with in_session(hub) as peer:
        unknown = await peer.error(request(1, "tools/call", {"name": "dep", "arguments": {}}))
        denied = await peer.error(request(2, "tools/call", {"name": "deploy", "arguments": {}}))

    assert (unknown["code"], unknown["message"]) == (-32602, 'Unknown tool: dep; did you mean "deploy"?')
    assert (denied["code"], denied["message"]) == (-32000, "allow list: 'deploy' is not on it")


@asynchronous
async def test_a_new_rule_applies_at_once_in_a_running_hub() -> None:
    hub = Hub("h", version="1")
    hub.tool(lambda: "x", name="deploy")
    call = {"name": "deploy", "arguments": {}}
    async with in_session(hub) as peer:
        await peer.result(request(1, "tools/call", call))
        hub.guard.policy.replace([against()])
        denied = await peer.error(request(2, "tools/call", call))
        hub.guard.policy.replace([])
        await peer.result(request(3, "tools/call", call))

    assert denied["message"] == "MCP restriction: tool 'deploy' blocked by pattern 'deploy'"
