"""Circuit breakers: three failures of one cause open one, and after a pause one probe call decides."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.policy.issuer import Clock
from waypost.errors import CallError, CircuitOpen
from waypost.execution.breakers import MAX_STOPPED_CALLERS, Breakers, CircuitChange
from waypost.settings import Breakers as Settings

FIVE_MINUTES = Settings(pause_ms=300_000)


def opened(clock: Clock) -> Breakers:
    """Breakers in which the circuit of `deploy` is open."""
    breakers = Breakers(FIVE_MINUTES, clock=clock)
    fail(breakers, 3)
    return breakers


def fail(breakers: Breakers, times: int) -> None:
    for _ in range(times):
        breakers.enter("deploy", "ada")
        breakers.record_failure("deploy", "ada", "OSError", "OSError: no route")


def refused(breakers: Breakers, name: str = "deploy") -> str:
    with pytest.raises(CircuitOpen) as circuit:
        breakers.enter(name, "ada")
    return circuit.value.message


def state(breakers: Breakers) -> object:
    return states["deploy"].state if (states := breakers.states()) else None


def test_three_failures_in_a_row_open_a_circuit_for_five_minutes() -> None:
    breakers = Breakers(FIVE_MINUTES, clock=Clock())

    fail(breakers, 2)
    breakers.enter("deploy", "ada")
    breakers.record_failure("deploy", "ada", "OSError", "again")
    assert refused(breakers) == "Circuit open for deploy, retry in 300 s"


def test_an_open_circuit_is_a_call_error() -> None:
    assert issubclass(CircuitOpen, CallError)


def test_the_remaining_seconds_are_rounded_up_to_at_least_one() -> None:
    clock = Clock()
    breakers = opened(clock)

    for passed, left in ((0.5, 300), (1.0, 299), (298.5, 2), (299.9, 1)):
        clock.now = Clock().now + passed
        assert refused(breakers) == f"Circuit open for deploy, retry in {left} s"


def test_other_capabilities_are_not_concerned() -> None:
    opened(Clock()).enter("status", "ada")


def test_a_success_resets_the_count() -> None:
    breakers = Breakers(FIVE_MINUTES, clock=Clock())
    fail(breakers, 2)
    breakers.enter("deploy", "ada")
    breakers.record_success("deploy", "ada")
    fail(breakers, 2)

    breakers.enter("deploy", "ada")


def test_an_abandoned_call_neither_counts_as_a_failure_nor_resets_the_count() -> None:
    breakers = Breakers(FIVE_MINUTES, clock=Clock())
    fail(breakers, 2)
    for _ in range(5):
        breakers.enter("deploy", "ada")
        breakers.record_abandoned("deploy", "ada")
    assert state(breakers) == "closed"

    fail(breakers, 1)
    assert state(breakers) == "open"


def test_a_half_open_circuit_lets_exactly_one_probe_through() -> None:
    clock = Clock()
    breakers = opened(clock)
    clock.now += 300

    assert state(breakers) == "half_open"
    breakers.enter("deploy", "ada")
    for _ in range(3):
        assert refused(breakers) == "Circuit open for deploy, retry in 1 s"


def test_a_successful_probe_closes_the_circuit() -> None:
    clock = Clock()
    breakers = opened(clock)
    clock.now += 300
    breakers.enter("deploy", "ada")
    breakers.record_success("deploy", "ada")

    assert breakers.states() == {}
    fail(breakers, 2)
    breakers.enter("deploy", "ada")


def test_a_failed_probe_opens_the_circuit_for_another_five_minutes() -> None:
    clock = Clock()
    breakers = opened(clock)
    clock.now += 300
    breakers.enter("deploy", "ada")
    breakers.record_failure("deploy", "ada", "OSError", "still")

    assert refused(breakers) == "Circuit open for deploy, retry in 300 s"
    clock.now += 300
    breakers.enter("deploy", "ada")


def test_another_call_may_probe_after_an_abandoned_probe() -> None:
    clock = Clock()
    breakers = opened(clock)
    clock.now += 300
    breakers.enter("deploy", "ada")
    breakers.record_abandoned("deploy", "ada")

    breakers.enter("deploy", "ada")
    refused(breakers)


def test_states_are_what_the_metrics_show() -> None:
    clock = Clock()
    breakers = Breakers(FIVE_MINUTES, clock=clock)
    assert breakers.states() == {}

    breakers.record_failure("b", "ada", "OSError", "TypeError: x")
    fail(breakers, 3)
    assert breakers.states() == {
        "b": ("closed", 1, "TypeError: x", []),
        "deploy": ("open", 3, "OSError: no route", ["ada"]),
    }
    assert list(breakers.states()) == ["b", "deploy"]


def test_a_reset_breaker_starts_closed_with_a_count_of_zero() -> None:
    breakers = opened(Clock())
    breakers.reset("deploy")
    breakers.reset("never heard of")

    breakers.enter("deploy", "ada")
    assert breakers.states() == {}


def test_capabilities_that_never_failed_take_no_memory() -> None:
    breakers = Breakers(Settings())
    for number in range(1000):
        breakers.enter(f"tool{number}", "ada")
        breakers.record_success(f"tool{number}", "ada")
        breakers.record_abandoned(f"tool{number}", "ada")

    assert breakers.failing == {}


def test_failures_and_pause_can_be_configured() -> None:
    clock = Clock()
    breakers = Breakers(Settings(failures=1, pause_ms=10_000), clock=clock)
    breakers.record_failure("deploy", "ada", "OSError", "x")

    assert refused(breakers) == "Circuit open for deploy, retry in 10 s"


class OneAtATime(RuleBasedStateMachine):
    """Calls one after the other, against a model that only counts."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock(0.0)
        self.breakers = Breakers(FIVE_MINUTES, clock=self.clock)
        self.in_a_row = 0
        self.closed_until = 0.0

    @property
    def may_try(self) -> bool:
        return self.in_a_row < 3 or self.clock.now >= self.closed_until

    @rule(seconds=st.sampled_from([1.0, 100.0, 299.0, 300.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @precondition(lambda self: self.may_try)
    @rule(end=st.sampled_from(["succeeded", "failed", "gave_up"]))
    def call(self, end: str) -> None:
        self.breakers.enter("deploy", "ada")
        if self.in_a_row >= 3:
            refused(self.breakers)
        match end:
            case "succeeded":
                self.breakers.record_success("deploy", "ada")
                self.in_a_row = 0
            case "failed":
                self.breakers.record_failure("deploy", "ada", "OSError", "x")
                self.in_a_row += 1
                self.closed_until = self.clock.now + 300
            case _:
                self.breakers.record_abandoned("deploy", "ada")

    @precondition(lambda self: not self.may_try)
    @rule()
    def be_refused(self) -> None:
        left = refused(self.breakers).removeprefix("Circuit open for deploy, retry in ").removesuffix(" s")
        assert 0 <= int(left) - (self.closed_until - self.clock.now) < 1

    @invariant()
    def the_state_is_what_it_was_counted_to_be(self) -> None:
        expected = None if not self.in_a_row else "closed" if self.in_a_row < 3 else "half_open"
        assert state(self.breakers) == (expected if self.may_try else "open")


TestOneAtATime = OneAtATime.TestCase


def test_the_end_of_a_call_that_started_before_the_circuit_opened_is_ignored() -> None:
    now = [0.0]
    breakers = Breakers(Settings(failures=1, pause_ms=10_000), clock=lambda: now[0])
    assert not breakers.enter("slow", "ada")
    breakers.record_failure("slow", "ada", "OSError", "no", is_probe=False)
    now[0] = 11.0
    assert breakers.enter("slow", "ada")
    breakers.record_failure("slow", "ada", "OSError", "late", is_probe=False)
    breakers.record_success("slow", "ada", is_probe=False)
    with pytest.raises(CircuitOpen):
        breakers.enter("slow", "ada")
    breakers.record_success("slow", "ada")
    assert not breakers.enter("slow", "ada")


def test_failures_of_different_causes_are_counted_apart() -> None:
    breakers = Breakers(Settings(), clock=Clock())
    for cause in ("OSError", "RuntimeError", "OSError", "RuntimeError"):
        breakers.enter("deploy", "ada")
        breakers.record_failure("deploy", "ada", cause, "x")

    assert state(breakers) == "closed"
    breakers.record_failure("deploy", "ada", "OSError", "x")
    assert state(breakers) == "open"


def test_by_default_a_breaker_tries_again_after_ten_seconds_and_each_failed_trial_doubles_the_pause() -> None:
    clock = Clock()
    breakers = Breakers(Settings(), clock=clock)
    fail(breakers, 3)
    pauses = []
    for _ in range(7):
        pauses.append(int(refused(breakers).split()[-2]))
        clock.now += pauses[-1]
        fail(breakers, 1)

    assert pauses == [10, 20, 40, 80, 160, 300, 300]


def test_no_number_of_failures_opens_a_breaker_that_is_turned_off() -> None:
    breakers = Breakers(Settings(failures=0), clock=Clock())
    fail(breakers, 10)

    breakers.enter("deploy", "ada")


def fail_for(breakers: Breakers, *callers: str) -> None:
    for caller in callers:
        is_probe = breakers.enter("deploy", caller)
        breakers.record_failure("deploy", caller, "DeadlineExceeded", "too slow", is_probe=is_probe)


def is_refused(breakers: Breakers, caller: str) -> bool:
    try:
        if breakers.enter("deploy", caller):
            breakers.record_abandoned("deploy", caller)
    except CircuitOpen:
        return True
    return False


def test_failures_of_one_caller_stop_only_its_own_calls() -> None:
    breakers = Breakers(Settings(), clock=Clock())
    fail_for(breakers, "ada", "ada", "ada")

    assert is_refused(breakers, "ada")
    assert not is_refused(breakers, "ben")
    assert breakers.states()["deploy"] == ("open", 3, "too slow", ["ada"])


def test_failures_of_three_callers_in_a_row_stop_all() -> None:
    breakers = Breakers(Settings(), clock=Clock())
    fail_for(breakers, "ada", "ada", "ada", "ben")
    assert not is_refused(breakers, "dan")

    fail_for(breakers, "cleo")
    assert is_refused(breakers, "dan")
    assert breakers.states()["deploy"] == ("open", 5, "too slow", [])


def test_with_a_limit_of_one_failure_it_still_takes_two_callers_to_stop_all() -> None:
    breakers = Breakers(Settings(failures=1), clock=Clock())
    fail_for(breakers, "ada")
    assert is_refused(breakers, "ada")
    assert not is_refused(breakers, "cleo")

    fail_for(breakers, "ben")
    assert is_refused(breakers, "cleo")


def test_a_success_of_another_caller_resets_the_count_but_not_a_stopped_caller() -> None:
    breakers = Breakers(Settings(), clock=Clock())
    fail_for(breakers, "ada", "ada", "ada", "ben")
    breakers.record_success("deploy", "cleo", is_probe=False)

    fail_for(breakers, "cleo", "dan")
    assert is_refused(breakers, "ada")
    assert not is_refused(breakers, "eve")


def test_the_probe_of_a_stopped_caller_decides_for_that_caller() -> None:
    clock = Clock()
    breakers = Breakers(Settings(), clock=clock)
    fail_for(breakers, "ada", "ada", "ada", "ben", "ben", "ben")
    assert breakers.states()["deploy"].callers == ["ada", "ben"]
    clock.now += 10
    assert breakers.enter("deploy", "ada")
    breakers.record_success("deploy", "ada")

    assert breakers.states()["deploy"].callers == ["ben"]
    fail_for(breakers, "ben")
    assert not is_refused(breakers, "ada")
    assert is_refused(breakers, "ben")


def test_a_caller_whose_probe_failed_lets_other_callers_probe_first() -> None:
    clock = Clock()
    breakers = Breakers(Settings(), clock=clock)
    fail_for(breakers, "ada", "ben", "cleo")
    clock.now += 10
    fail_for(breakers, "ada")

    clock.now += 20
    assert is_refused(breakers, "ada")
    assert breakers.enter("deploy", "ben")
    breakers.record_success("deploy", "ben")
    assert breakers.states() == {}


def test_a_caller_whose_probe_failed_may_probe_again_when_no_other_caller_does() -> None:
    clock = Clock()
    breakers = Breakers(Settings(), clock=clock)
    fail_for(breakers, "ada", "ben", "cleo")
    clock.now += 10
    fail_for(breakers, "ada")

    clock.now += 20
    with pytest.raises(CircuitOpen, match="retry in 20 s"):
        breakers.enter("deploy", "ada")
    clock.now += 20
    assert breakers.enter("deploy", "ada")


def test_the_number_of_stopped_callers_is_bounded() -> None:
    breakers = Breakers(Settings(), clock=Clock())
    for number in range(1000):
        fail_for(breakers, *[f"caller{number}"] * 3)
        breakers.record_success("deploy", "ada", is_probe=False)

    assert len(breakers.states()["deploy"].callers) == MAX_STOPPED_CALLERS
    assert is_refused(breakers, "caller999")
    assert not is_refused(breakers, "caller0")


def test_a_lowered_limit_applies_to_earlier_failures() -> None:
    breakers = Breakers(Settings(failures=10), clock=Clock())
    fail_for(breakers, *["ada"] * 5)
    breakers.settings = Settings(failures=3)

    fail_for(breakers, "ada")
    assert is_refused(breakers, "ada")


def follow_each_other(*replicas: Breakers) -> None:
    """Pass each change of one replica to all others."""
    for one in replicas:
        others = [other for other in replicas if other is not one]

        def tell(name: str, change: CircuitChange, others: list[Breakers] = others) -> None:
            for other in others:
                other.follow(name, CircuitChange(*change))

        one.on_change = tell


def test_callers_that_fail_at_different_replicas_stop_all_everywhere() -> None:
    clock = Clock()
    replicas = [Breakers(Settings(), clock=clock) for _ in range(3)]
    follow_each_other(*replicas)
    for replica, caller in zip(replicas, ("ada", "ben", "cleo"), strict=True):
        fail_for(replica, *[caller] * (3 if caller != "cleo" else 1))

    assert all(is_refused(replica, "dan") for replica in replicas)
    clock.now += 10
    assert replicas[1].enter("deploy", "dan")
    replicas[1].record_success("deploy", "dan")
    assert [replica.states() for replica in replicas] == [{}, {}, {}]


def test_the_circuit_of_one_caller_opens_and_closes_at_all_replicas() -> None:
    clock = Clock()
    here, there = Breakers(Settings(), clock=clock), Breakers(Settings(), clock=clock)
    follow_each_other(here, there)
    fail_for(here, "ada", "ada", "ada")
    assert is_refused(there, "ada")
    assert not is_refused(there, "ben")

    clock.now += 10
    assert there.enter("deploy", "ada")
    there.record_success("deploy", "ada")
    assert here.states() == there.states() == {}
