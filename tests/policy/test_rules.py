"""Each type of rule: what it denies, with which reason, and which configurations are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.issuer import NOW, Clock
from tests.policy.ruled import ANN, BOB, reason
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE, MAX_CALL_DEPTH, CallerType, Chain
from waypost.errors import DefinitionError
from waypost.policy.rules import (
    TYPES,
    AllowList,
    ChainRestriction,
    McpRestriction,
    PermissionOverride,
    Question,
    RateLimit,
    Rule,
    TimeWindow,
    decider,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CONFIGS = (RateLimit, TimeWindow, ChainRestriction, PermissionOverride, McpRestriction, AllowList)
KNOWN_KEYS = st.sampled_from([name for config in CONFIGS for name in config.__struct_fields__])
PLAUSIBLE = st.sampled_from(
    ["deny", "allow", "*", "execute", "UTC", "Europe/Rome", "America", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00"]
)


def out_of(caller: str, depth: int = 1, type: CallerType = "dynamic") -> Chain:
    return Chain(caller, type, depth)


def test_a_chain_restriction_stops_only_calls_out_of_others() -> None:
    config = {"caller_pattern": "scrap"}

    denied = reason("chain_restriction", config, chain=out_of("skill:scraper"))
    assert denied == "chain restriction: 'skill:scraper' may not call others (pattern 'scrap')"
    assert reason("chain_restriction", config, chain=out_of("skill:scraper", depth=0)) == ""
    assert reason("chain_restriction", config, chain=out_of("skill:reader")) == ""
    assert reason("chain_restriction", {"caller_pattern": "mcp"}) == ""


def test_a_permission_is_taken_away() -> None:
    config = {"permission": "web_read"}

    assert reason("permission_override", config, permission="web_read") == "permission override: web_read is denied"
    assert reason("permission_override", config, permission="llm") == ""


def test_all_permissions_are_taken_away_at_once() -> None:
    for permission in ("execute", "web_read"):
        denied = reason("permission_override", {"permission": "*"}, permission=permission)
        assert denied == f"permission override: {permission} is denied"


def test_an_override_ends_when_it_says() -> None:
    until = datetime.fromtimestamp(NOW + 10, UTC).isoformat()
    config, clock = {"permission": "*", "expires_at": until}, Clock()

    clock.now = NOW + 9.9
    assert reason("permission_override", config, clock=clock)
    clock.now = NOW + 10
    assert not reason("permission_override", config, clock=clock)


def test_clients_may_not_call_tools_whose_name_holds_a_text() -> None:
    denied = reason("mcp_restriction", {"tool_pattern": "shell"}, capability="skill:shell")

    assert denied == "MCP restriction: tool 'skill:shell' blocked by pattern 'shell'"
    assert reason("mcp_restriction", {"tool_pattern": "shell"}, capability="skill:Shell") == ""


@pytest.mark.parametrize("type", ["core", "dynamic", "worker", "workflow", "console"])
def test_a_restriction_of_clients_does_not_apply_to_other_callers(type: CallerType) -> None:
    for config in ({"tool_pattern": "deploy"}, {"tool_pattern": "x", "action": "allow"}):
        assert reason("mcp_restriction", config, chain=out_of("somebody", 1, type)) == ""


def test_clients_may_be_restricted_to_what_holds_a_text() -> None:
    config = {"tool_pattern": "read", "action": "allow"}

    assert reason("mcp_restriction", config, capability="notes.read") == ""
    denied = reason("mcp_restriction", config, capability="notes.write")
    assert denied == "MCP restriction: tool 'notes.write' not allowed by pattern 'read'"


def test_only_capabilities_on_an_allow_list_are_allowed() -> None:
    config = {"allow": ["notes.*", "ping"]}

    assert reason("allow_list", config, capability="notes.read") == ""
    assert reason("allow_list", config, capability="ping") == ""
    assert reason("allow_list", config, capability="pings") == "allow list: 'pings' is not on it"
    assert reason("allow_list", {"allow": []}, capability="ping") == "allow list: 'ping' is not on it"


@pytest.mark.parametrize(
    ("selector", "other"),
    [
        ({"principals": ("ann",)}, {"principal": BOB}),
        ({"roles": ("lead", "boss")}, {"principal": BOB}),
        ({"callers": ("mcp", "console")}, {"chain": out_of("skill:x")}),
        ({"capabilities": ("dep*",)}, {"capability": "undeploy"}),
    ],
)
def test_a_rule_applies_only_to_the_principals_and_capabilities_it_names(
    selector: dict[str, Any], other: dict[str, Any]
) -> None:
    everything = {"permission": "*"}

    assert reason("permission_override", everything, **selector) != ""
    assert reason("permission_override", everything, **selector, **other) == ""


def test_all_selectors_of_a_rule_must_fit() -> None:
    both: dict[str, Any] = {"principals": ("ann",), "capabilities": ("deploy",)}

    assert reason("allow_list", {"allow": []}, **both) != ""
    assert reason("allow_list", {"allow": []}, **both, capability="ping") == ""
    assert reason("allow_list", {"allow": []}, **both, principal=BOB) == ""


def test_the_anonymous_principal_can_be_named_in_a_rule() -> None:
    assert reason("allow_list", {"allow": []}, principals=("anonymous",), principal=ANONYMOUS) != ""


@pytest.mark.parametrize(
    ("type", "config", "says"),
    [
        ("no_such", {}, "there is no type 'no_such'; use one of rate_limit, time_window, "),
        ("rate_limit", {"max_cals": 1}, "there is no key 'max_cals'; 'max_calls' may be meant"),
        ("rate_limit", {"quantity": 1}, "there is no key 'quantity'; use max_calls, window_seconds, permission, per."),
        ("rate_limit", {"max_calls": 1, "maxCalls": 2}, "max_calls is given in both of its spellings"),
        ("rate_limit", {"max_calls": "many"}, "max_calls: expected an integer, got text"),
        ("rate_limit", {"max_calls": -1}, "must not be negative"),
        ("rate_limit", {"window_seconds": 0}, "must be positive"),
        ("rate_limit", {"per": ["client"]}, "per knows principal, capability and permission, not client"),
        ("time_window", {"deny_start_hour": 25}, "hours go from 0 to 24"),
        ("time_window", {"deny_end_hour": -1}, "hours go from 0 to 24"),
        ("time_window", {"timezone": "Mars/Olympus"}, "there is no time zone 'Mars/Olympus'"),
        ("time_window", {"timezone": "../../etc/passwd"}, "there is no time zone"),
        ("time_window", {"timezone": "America"}, "there is no time zone 'America'"),
        ("chain_restriction", {}, "the key `caller_pattern` is missing"),
        ("permission_override", {}, "the key `permission` is missing"),
        ("permission_override", {"permission": "x", "action": "allow"}, "can only deny"),
        ("permission_override", {"permission": "x", "expires_at": "2027-01-01T00:00:00"}, "needs a time zone"),
        ("permission_override", {"permission": "x", "expires_at": "soon"}, "expires_at"),
        ("mcp_restriction", {}, "the key `tool_pattern` is missing"),
        ("mcp_restriction", {"tool_pattern": "x", "action": "ask"}, "deny or allow"),
        ("mcp_restriction", {"tool_pattern": "shell_*"}, "without `*`"),
        ("allow_list", {}, "the key `allow` is missing"),
        ("allow_list", {"allow": "ping"}, "allow: expected a list, got text"),
    ],
)
def test_an_invalid_rule_is_refused_with_a_message_that_names_it(type: str, config: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        decider(Rule(name="night shift", type=type, config=config))

    assert refused.value.message.startswith("Policy 'night shift': ")
    assert says in refused.value.message
    assert refused.value.message.endswith(".")
    assert "\n" not in refused.value.message


def test_a_caller_type_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Policy 'r': .*mpc"):
        decider(Rule(name="r", type="allow_list", config={"allow": []}, callers=("mpc",)))


@given(
    st.sampled_from(TYPES) | st.text(),
    st.dictionaries(KNOWN_KEYS | st.text(), JSON | PLAUSIBLE | st.lists(PLAUSIBLE), max_size=4),
    st.text(),
    st.sampled_from(["execute", "web_read"]),
    st.integers(0, MAX_CALL_DEPTH),
)
def test_any_json_is_refused_as_a_rule_or_decides(
    type: str, config: dict[str, Any], capability: str, permission: str, depth: int
) -> None:
    rule = Rule(name="any", type=type, config=config)
    try:
        one = decider(rule, Clock())
    except DefinitionError as error:
        assert error.message.startswith("Policy 'any': ")
        return
    for counts in (True, False):
        for chain in (FROM_OUTSIDE, out_of("skill:x", depth)):
            question = Question(ANN, capability, chain, permission)
            denied = one.deny(question, counts) if one.may_deny(question) else None
            assert denied is None or denied
