"""The metrics of a hub, as JSON and in the Prometheus text format (version 0.0.4)."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from waypost.api.routing import ManagedHub
from waypost.capabilities.capability import Kind
from waypost.capabilities.principals import Principal
from waypost.errors import StoreError
from waypost.execution.pipeline import Counters
from waypost.version import __version__

_STATM: Final = Path("/proc/self/statm")
MAX_ERROR_CHARACTERS: Final = 200
_SKILL: Final = "skill:"


class System(msgspec.Struct, frozen=True):
    """The process."""

    version: str
    uptime_seconds: float
    memory_bytes: int
    loop_stalls: int
    loop_stall_seconds: float


class Workflows(msgspec.Struct, frozen=True):
    """Workflow instances."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    running: int = 0


class CircuitBreaker(msgspec.Struct, frozen=True):
    """The breaker of a capability that failed recently."""

    state: Literal["closed", "open", "half_open"]
    failure_count: int
    last_error: str


class SkillCounts(msgspec.Struct, frozen=True):
    """Executable skills, and the circuit breakers of all capabilities."""

    active: int
    total_registered: int
    circuit_breakers: dict[str, CircuitBreaker]


class Mcp(msgspec.Struct, frozen=True):
    """What MCP clients see."""

    status: str
    tools_registered: int


class Calls(msgspec.Struct, frozen=True):
    """Calls since the hub started."""

    total: int
    denied: int
    seconds: float
    outcomes: dict[str, int]


class StoreCounts(msgspec.Struct, frozen=True):
    """The store, and the number of its records."""

    status: Literal["ok", "unavailable"]
    instances: int = 0
    tasks: int = 0
    sessions: int = 0


class Sessions(msgspec.Struct, frozen=True):
    """Sessions that are open on this hub."""

    open: int


class TaskCounts(msgspec.Struct, frozen=True):
    """Tasks in the store."""

    total: int


class ReplicaCounts(msgspec.Struct, frozen=True):
    """The replicas that share the store, as this one sees them."""

    replica: str
    """The id of this replica."""
    config: str
    """The digest of its configuration."""
    bus: Literal["ok", "degraded", "down"]
    count: int
    heartbeat_ages: dict[str, float]
    """Seconds since the last heartbeat of each other replica, by the clock of the database."""


class Metrics(msgspec.Struct, frozen=True):
    """All metrics."""

    system: System
    workflows: Workflows
    skills: SkillCounts
    mcp: Mcp
    calls: Calls
    sessions: Sessions
    tasks: TaskCounts
    store: StoreCounts
    replicas: ReplicaCounts


async def collect_metrics(hub: ManagedHub, counters: Counters, principal: Principal) -> Metrics:
    """The metrics of a hub now; the tools that count are those that `principal` would see."""
    store = await _count_records(hub)
    outcomes = counters.by_outcome()
    return Metrics(
        System(
            __version__,
            round(counters.uptime, 3),
            resident_bytes(),
            counters.stalls,
            round(counters.stall_seconds, 3),
        ),
        _count_workflows(hub, store.instances),
        _count_skills(hub),
        Mcp("running", _count_tools(hub, principal)),
        Calls(sum(outcomes.values()), outcomes.get("denied", 0), round(counters.seconds, 6), outcomes),
        Sessions(len(hub.core.engine.sessions)),
        TaskCounts(store.tasks),
        store,
        _count_replicas(hub),
    )


def resident_bytes() -> int:
    """The resident memory of the process, or its peak on systems that report only that."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # In bytes on macOS, in kilobytes elsewhere.
        return most if sys.platform == "darwin" else most * 1024


def _count_workflows(hub: ManagedHub, total: int) -> Workflows:
    if not hub.has_workflows:
        return Workflows(total)
    engine = hub.workflows.engine
    ended = engine.recorder.ended
    running = len({*engine.runner.busy, *engine.runner.running.values()})
    return Workflows(total, ended["succeeded"], ended["failed"], running)


def _count_replicas(hub: ManagedHub) -> ReplicaCounts:
    me, others, now = hub.replicas.describe(), hub.replicas.others, hub.core.store.now()
    ages = {other.id: round(max(0.0, now - other.last_seen_at), 3) for other in others.values()}
    return ReplicaCounts(me.id, me.config_digest, hub.core.bus.health, 1 + len(others), ages)


def _count_tools(hub: ManagedHub, principal: Principal) -> int:
    engine, table = hub.core.engine, hub.core.registry[Kind.TOOL]
    only, is_same_for_all = engine.lists.only, not engine.hides and not table.scoped
    # Where all principals see the same, tools need not be checked one by one.
    if only is None and is_same_for_all:
        return len(table) - table.hidden
    rows = table if only is None else filter(None, map(table.get, only))
    return sum(is_same_for_all or engine.can_see(principal, row) for row in rows if not row.metadata.hidden)


def _count_skills(hub: ManagedHub) -> SkillCounts:
    guards = hub.core.guard.breakers
    breakers = {
        name: CircuitBreaker(breaker.state, breaker.failure_count, breaker.last_error[:MAX_ERROR_CHARACTERS])
        for name, breaker in ({} if guards is None else guards.states()).items()
    }
    sorted_after = hub.core.registry[Kind.TOOL].after(_SKILL)
    names = [row.id for row in takewhile(lambda row: row.id.startswith(_SKILL), sorted_after)]
    open_count = sum(name in breakers and breakers[name].state == "open" for name in names)
    return SkillCounts(len(names) - open_count, len(names), breakers)


async def _count_records(hub: ManagedHub) -> StoreCounts:
    if await hub.core.store.health() != "ok":
        return StoreCounts("unavailable")
    try:
        return StoreCounts("ok", **await hub.core.store.counts())
    except StoreError:
        return StoreCounts("unavailable")


CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def format_metrics(metrics: Metrics, counters: Counters) -> str:
    """All metrics in the text format of Prometheus."""
    parts = (*_hub_families(metrics), *_call_families(counters))
    return "".join(line + "\n" for part in parts for line in part)


def _hub_families(metrics: Metrics) -> Iterable[list[str]]:
    system, skills, store, ran = metrics.system, metrics.skills, metrics.store, metrics.workflows
    yield _family("info", "gauge", "The version of the hub.", {system.version: 1}, "version")
    yield _family("uptime_seconds", "gauge", "Seconds since the hub was created.", system.uptime_seconds)
    yield _family("memory_bytes", "gauge", "Memory of the process.", system.memory_bytes)
    yield _family("loop_stalls_total", "counter", "Turns of the event loop that took too long.", system.loop_stalls)
    yield _family("loop_stall_seconds_total", "counter", "How long they took together.", system.loop_stall_seconds)
    yield _family("tools_registered", "gauge", "Tools that are listed.", metrics.mcp.tools_registered)
    yield _family("skills_registered", "gauge", "Executable skills.", skills.total_registered)
    yield _family("skills_active", "gauge", "Skills whose breaker is not open.", skills.active)
    opened = {name: one.state == "open" for name, one in skills.circuit_breakers.items()}
    yield _family("circuit_breaker_open", "gauge", "Whether a circuit breaker is open.", opened, "capability")
    failures = {name: one.failure_count for name, one in skills.circuit_breakers.items()}
    yield _family("circuit_breaker_failures", "gauge", "Consecutive failures.", failures, "capability")
    runs = {"total": ran.total, "running": ran.running, "completed": ran.completed, "failed": ran.failed}
    yield _family("workflows", "gauge", "Workflow instances.", runs, "status")
    yield _family("sessions_open", "gauge", "Sessions that are open on this hub.", metrics.sessions.open)
    yield _family("store_up", "gauge", "Whether the store is available.", store.status == "ok")
    records = {"instances": store.instances, "tasks": store.tasks, "sessions": store.sessions}
    yield _family("store_records", "gauge", "Records in the store.", records, "kind")
    yield from _replica_families(metrics)


def _replica_families(metrics: Metrics) -> Iterable[list[str]]:
    found = metrics.replicas
    me = {(found.replica, metrics.system.version, found.config): 1}
    text = "This replica, and the digest of its configuration."
    yield _family("replica_info", "gauge", text, me, "replica", "version", "config")
    yield _family("replicas", "gauge", "Replicas that are alive, this one among them.", found.count)
    yield _family("bus_up", "gauge", "Whether messages reach other replicas.", found.bus == "ok")
    text = "Seconds since another replica was last seen."
    yield _family("replica_heartbeat_age_seconds", "gauge", text, found.heartbeat_ages, "replica")


def _call_families(counters: Counters) -> Iterable[list[str]]:
    calls = counters.calls()
    yield _family("calls_total", "counter", "Calls by capability and outcome.", calls, "capability", "outcome")
    denied = sum(count for (_, outcome), count in calls.items() if outcome == "denied")
    yield _family("denials_total", "counter", "Denied calls.", denied)
    yield _histogram("call_duration_seconds", "Duration of calls.", counters)


def _family(
    name: str, kind: Literal["gauge", "counter"], text: str, values: float | Mapping[Any, float], *labels: str
) -> list[str]:
    """A family of one value, or of one for each value of a label or of several."""
    if not isinstance(values, Mapping):
        return [*_head(name, kind, text), _sample(name, {}, values)]
    named = [((key,) if len(labels) == 1 else key, value) for key, value in values.items()]
    return [*_head(name, kind, text), *(_sample(name, dict(zip(labels, key, strict=True)), v) for key, v in named)]


def _histogram(name: str, text: str, counters: Counters) -> list[str]:
    buckets = counters.buckets()
    return [
        *_head(name, "histogram", text),
        *(_sample(f"{name}_bucket", {"le": _number(bound)}, count) for bound, count in buckets.items()),
        _sample(f"{name}_sum", {}, counters.seconds),
        _sample(f"{name}_count", {}, buckets[float("inf")]),
    ]


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP waypost_{name} {text}", f"# TYPE waypost_{name} {kind}"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
    return f"waypost_{name}{{{pairs}}} {_number(value)}" if pairs else f"waypost_{name} {_number(value)}"


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
