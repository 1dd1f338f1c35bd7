"""Rules one by one: what each denies, in which words, and what is refused before it decides anything."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.issuer import NOW, Clock
from waypost.capabilities.chain import DEEPEST, FROM_OUTSIDE, CallerType, Chain
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import DefinitionError
from waypost.policy import rules
from waypost.policy.decisions import Policy
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

ANN, BOB = Principal("ann", roles=("lead",)), Principal("bob", roles=("agent",))
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


def reason(
    type: str,
    config: dict[str, Any] | None = None,
    *,
    principal: Principal = ANN,
    capability: str = "deploy",
    chain: Chain = FROM_OUTSIDE,
    permission: str = "execute",
    clock: Clock | None = None,
    **options: Any,
) -> str:
    """What a rule says against a question, or nothing."""
    policy = Policy([Rule(name="r", type=type, config=config or {}, **options)], clock=clock or Clock())
    return policy.decide(Question(principal, capability, chain, permission)).reason


def out_of(caller: str, depth: int = 1, type: CallerType = "dynamic") -> Chain:
    return Chain(caller, type, depth)


def at(text: str, zone: str = "UTC") -> Clock:
    """A clock that stands still at a time of day somewhere."""
    return Clock(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


def limiter(clock: Clock, **config: Any) -> Policy:
    return Policy([Rule(name="calm", type="rate_limit", config=config)], clock=clock)


def allowed(
    policy: Policy,
    principal: Principal = ANN,
    capability: str = "deploy",
    permission: str = "execute",
) -> bool:
    return policy.decide(Question(principal, capability, FROM_OUTSIDE, permission)).allowed


def test_ten_calls_a_minute_are_the_limit_when_nothing_is_said() -> None:
    policy = limiter(Clock())

    assert [allowed(policy) for _ in range(12)] == [True] * 10 + [False] * 2
    assert policy.decide(Question(ANN, "deploy", FROM_OUTSIDE)).reason == "rate limit exceeded: max 10/60s"


def test_the_reason_names_the_limit_as_it_is_written() -> None:
    policy = limiter(Clock(), max_calls=1, window_seconds=2.5)
    allowed(policy)

    assert policy.decide(Question(ANN, "deploy", FROM_OUTSIDE)).reason == "rate limit exceeded: max 1/2.5s"


def test_the_window_slides_call_by_call() -> None:
    clock = Clock()
    policy = limiter(clock, max_calls=2, window_seconds=10)

    assert allowed(policy)
    clock.now += 6
    assert allowed(policy)
    clock.now += 3.9
    assert not allowed(policy), "9.9 s after the first"
    clock.now += 0.1
    assert allowed(policy), "the first has left the window, the second has not"
    assert not allowed(policy)


def test_what_is_refused_takes_no_place_in_the_window() -> None:
    clock = Clock()
    policy = limiter(clock, max_calls=1, window_seconds=10)
    allowed(policy)
    for _ in range(20):
        clock.now += 0.4
        assert not allowed(policy)
    clock.now += 2

    assert allowed(policy)


def test_a_window_may_be_longer_than_five_minutes() -> None:
    clock = Clock()
    policy = limiter(clock, max_calls=1, window_seconds=86_400)
    allowed(policy)

    clock.now += 86_399
    assert not allowed(policy)
    clock.now += 1
    assert allowed(policy)


def test_calls_are_counted_for_each_principal_and_capability() -> None:
    policy = limiter(Clock(), max_calls=1)

    assert allowed(policy, ANN, "a")
    assert allowed(policy, ANN, "b")
    assert allowed(policy, BOB, "a")
    assert not allowed(policy, ANN, "a")


@pytest.mark.parametrize(
    ("per", "shared"),
    [
        (["principal"], [(ANN, "b")]),
        (["capability"], [(BOB, "a")]),
        ([], [(ANN, "b"), (BOB, "a"), (BOB, "b")]),
    ],
)
def test_what_calls_are_counted_by_can_be_said(per: list[str], shared: list[tuple[Principal, str]]) -> None:
    policy = limiter(Clock(), max_calls=1, per=per)
    assert allowed(policy, ANN, "a")

    others = [(ANN, "b"), (BOB, "a"), (BOB, "b")]
    assert [one for one in others if not policy.decide(Question(*one, FROM_OUTSIDE), counts=False).allowed] == shared


def test_permissions_can_be_counted_by_themselves() -> None:
    policy = limiter(Clock(), max_calls=1, per=["permission"])

    assert allowed(policy, permission="web_read")
    assert allowed(policy, permission="llm")
    assert not allowed(policy, permission="llm")


def test_a_limit_on_one_permission_leaves_others_alone() -> None:
    policy = limiter(Clock(), max_calls=0, permission="web_read")

    assert not allowed(policy, permission="web_read")
    assert allowed(policy, permission="llm")
    assert allowed(policy)


def test_no_calls_at_all_may_be_the_limit() -> None:
    assert reason("rate_limit", {"max_calls": 0}) == "rate limit exceeded: max 0/60s"


def test_windows_nothing_happened_in_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_MOST_WINDOWS", 10)
    clock = Clock()
    policy = limiter(clock, max_calls=1, window_seconds=1)
    for number in range(100):
        clock.now += 0.3
        assert allowed(policy, Principal(f"p{number}"))

    [(_, one)] = policy._compiled
    assert len(one._calls) <= 10  # type: ignore[attr-defined]


@given(st.lists(st.floats(0, 30), max_size=60), st.integers(1, 5), st.floats(0.5, 20))
def test_never_are_there_more_calls_in_a_window_than_the_limit(pauses: list[float], most: int, seconds: float) -> None:
    clock, times = Clock(0.0), list[float]()
    policy = limiter(clock, max_calls=most, window_seconds=seconds)
    for pause in pauses:
        clock.now += pause
        recent = [time for time in times if time > clock.now - seconds]
        assert allowed(policy) == (len(recent) < most)
        if len(recent) < most:
            times.append(clock.now)


def test_midnight_to_six_utc_is_denied_when_nothing_is_said() -> None:
    text = "time window: denied between 00:00 and 06:00 UTC"

    assert reason("time_window", clock=at("2026-05-01T00:00:00")) == text
    assert reason("time_window", clock=at("2026-05-01T05:59:59")) == text
    assert reason("time_window", clock=at("2026-05-01T06:00:00")) == ""
    assert reason("time_window", clock=at("2026-05-01T23:59:59")) == ""


@pytest.mark.parametrize(("hour", "denied"), [(21, False), (22, True), (23, True), (0, True), (5, True), (6, False)])
def test_a_window_may_lie_around_midnight(hour: int, denied: bool) -> None:
    found = reason("time_window", {"deny_start_hour": 22, "deny_end_hour": 6}, clock=at(f"2026-05-01T{hour:02}:30:00"))

    assert found == ("time window: denied between 22:00 and 06:00 UTC" if denied else "")


@given(st.integers(0, 24), st.integers(0, 24), st.integers(0, 23))
def test_a_window_and_its_complement_share_no_hour(start: int, end: int, hour: int) -> None:
    clock = at(f"2026-05-01T{hour:02}:00:00")
    inside = bool(reason("time_window", {"deny_start_hour": start, "deny_end_hour": end}, clock=clock))
    outside = bool(reason("time_window", {"deny_start_hour": end, "deny_end_hour": start}, clock=clock))

    if start % 24 == end % 24:
        assert inside == outside or {start, end} == {0, 24}
    else:
        assert inside != outside


def test_an_empty_window_denies_nothing_and_a_whole_day_denies_everything() -> None:
    noon = at("2026-05-01T12:00:00")

    assert reason("time_window", {"deny_start_hour": 12, "deny_end_hour": 12}, clock=noon) == ""
    assert reason("time_window", {"deny_start_hour": 0, "deny_end_hour": 24}, clock=noon) != ""


def test_hours_are_those_of_the_time_zone() -> None:
    config = {"deny_start_hour": 9, "deny_end_hour": 17, "timezone": "Asia/Tokyo"}

    text = "time window: denied between 09:00 and 17:00 Asia/Tokyo"
    assert reason("time_window", config, clock=at("2026-05-01T00:00:00")) == text
    assert reason("time_window", config, clock=at("2026-05-01T09:00:00")) == ""


@pytest.mark.parametrize(
    ("moment", "denied"),
    [
        ("2026-03-29T00:59:00+00:00", False),  # 01:59 in winter
        ("2026-03-29T01:00:00+00:00", False),  # 03:00 in summer: the hour from 02:00 does not exist
        ("2026-10-25T00:00:00+00:00", True),  # 02:00 in summer
        ("2026-10-25T01:00:00+00:00", True),  # 02:00 again, in winter
        ("2026-10-25T02:00:00+00:00", False),  # 03:00 in winter
    ],
)
def test_the_hour_that_is_skipped_or_comes_twice_is_the_one_on_the_wall(moment: str, denied: bool) -> None:
    clock = Clock(datetime.fromisoformat(moment).timestamp())
    config = {"deny_start_hour": 2, "deny_end_hour": 3, "timezone": "Europe/Berlin"}

    assert bool(reason("time_window", config, clock=clock)) == denied


def test_a_window_for_one_permission_leaves_others_alone() -> None:
    config, clock = {"permission": "web_read"}, at("2026-05-01T01:00:00")

    assert reason("time_window", config, clock=clock, permission="web_read")
    assert not reason("time_window", config, clock=clock)


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
def test_a_restriction_of_clients_is_nothing_to_other_callers(type: CallerType) -> None:
    for config in ({"tool_pattern": "deploy"}, {"tool_pattern": "x", "action": "allow"}):
        assert reason("mcp_restriction", config, chain=out_of("somebody", 1, type)) == ""


def test_clients_may_be_restricted_to_what_holds_a_text() -> None:
    config = {"tool_pattern": "read", "action": "allow"}

    assert reason("mcp_restriction", config, capability="notes.read") == ""
    denied = reason("mcp_restriction", config, capability="notes.write")
    assert denied == "MCP restriction: tool 'notes.write' not allowed by pattern 'read'"


def test_nothing_but_what_is_on_an_allow_list() -> None:
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
def test_a_rule_is_only_for_whom_and_what_it_names(selector: dict[str, Any], other: dict[str, Any]) -> None:
    everything = {"permission": "*"}

    assert reason("permission_override", everything, **selector) != ""
    assert reason("permission_override", everything, **selector, **other) == ""


def test_all_selectors_of_a_rule_must_fit() -> None:
    both: dict[str, Any] = {"principals": ("ann",), "capabilities": ("deploy",)}

    assert reason("allow_list", {"allow": []}, **both) != ""
    assert reason("allow_list", {"allow": []}, **both, capability="ping") == ""
    assert reason("allow_list", {"allow": []}, **both, principal=BOB) == ""


def test_nobody_in_particular_is_a_principal_too() -> None:
    assert reason("allow_list", {"allow": []}, principals=("anonymous",), principal=ANONYMOUS) != ""


@pytest.mark.parametrize(
    ("type", "config", "says"),
    [
        ("no_such", {}, "there is no type 'no_such'; use one of rate_limit, time_window, "),
        ("rate_limit", {"max_cals": 1}, "unknown field `max_cals`"),
        ("rate_limit", {"max_calls": "many"}, "Expected `int`"),
        ("rate_limit", {"max_calls": -1}, "must not be negative"),
        ("rate_limit", {"window_seconds": 0}, "must be positive"),
        ("rate_limit", {"per": ["client"]}, "per knows principal, capability and permission, not client"),
        ("time_window", {"deny_start_hour": 25}, "hours go from 0 to 24"),
        ("time_window", {"deny_end_hour": -1}, "hours go from 0 to 24"),
        ("time_window", {"timezone": "Mars/Olympus"}, "there is no time zone 'Mars/Olympus'"),
        ("time_window", {"timezone": "../../etc/passwd"}, "there is no time zone"),
        ("time_window", {"timezone": "America"}, "there is no time zone 'America'"),
        ("chain_restriction", {}, "missing required field `caller_pattern`"),
        ("permission_override", {}, "missing required field `permission`"),
        ("permission_override", {"permission": "x", "action": "allow"}, "can only deny"),
        ("permission_override", {"permission": "x", "expires_at": "2027-01-01T00:00:00"}, "needs a time zone"),
        ("permission_override", {"permission": "x", "expires_at": "soon"}, "expires_at"),
        ("mcp_restriction", {}, "missing required field `tool_pattern`"),
        ("mcp_restriction", {"tool_pattern": "x", "action": "ask"}, "deny or allow"),
        ("allow_list", {}, "missing required field `allow`"),
        ("allow_list", {"allow": "ping"}, "Expected `array`"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_in_a_sentence_that_names_it(
    type: str, config: dict[str, Any], says: str
) -> None:
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
    st.integers(0, DEEPEST),
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
            denied = one.deny(Question(ANN, capability, chain, permission), counts)
            assert denied is None or denied
