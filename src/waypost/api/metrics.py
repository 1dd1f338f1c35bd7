"""How a hub is: what `/metrics` tells, as data."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from waypost.api.operated import Operated
from waypost.capabilities.capability import Kind
from waypost.capabilities.principals import Principal
from waypost.errors import StoreError
from waypost.execution.counters import Counters
from waypost.version import __version__

_STATM: Final = Path("/proc/self/statm")
_LONGEST_ERROR: Final = 200


class System(msgspec.Struct, frozen=True):
    """The process."""

    version: str
    uptime_seconds: float
    memory_bytes: int


class Workflows(msgspec.Struct, frozen=True):
    """Workflow instances."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    running: int = 0


class CircuitBreaker(msgspec.Struct, frozen=True):
    """The breaker of a capability that failed lately."""

    state: Literal["closed", "open", "half_open"]
    failure_count: int
    last_error: str


class SkillCounts(msgspec.Struct, frozen=True):
    """Executable skills, and the breakers of everything."""

    active: int
    total_registered: int
    circuit_breakers: dict[str, CircuitBreaker]


class Mcp(msgspec.Struct, frozen=True):
    """What clients see."""

    status: str
    tools_registered: int


class Calls(msgspec.Struct, frozen=True):
    """Calls since the start."""

    total: int
    denied: int
    seconds: float
    outcomes: dict[str, int]


class StoreCounts(msgspec.Struct, frozen=True):
    """The store, and how much is in it."""

    status: Literal["ok", "unavailable"]
    instances: int = 0
    tasks: int = 0
    sessions: int = 0


class Sessions(msgspec.Struct, frozen=True):
    """Sessions that are open here."""

    open: int


class TaskCounts(msgspec.Struct, frozen=True):
    """Tasks that can be asked about."""

    total: int


class Metrics(msgspec.Struct, frozen=True):
    """Everything."""

    system: System
    workflows: Workflows
    skills: SkillCounts
    mcp: Mcp
    calls: Calls
    sessions: Sessions
    tasks: TaskCounts
    store: StoreCounts


async def measured(hub: Operated, counters: Counters, principal: Principal) -> Metrics:
    """How the hub is now; tools are those that the one who asks would be listed."""
    store = await _store(hub)
    outcomes = counters.by_outcome()
    return Metrics(
        System(__version__, round(counters.uptime, 3), memory()),
        _workflows(hub, store.instances),
        _skills(hub),
        Mcp("running", _tools(hub, principal)),
        Calls(sum(outcomes.values()), outcomes.get("denied", 0), round(counters.seconds, 6), outcomes),
        Sessions(len(hub.engine.sessions)),
        TaskCounts(store.tasks),
        store,
    )


def memory() -> int:
    """How many bytes of memory the process has."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def _workflows(hub: Operated, total: int) -> Workflows:
    if not hub.has_workflows:
        return Workflows(total)
    engine = hub.workflows.engine
    ended = engine.recorder.ended
    running = len({*engine.chains.busy, *engine.moves.running.values()})
    return Workflows(total, ended["succeeded"], ended["failed"], running)


def _tools(hub: Operated, principal: Principal) -> int:
    only = hub.engine.settings.only_tools
    rows = (row for row in hub.registry[Kind.TOOL] if only is None or row.id in only)
    return sum(not row.hidden and hub.engine.shows(principal, row) for row in rows)


def _skills(hub: Operated) -> SkillCounts:
    states = {} if hub.guard.breakers is None else hub.guard.breakers.states()
    breakers = {name: _breaker(state) for name, state in states.items()}
    names = [row.id for row in hub.registry[Kind.TOOL] if row.id.startswith("skill:")]
    resting = sum(name in breakers and breakers[name].state == "open" for name in names)
    return SkillCounts(len(names) - resting, len(names), breakers)


def _breaker(state: Mapping[str, Any]) -> CircuitBreaker:
    return CircuitBreaker(state["state"], state["failure_count"], str(state["last_error"])[:_LONGEST_ERROR])


async def _store(hub: Operated) -> StoreCounts:
    if await hub.store.health() != "ok":
        return StoreCounts("unavailable")
    try:
        return StoreCounts("ok", **await hub.store.counts())
    except StoreError:
        return StoreCounts("unavailable")
