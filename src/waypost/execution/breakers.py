"""Circuit breakers: what failed three times in a row is left alone for five minutes, then tried once."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil
from typing import Final

from waypost.errors import CircuitOpen
from waypost.wire.messages import readable

FAILURES: Final = 3
PAUSE: Final = 300.0


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
        self, *, failures: int = FAILURES, pause: float = PAUSE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._failures = failures
        self._pause = pause
        self._clock = clock
        self._breakers: dict[str, Breaker] = {}

    def enter(self, name: str) -> bool:
        """Let a call through; `CircuitOpen` while nobody is to try, and while one who tries has not come back.

        Whether it is the one who tries: what others come to, who were on their way before, counts for nothing then.
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
        """All is well again."""
        if self._breakers and (is_probe or not self._is_open(name)):
            self._breakers.pop(name, None)

    def record_failure(self, name: str, reason: str, *, is_probe: bool = True) -> None:
        """One more failure in a row."""
        if not is_probe and self._is_open(name):
            return
        breaker = self._breakers.setdefault(name, Breaker())
        breaker.failures += 1
        breaker.last_error = readable(reason)
        breaker.probing = False
        if breaker.failures >= self._failures:
            breaker.opened_at = self._clock()

    def record_abandoned(self, name: str) -> None:
        """A call ended without telling anything; if it was the one who tried, another may."""
        breaker = self._breakers.get(name)
        if breaker is not None:
            breaker.probing = False

    def _is_open(self, name: str) -> bool:
        breaker = self._breakers.get(name)
        return breaker is not None and breaker.failures >= self._failures

    def reset(self, name: str) -> None:
        """Forget what happened to a capability."""
        self._breakers.pop(name, None)

    def states(self) -> dict[str, dict[str, object]]:
        """The breakers of all that failed lately, as `/metrics` shows them."""
        return {
            name: {"state": self._state(breaker), "failure_count": breaker.failures, "last_error": breaker.last_error}
            for name, breaker in sorted(self._breakers.items())
        }

    def _state(self, breaker: Breaker) -> str:
        if breaker.failures < self._failures:
            return "closed"
        return "open" if self._clock() < breaker.opened_at + self._pause else "half_open"
