"""Circuit breakers: a capability that failed three times in a row is not called for five minutes, then tried once."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil
from typing import Final

from waypost.errors import CircuitOpen
from waypost.wire.messages import replace_surrogates

MAX_FAILURES: Final = 3
PAUSE_S: Final = 300.0


class Breaker:
    """The breaker of one capability."""

    __slots__ = ("failures", "last_error", "opened_at", "probing")

    def __init__(self) -> None:
        self.failures = 0
        self.last_error = ""
        self.opened_at = 0.0
        self.probing = False


class Breakers:
    """Breakers by capability; one that never failed has none."""

    def __init__(
        self, *, failures: int = MAX_FAILURES, pause: float = PAUSE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._failures = failures
        self._pause = pause
        self._clock = clock
        self._breakers: dict[str, Breaker] = {}

    def enter(self, name: str) -> bool:
        """Let a call through, or raise `CircuitOpen`; returns whether the call is the probe of an open circuit.

        While a circuit is open only its probe counts: calls that began before it opened may still end.
        """
        breaker = self._breakers.get(name)
        if breaker is None or breaker.failures < self._failures:
            return False
        left = breaker.opened_at + self._pause - self._clock()
        if left > 0 or breaker.probing:
            raise CircuitOpen(f"Circuit open for {name}, retry in {max(ceil(left), 1)} s", name)
        breaker.probing = True
        return True

    def record_success(self, name: str, *, is_probe: bool = True) -> None:
        """A call succeeded: close the circuit."""
        if self._breakers and (is_probe or not self._is_open(name)):
            self._breakers.pop(name, None)

    def record_failure(self, name: str, reason: str, *, is_probe: bool = True) -> None:
        """A call failed: count it, and open the circuit after too many in a row."""
        if not is_probe and self._is_open(name):
            return
        breaker = self._breakers.setdefault(name, Breaker())
        breaker.failures += 1
        breaker.last_error = replace_surrogates(reason)
        breaker.probing = False
        if breaker.failures >= self._failures:
            breaker.opened_at = self._clock()

    def record_abandoned(self, name: str) -> None:
        """A probe ended without success or failure; another one may try."""
        breaker = self._breakers.get(name)
        if breaker is not None:
            breaker.probing = False

    def _is_open(self, name: str) -> bool:
        breaker = self._breakers.get(name)
        return breaker is not None and breaker.failures >= self._failures

    def reset(self, name: str) -> None:
        """Close the circuit of a capability."""
        self._breakers.pop(name, None)

    def states(self) -> dict[str, dict[str, object]]:
        """The breakers of capabilities with failures, as `/metrics` shows them."""
        return {
            name: {"state": self._state(breaker), "failure_count": breaker.failures, "last_error": breaker.last_error}
            for name, breaker in sorted(self._breakers.items())
        }

    def _state(self, breaker: Breaker) -> str:
        if breaker.failures < self._failures:
            return "closed"
        return "open" if self._clock() < breaker.opened_at + self._pause else "half_open"
