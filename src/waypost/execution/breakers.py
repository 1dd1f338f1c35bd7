"""Circuit breakers: a capability that keeps failing for the same cause is not called for a while, then tried once."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil
from typing import Final, Literal, NamedTuple

from waypost.errors import CircuitOpen
from waypost.settings import Breakers as Settings
from waypost.wire.messages import replace_surrogates

ARGUMENT_ERRORS: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a handler raises when it fails on its arguments; one caller's bad input must not stop a tool for all others."""


class BreakerState(NamedTuple):
    """What operators see of a breaker."""

    state: Literal["closed", "open", "half_open"]
    failure_count: int
    last_error: str


class Breaker:
    """The breaker of one capability."""

    __slots__ = ("failures", "last_error", "opened_at", "pause", "probing")

    def __init__(self) -> None:
        self.failures: dict[str, int] = {}
        """Failures in a row by cause."""
        self.last_error = ""
        self.opened_at: float | None = None
        self.pause = 0.0
        """Seconds from opening to the next probe; doubled each time a probe fails."""
        self.probing = False


class Breakers:
    """Breakers by capability; one that never failed has none."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self.failing: dict[str, Breaker] = {}
        """The capabilities whose last call failed."""
        self.on_change: Callable[[str, tuple[float, str] | None], None] | None = None
        """Called when a circuit opens, with its pause and the last error, and when it closes, with `None`."""

    def enter(self, name: str) -> bool:
        """Let a call through, or raise `CircuitOpen`; returns whether the call is the probe of an open circuit.

        While a circuit is open only its probe counts: calls that began before it opened may still end.
        """
        breaker = self.failing.get(name)
        if breaker is None or breaker.opened_at is None:
            return False
        left = breaker.opened_at + breaker.pause - self._clock()
        if left > 0 or breaker.probing:
            raise CircuitOpen(f"Circuit open for {name}, retry in {max(ceil(left), 1)} s", name)
        breaker.probing = True
        return True

    def record_success(self, name: str, *, is_probe: bool = True) -> None:
        """A call succeeded: close the circuit."""
        if is_probe or not self._is_open(name):
            self.reset(name)

    def record_failure(self, name: str, cause: str, reason: str, *, is_probe: bool = True) -> None:
        """A call failed: count it, and open the circuit after too many in a row of the same cause."""
        if not is_probe and self._is_open(name):
            return
        breaker = self.failing.setdefault(name, Breaker())
        breaker.failures[cause] = failures = breaker.failures.get(cause, 0) + 1
        breaker.last_error = replace_surrogates(reason)
        breaker.probing = False
        if breaker.opened_at is not None:
            breaker.pause = min(breaker.pause * 2, self.settings.max_pause_ms / 1000)
            self._open(name, breaker)
        elif failures == self.settings.failures:
            breaker.pause = self.settings.pause_ms / 1000
            self._open(name, breaker)

    def _open(self, name: str, breaker: Breaker) -> None:
        breaker.opened_at = self._clock()
        if self.on_change is not None:
            self.on_change(name, (breaker.pause, breaker.last_error))

    def record_abandoned(self, name: str) -> None:
        """A probe ended without success or failure; another one may try."""
        breaker = self.failing.get(name)
        if breaker is not None:
            breaker.probing = False

    def _is_open(self, name: str) -> bool:
        breaker = self.failing.get(name)
        return breaker is not None and breaker.opened_at is not None

    def reset(self, name: str) -> bool:
        """Close the circuit of a capability and forget its failures; returns whether there were any."""
        breaker = self.failing.pop(name, None)
        if breaker is not None and breaker.opened_at is not None and self.on_change is not None:
            self.on_change(name, None)
        return breaker is not None

    def follow(self, name: str, opened: tuple[float, str] | None) -> None:
        """Open or close a circuit as another replica did."""
        if opened is None:
            self.failing.pop(name, None)
            return
        breaker = self.failing.setdefault(name, Breaker())
        breaker.pause, breaker.last_error = opened
        breaker.failures.setdefault("another replica", self.settings.failures)
        breaker.opened_at, breaker.probing = self._clock(), False

    def states(self) -> dict[str, BreakerState]:
        """The breakers of capabilities with failures, by name."""
        return {
            name: BreakerState(self._state(breaker), max(breaker.failures.values()), breaker.last_error)
            for name, breaker in sorted(self.failing.items())
        }

    def _state(self, breaker: Breaker) -> Literal["closed", "open", "half_open"]:
        if breaker.opened_at is None:
            return "closed"
        return "open" if self._clock() < breaker.opened_at + breaker.pause else "half_open"
