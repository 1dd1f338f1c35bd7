"""Circuit breakers of capabilities that failed recently."""

from __future__ import annotations

from typing import Final

import msgspec

from waypost.api.routing import Listing, ManagedHub
from waypost.errors import InvalidParams
from waypost.execution.breakers import BreakerState
from waypost.suggestions import did_you_mean


class KnownBreaker(msgspec.Struct, frozen=True, rename="camel"):
    """The breaker of a capability that failed recently."""

    capability: str
    state: str
    failure_count: int
    last_error: str
    callers: list[str]
    """Whose calls are refused; empty when those of all callers are, or none."""


class KnownBreakers(Listing, frozen=True):
    """The breakers of all capabilities that failed recently, by name."""

    breakers: list[KnownBreaker]


class ResetBreaker(msgspec.Struct, frozen=True):
    """A breaker that was closed by an operator."""

    capability: str
    state: str = "closed"


async def list_breakers(hub: ManagedHub) -> KnownBreakers:
    """List the circuit breakers of capabilities that failed recently."""
    return KnownBreakers([KnownBreaker(name, *state) for name, state in _states(hub).items()])


async def reset_breaker(hub: ManagedHub, name: str) -> ResetBreaker:
    """Close the circuit breaker of a capability, so that it is called again at once."""
    known = _states(hub)
    if name not in known:
        raise InvalidParams(f"No failures of {name!r} are counted{did_you_mean(name, known, '; ') or '.'}")
    hub.core.guard.reset_breaker(name)
    return ResetBreaker(name)


def find_breaker(hub: ManagedHub, name: str) -> KnownBreaker | None:
    """The circuit breaker of a capability that failed recently."""
    state = _states(hub).get(name)
    return None if state is None else KnownBreaker(name, *state)


def _states(hub: ManagedHub) -> dict[str, BreakerState]:
    breakers = hub.core.guard.breakers
    return {} if breakers is None else breakers.states()


LIST: Final = KnownBreakers([KnownBreaker("reports.render", "open", 3, "OSError: no route to host", [])])
RESET: Final = ResetBreaker("reports.render")
