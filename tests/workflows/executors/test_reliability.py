"""Attempts, retries, delays and fallbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.executors.test_building import a_run
from waypost.config.models import Reliability, Retry
from waypost.errors import ExecutorFailed
from waypost.workflows.executors.kind import Run
from waypost.workflows.executors.reliability import AttemptsFailed, Supervised, delay


class Scripted:
    """An executor that returns or raises each result in turn, and repeats the last one."""

    evidence = "done"

    def __init__(self, *outcomes: Any, kind: str = "scripted", limit: float | None = None) -> None:
        self.kind = kind
        self.limit = limit
        self.keys: list[str] = []
        self._outcomes = list(outcomes)

    async def run(self, run: Run) -> Any:
        self.keys.append(run.key)
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class Endless:
    """An executor that waits until it is cancelled."""

    kind = "endless"
    evidence = None
    limit: float | None = None

    def __init__(self) -> None:
        self.cancelled = 0

    async def run(self, run: Run) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class Pauses:
    """A fake sleep that records its delays."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def failing(error_class: str) -> ExecutorFailed:
    return ExecutorFailed(f"it was a {error_class}", error_class)


def ticking() -> Callable[[], float]:
    """A clock that advances a quarter of a second at each reading."""
    moments = iter(range(10_000))
    return lambda: next(moments) / 4


def supervised(
    executor: Any,
    *fallbacks: Any,
    pauses: Pauses | None = None,
    chance: Callable[[], float] = lambda: 1.0,
    **written: Any,
) -> Supervised:
    reliability = msgspec.convert(written, Reliability)
    return Supervised(executor, fallbacks, reliability, clock=ticking(), sleep=pauses or Pauses(), chance=chance)


@asynchronous
async def test_a_success_is_one_attempt() -> None:
    assert await supervised(Scripted({"a": 1})).run(a_run()) == (
        {"a": 1},
        [{"executor": "scripted", "attempt": 1, "ok": True, "evidence": "done", "ms": 250}],
    )


@pytest.mark.parametrize("error_class", ["timeout", "transient_error", "rate_limited"])
@asynchronous
async def test_a_transient_failure_is_retried_with_the_same_key(error_class: str) -> None:
    executor = Scripted(failing(error_class), failing(error_class), "output")
    output, attempts = await supervised(executor, retry={"maxAttempts": 3}).run(a_run(key="k-1"))

    assert output == "output"
    assert [(one["attempt"], one.get("errorClass"), one.get("ok")) for one in attempts] == [
        (1, error_class, None),
        (2, error_class, None),
        (3, None, True),
    ]
    assert executor.keys == ["k-1"] * 3


@asynchronous
async def test_after_the_last_attempt_its_failure_is_raised_with_all_attempts() -> None:
    executor = Scripted(failing("timeout"), failing("rate_limited"))
    with pytest.raises(AttemptsFailed) as caught:
        await supervised(executor, retry={"maxAttempts": 3}).run(a_run())

    assert (caught.value.error_class, caught.value.message) == ("rate_limited", "it was a rate_limited")
    assert [one["errorClass"] for one in caught.value.attempts] == ["timeout", "rate_limited", "rate_limited"]
    assert [one["ms"] for one in caught.value.attempts] == [250, 250, 250]


@pytest.mark.parametrize(
    ("error_class", "retry_on", "tries"),
    [
        ("connection_error", None, 1),
        ("connection_error", ["connection_error"], 3),
        ("timeout", ["connection_error"], 1),
        ("permanent_error", None, 1),
        ("permanent_error", ["permanent_error"], 1),
    ],
)
@asynchronous
async def test_only_the_configured_error_classes_are_retried_and_never_a_permanent_one(
    error_class: str, retry_on: list[str] | None, tries: int
) -> None:
    executor = Scripted(failing(error_class))
    retry = {"maxAttempts": 3} | ({"retryOn": retry_on} if retry_on else {})
    with pytest.raises(AttemptsFailed):
        await supervised(executor, retry=retry).run(a_run())

    assert len(executor.keys) == tries


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [("none", [0, 0, 0, 0]), ("fixed", [0.1, 0.1, 0.1, 0.1]), ("exponential", [0.1, 0.2, 0.4, 0.5])],
)
@asynchronous
async def test_delays_grow_as_configured_up_to_the_maximum(backoff: str, expected: list[float]) -> None:
    pauses = Pauses()
    retry = {"maxAttempts": 5, "backoff": backoff, "initialDelayMs": 100, "maxDelayMs": 500, "jitter": False}
    with pytest.raises(AttemptsFailed):
        await supervised(Scripted(failing("timeout")), pauses=pauses, retry=retry).run(a_run())

    assert pauses.seconds == expected


@pytest.mark.parametrize("part", [0.0, 0.25, 1.0])
def test_jitter_takes_any_part_of_a_delay_away(part: float) -> None:
    retry = Retry(backoff="exponential", initial_delay_ms=1000)

    assert delay(retry, 1, lambda: part) == part


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (Retry(backoff="fixed", initial_delay_ms=250), 0.25),
        (Retry(backoff="fixed", initial_delay_ms=250, jitter=True), 0.125),
        (Retry(backoff="exponential", initial_delay_ms=250), 0.125),
        (Retry(backoff="exponential", initial_delay_ms=250, jitter=False), 0.25),
    ],
)
def test_a_fixed_delay_has_jitter_only_if_configured(retry: Retry, expected: float) -> None:
    assert delay(retry, 1, lambda: 0.5) == expected


def test_the_maximum_delay_applies_after_a_hundred_attempts() -> None:
    retry = Retry(backoff="exponential", initial_delay_ms=1000, max_delay_ms=5000, jitter=False)

    assert delay(retry, 100, lambda: 1.0) == 5.0


@asynchronous
async def test_a_fallback_gets_as_many_attempts_with_the_same_key() -> None:
    first, second, third = (
        Scripted(failing("timeout"), kind="first"),
        Scripted(failing("permanent_error"), kind="second"),
        Scripted(failing("timeout"), "third", kind="third"),
    )
    output, attempts = await supervised(first, second, third, retry={"maxAttempts": 2}).run(a_run(key="k-1"))

    assert output == "third"
    assert [(one["executor"], one["attempt"]) for one in attempts] == [
        ("first", 1),
        ("first", 2),
        ("second", 1),
        ("third", 1),
        ("third", 2),
    ]
    assert {*first.keys, *second.keys, *third.keys} == {"k-1"}


@asynchronous
async def test_the_failure_of_the_last_fallback_is_raised() -> None:
    with pytest.raises(AttemptsFailed) as caught:
        await supervised(Scripted(failing("timeout")), Scripted(failing("connection_error"))).run(a_run())

    assert (caught.value.error_class, len(caught.value.attempts)) == ("connection_error", 2)


@asynchronous
async def test_every_attempt_has_its_own_timeout_and_is_cancelled() -> None:
    executor = Endless()
    with pytest.raises(AttemptsFailed) as caught:
        await supervised(executor, timeoutMs=20, retry={"maxAttempts": 3}).run(a_run())

    assert (executor.cancelled, caught.value.error_class) == (3, "timeout")
    assert caught.value.message == "It did not end within 0.02 s."


@pytest.mark.parametrize(
    ("limit", "timeout_ms", "expected"), [(None, None, 120), (5, None, 120), (600, None, 600), (600, 50, 0.05)]
)
@asynchronous
async def test_the_default_timeout_of_an_attempt_is_two_minutes(
    limit: float | None, timeout_ms: int | None, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    timeout = asyncio.timeout

    def recorded(seconds: float) -> asyncio.Timeout:
        given.append(seconds)
        return timeout(seconds)

    monkeypatch.setattr("waypost.workflows.executors.reliability.asyncio.timeout", recorded)
    await supervised(Scripted("x", limit=limit), timeoutMs=timeout_ms).run(a_run())

    assert given == [expected]


@asynchronous
async def test_a_cancellation_from_outside_ends_everything() -> None:
    executor = Endless()
    spare = Scripted("spare")
    running = asyncio.ensure_future(supervised(executor, spare, retry={"maxAttempts": 3}).run(a_run()))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert (executor.cancelled, spare.keys) == (1, [])


@asynchronous
async def test_a_crash_is_a_permanent_failure_with_only_the_type_of_the_error(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AttemptsFailed) as caught:
        await supervised(Scripted(KeyError("secret of the hub")), retry={"maxAttempts": 3}).run(a_run())

    assert (caught.value.error_class, caught.value.message) == ("permanent_error", "The executor crashed: KeyError.")
    assert "executor crashed: kind=scripted" in caplog.text


@pytest.mark.parametrize(
    ("error", "error_class"), [(TimeoutError(), "timeout"), (asyncio.CancelledError(), "transient_error")]
)
@asynchronous
async def test_errors_raised_by_an_executor_have_an_error_class(error: BaseException, error_class: str) -> None:
    with pytest.raises(AttemptsFailed) as caught:
        await supervised(Scripted(error)).run(a_run())

    assert caught.value.error_class == error_class
