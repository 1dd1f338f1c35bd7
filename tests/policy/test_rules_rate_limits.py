"""Rate limits: the number of calls, by which principal, in which window."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.issuer import Clock
from tests.policy.ruled import ANN, BOB, reason
from waypost.capabilities.principals import FROM_OUTSIDE, Principal
from waypost.policy import rules
from waypost.policy.rules import Policy, Question, Rule


def limiter(clock: Clock, **config: Any) -> Policy:
    return Policy([Rule(name="calm", type="rate_limit", config=config)], clock=clock)


def allowed(
    policy: Policy,
    principal: Principal = ANN,
    capability: str = "deploy",
    permission: str = "execute",
) -> bool:
    return policy.decide(Question(principal, capability, FROM_OUTSIDE, permission)).allowed


def test_the_default_limit_is_ten_calls_a_minute() -> None:
    policy = limiter(Clock())

    assert [allowed(policy) for _ in range(12)] == [True] * 10 + [False] * 2
    assert policy.decide(Question(ANN, "deploy", FROM_OUTSIDE)).reason == "rate limit exceeded: max 10/60s"


def test_the_reason_names_the_configured_limit() -> None:
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


def test_a_clock_that_is_set_back_opens_the_window() -> None:
    clock = Clock()
    policy = limiter(clock, max_calls=1, window_seconds=10)
    assert allowed(policy)
    clock.now -= 3600

    assert allowed(policy)
    assert not allowed(policy)


def test_refused_calls_do_not_count() -> None:
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
def test_the_counting_key_can_be_configured(per: list[str], shared: list[tuple[Principal, str]]) -> None:
    policy = limiter(Clock(), max_calls=1, per=per)
    assert allowed(policy, ANN, "a")

    others = [(ANN, "b"), (BOB, "a"), (BOB, "b")]
    assert [one for one in others if not policy.decide(Question(*one, FROM_OUTSIDE), counts=False).allowed] == shared


def test_calls_can_be_counted_per_permission() -> None:
    policy = limiter(Clock(), max_calls=1, per=["permission"])

    assert allowed(policy, permission="web_read")
    assert allowed(policy, permission="llm")
    assert not allowed(policy, permission="llm")


def test_a_limit_on_one_permission_does_not_apply_to_others() -> None:
    policy = limiter(Clock(), max_calls=0, permission="web_read")

    assert not allowed(policy, permission="web_read")
    assert allowed(policy, permission="llm")
    assert allowed(policy)


def test_a_limit_may_be_zero_calls() -> None:
    assert reason("rate_limit", {"max_calls": 0}) == "rate limit exceeded: max 0/60s"


def test_expired_windows_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_WINDOWS", 10)
    clock = Clock()
    policy = limiter(clock, max_calls=1, window_seconds=1)
    for number in range(100):
        clock.now += 0.3
        assert allowed(policy, Principal(f"p{number}"))

    [(_, one)] = policy._compiled
    assert len(one._calls) <= 10  # type: ignore[attr-defined]


@given(st.lists(st.floats(0, 30), max_size=60), st.integers(1, 5), st.floats(0.5, 20))
def test_a_window_never_has_more_calls_than_the_limit(pauses: list[float], most: int, seconds: float) -> None:
    clock, times = Clock(0.0), list[float]()
    policy = limiter(clock, max_calls=most, window_seconds=seconds)
    for pause in pauses:
        clock.now += pause
        recent = [time for time in times if time > clock.now - seconds]
        assert allowed(policy) == (len(recent) < most)
        if len(recent) < most:
            times.append(clock.now)
