"""Circuit breakers: a capability that keeps failing for the same cause is not called for a while, then tried once.

One caller alone cannot open a circuit for the others: its own failures, which may come from what it asks for, stop its
own calls. Failures of several callers in a row are those of the capability, and stop the calls of all.
"""

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

EVERYONE: Final = ""
"""Stands for all callers, whose ids are never empty."""

MAX_STOPPED_CALLERS: Final = 100
"""Circuits of single callers that are kept for a capability; the oldest is closed first."""


class BreakerState(NamedTuple):
    """What operators see of a breaker."""

    state: Literal["closed", "open", "half_open"]
    failure_count: int
    last_error: str
    callers: list[str]
    """Whose calls are refused; empty when those of all callers are, or none."""


class CircuitChange(NamedTuple):
    """What other replicas learn of a circuit that opened or closed."""

    caller: str
    pause: float = 0.0
    """Zero when it closed."""
    failures: int = 0
    cause: str = ""
    error: str = ""
    prober: str = ""


class Circuit:
    """The open circuit of one caller, or of all."""

    __slots__ = ("cause", "failures", "opened_at", "pause", "prober", "probing")

    def __init__(self, pause: float, opened_at: float, failures: int, cause: str, prober: str = "") -> None:
        self.pause = pause
        """Seconds from opening to the next probe; doubled each time a probe fails."""
        self.opened_at = opened_at
        self.failures = failures
        self.cause = cause
        self.prober = prober
        """The caller whose probe failed last."""
        self.probing = False


class Breaker:
    """The breaker of one capability."""

    __slots__ = ("circuits", "failures", "last_error")

    def __init__(self) -> None:
        self.failures: dict[str, dict[str, int]] = {}
        """Failures in a row, which no success of any caller interrupted, by cause and caller."""
        self.last_error = ""
        self.circuits: dict[str, Circuit] = {}
        """Open circuits by caller; that of `EVERYONE` stands alone."""

    def find_circuit(self, caller: str) -> Circuit | None:
        """The open circuit that refuses a caller."""
        return self.circuits.get(EVERYONE) or self.circuits.get(caller)

    def stop_caller(self, caller: str, circuit: Circuit) -> None:
        """Open the circuit of one caller; beyond a limit the oldest is closed."""
        self.circuits[caller] = circuit
        if len(self.circuits) > MAX_STOPPED_CALLERS:
            del self.circuits[next(iter(self.circuits))]


class Breakers:
    """Breakers by capability; one that never failed has none."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self.failing: dict[str, Breaker] = {}
        """The capabilities whose last call failed."""
        self.on_change: Callable[[str, CircuitChange], None] | None = None
        """Called when a circuit opens or closes."""

    def enter(self, name: str, caller: str) -> bool:
        """Let a call through, or raise `CircuitOpen`; returns whether the call is the probe of an open circuit.

        While a circuit is open only its probe counts: calls that began before it opened may still end.
        """
        breaker = self.failing.get(name)
        circuit = None if breaker is None else breaker.find_circuit(caller)
        if circuit is None:
            return False
        left = circuit.opened_at + circuit.pause - self._clock()
        # Others come first: a caller whose probes always fail must not keep the circuit open for all.
        if circuit.prober == caller:
            left += circuit.pause
        if left > 0 or circuit.probing:
            raise CircuitOpen(f"Circuit open for {name}, retry in {max(ceil(left), 1)} s", name)
        circuit.probing = True
        return True

    def record_success(self, name: str, caller: str, *, is_probe: bool = True) -> None:
        """A call succeeded: close the circuit that it probed, and count failures anew."""
        breaker = self.failing.get(name)
        if breaker is None:
            return
        if breaker.find_circuit(caller) is not None:
            if not is_probe:
                return
            closed = EVERYONE if EVERYONE in breaker.circuits else caller
            del breaker.circuits[closed]
            if self.on_change is not None:
                self.on_change(name, CircuitChange(closed))
        breaker.failures.clear()
        if not breaker.circuits:
            del self.failing[name]

    def record_failure(self, name: str, caller: str, cause: str, reason: str, *, is_probe: bool = True) -> None:
        """A call failed: count it, and open the circuit after too many in a row of the same cause."""
        breaker = self.failing.setdefault(name, Breaker())
        circuit = breaker.find_circuit(caller)
        if circuit is not None and not is_probe:
            return
        breaker.last_error = replace_surrogates(reason)
        row = breaker.failures.setdefault(cause, {})
        row[caller] = row.get(caller, 0) + 1
        limit, now = self.settings.failures, self._clock()
        if circuit is not None and EVERYONE in breaker.circuits:
            self._open_again(circuit, now)
            circuit.prober = caller
            self._announce(name, breaker, EVERYONE)
        # As many callers as the limit, and at least two: one alone never stops the calls of others.
        elif limit and len(row) >= max(limit, 2):
            breaker.circuits = {EVERYONE: Circuit(self.settings.pause_ms / 1000, now, sum(row.values()), cause)}
            self._announce(name, breaker, EVERYONE)
        elif circuit is not None:
            self._open_again(circuit, now)
            self._announce(name, breaker, caller)
        elif limit and row[caller] >= limit:
            breaker.stop_caller(caller, Circuit(self.settings.pause_ms / 1000, now, row[caller], cause))
            self._announce(name, breaker, caller)

    def _open_again(self, circuit: Circuit, now: float) -> None:
        circuit.pause = min(circuit.pause * 2, self.settings.max_pause_ms / 1000)
        circuit.opened_at, circuit.probing = now, False
        circuit.failures += 1

    def _announce(self, name: str, breaker: Breaker, caller: str) -> None:
        if self.on_change is not None:
            one = breaker.circuits[caller]
            change = CircuitChange(caller, one.pause, one.failures, one.cause, breaker.last_error, one.prober)
            self.on_change(name, change)

    def record_abandoned(self, name: str, caller: str) -> None:
        """A probe ended without success or failure; another one may try."""
        breaker = self.failing.get(name)
        circuit = None if breaker is None else breaker.find_circuit(caller)
        if circuit is not None:
            circuit.probing = False

    def reset(self, name: str) -> bool:
        """Close the circuits of a capability and forget its failures; returns whether there were any."""
        breaker = self.failing.pop(name, None)
        if breaker is not None and breaker.circuits and self.on_change is not None:
            self.on_change(name, CircuitChange(EVERYONE))
        return breaker is not None

    def follow(self, name: str, change: CircuitChange) -> None:
        """Open or close a circuit as another replica did."""
        if not change.pause and change.caller == EVERYONE:
            self.failing.pop(name, None)
            return
        breaker = self.failing.setdefault(name, Breaker())
        if not change.pause:
            breaker.circuits.pop(change.caller, None)
            breaker.failures.clear()
            if not breaker.circuits:
                del self.failing[name]
            return
        breaker.last_error = change.error
        # The pause counts from here: monotonic clocks of two processes have nothing in common.
        circuit = Circuit(change.pause, self._clock(), change.failures, change.cause, change.prober)
        if change.caller == EVERYONE:
            breaker.circuits = {EVERYONE: circuit}
        elif EVERYONE not in breaker.circuits:
            # Callers of different replicas that fail for one cause count together.
            breaker.failures.setdefault(change.cause, {})[change.caller] = change.failures
            breaker.stop_caller(change.caller, circuit)

    def states(self) -> dict[str, BreakerState]:
        """The breakers of capabilities with failures, by name."""
        return {name: self._state(breaker) for name, breaker in sorted(self.failing.items())}

    def _state(self, breaker: Breaker) -> BreakerState:
        circuits = breaker.circuits
        if not circuits:
            count = max(sum(row.values()) for row in breaker.failures.values())
            return BreakerState("closed", count, breaker.last_error, [])
        now = self._clock()
        is_open = any(now < one.opened_at + one.pause for one in circuits.values())
        count = max(one.failures for one in circuits.values())
        callers = sorted(circuits.keys() - {EVERYONE})
        return BreakerState("open" if is_open else "half_open", count, breaker.last_error, callers)
