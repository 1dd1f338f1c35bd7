"""Reliability: timeouts of attempts, retries with backoff, and fallbacks."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from waypost.config.models import Reliability, Retry
from waypost.errors import ExecutorFailed
from waypost.loops import running_task
from waypost.redaction import hide, without
from waypost.workflows.executors.kind import Executor, Run

ATTEMPT_TIMEOUT_S: Final = 120.0
"""How long an attempt may take where no timeout is given."""

_log: Final = logging.getLogger(__name__)


class AttemptsFailed(ExecutorFailed):
    """Every attempt failed; carries a record of each."""

    def __init__(self, last: ExecutorFailed, attempts: list[dict[str, Any]], secrets: tuple[str, ...]) -> None:
        super().__init__(without(last.message, secrets), last.error_class)
        self.attempts = attempts


class Supervised:
    """An executor with its fallbacks, and how often each is tried."""

    def __init__(
        self,
        executor: Executor,
        fallbacks: Sequence[Executor] = (),
        reliability: Reliability | None = None,
        *,
        secrets: Callable[[], tuple[str, ...]] = tuple,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._candidates = (executor, *fallbacks)
        reliability = reliability or Reliability()
        self._retry = reliability.retry or Retry()
        self._timeout_ms = reliability.timeout_ms
        self._secrets = secrets
        self._clock = clock
        self._sleep = sleep
        self._chance = chance

    async def run(self, run: Run) -> tuple[Any, list[dict[str, Any]]]:
        """The output, and a record of every attempt: `{executor, attempt, ok | errorClass, ms}`.

        Secrets of the configuration are removed from the output: it is stored with the instance and shown to callers.
        That of a success also names the `evidence` it is, if it is any. When all failed, `AttemptsFailed` is the last
        failure.
        """
        attempts: list[dict[str, Any]] = []
        failure = ExecutorFailed()
        for executor in self._candidates:
            try:
                output = await self._try(executor, run, attempts)
                return hide(output, secrets) if (secrets := self._secrets()) else output, attempts
            except ExecutorFailed as error:
                failure = error
        raise AttemptsFailed(failure, attempts, self._secrets()) from failure

    async def _try(self, executor: Executor, run: Run, attempts: list[dict[str, Any]]) -> Any:
        """The output of the first attempt that succeeds, or the failure of the last."""
        number = 1
        while True:
            began = self._clock()
            record: dict[str, Any] = {"executor": executor.kind, "attempt": number}
            attempts.append(record)
            try:
                output = await self._attempt(executor, run)
                record |= {"ok": True} | ({"evidence": executor.evidence} if executor.evidence else {})
                return output
            except ExecutorFailed as error:
                record["errorClass"] = error.error_class
                if not can_retry(self._retry, number, error):
                    raise
            finally:
                record["ms"] = round((self._clock() - began) * 1000)
            await self._sleep(delay(self._retry, number, self._chance))
            number += 1

    async def _attempt(self, executor: Executor, run: Run) -> Any:
        seconds = max(ATTEMPT_TIMEOUT_S, executor.limit or 0) if self._timeout_ms is None else self._timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                return await run_safely(executor, run)
        except TimeoutError:
            raise ExecutorFailed(f"It did not end within {seconds:g} s.", "timeout") from None


async def run_safely(executor: Executor, run: Run) -> Any:
    """Run an executor; an exception of any other type becomes an `ExecutorFailed`."""
    try:
        return await executor.run(run)
    except ExecutorFailed:
        raise
    except TimeoutError:
        raise ExecutorFailed("It did not end in time.", "timeout") from None
    except asyncio.CancelledError:
        # The attempt itself is being cancelled; in all other cases it was a task that the executor awaited.
        if running_task().cancelling():
            raise
        raise ExecutorFailed("What it waited for was cancelled.", "transient_error") from None
    except Exception as error:  # a mistake in an executor must not take the engine along
        _log.exception("executor crashed: kind=%s", executor.kind)
        raise ExecutorFailed(f"The executor crashed: {type(error).__name__}.") from error


def can_retry(retry: Retry, failed: int, error: ExecutorFailed) -> bool:
    """Whether another attempt follows after so many failed ones, of which an error was the last."""
    # Never after a permanent error, whatever `retryOn` says: it would fail in the same way.
    return failed < retry.max_attempts and error.error_class in {*retry.retry_on} - {"permanent_error"}


def delay(retry: Retry, failed: int, chance: Callable[[], float] = random.random) -> float:
    """Seconds to wait after so many failed attempts."""
    if retry.backoff == "none":
        return 0.0
    grown = retry.initial_delay_ms * (2 ** (failed - 1) if retry.backoff == "exponential" else 1)
    seconds = min(grown, retry.max_delay_ms) / 1000
    has_jitter = retry.backoff != "fixed" if retry.jitter is None else retry.jitter
    return seconds * chance() if has_jitter else seconds


def failure_data(error: ExecutorFailed) -> dict[str, str]:
    """A failure as JSON data."""
    return {"message": error.message, "errorClass": error.error_class}
