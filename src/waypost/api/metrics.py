"""The metrics of a hub, as JSON and in the Prometheus text format (version 0.0.4)."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from waypost.api.routing import ManagedHub
from waypost.capabilities.capability import Kind
from waypost.capabilities.principals import Principal
from waypost.errors import StoreError
from waypost.execution.counters import Counters
from waypost.version import __version__

_STATM: Final = Path("/proc/self/statm")
MAX_ERROR_CHARACTERS: Final = 200


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
    )


def resident_bytes() -> int:
    """The resident memory of the process, or its peak on systems that report only that."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def _count_workflows(hub: ManagedHub, total: int) -> Workflows:
    if not hub.has_workflows:
        return Workflows(total)
    engine = hub.workflows.engine
    ended = engine.recorder.ended
    running = len({*engine.runner.busy, *engine.runner.running.values()})
    return Workflows(total, ended["succeeded"], ended["failed"], running)


def _count_tools(hub: ManagedHub, principal: Principal) -> int:
    only = hub.core.engine.settings.only_tools
    rows = (row for row in hub.core.registry[Kind.TOOL] if only is None or row.id in only)
    return sum(not row.metadata.hidden and hub.core.engine.can_see(principal, row) for row in rows)


def _count_skills(hub: ManagedHub) -> SkillCounts:
    guards = hub.core.guard.breakers
    breakers = {
        name: CircuitBreaker(breaker.state, breaker.failure_count, breaker.last_error[:MAX_ERROR_CHARACTERS])
        for name, breaker in ({} if guards is None else guards.states()).items()
    }
    names = [row.id for row in hub.core.registry[Kind.TOOL] if row.id.startswith("skill:")]
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

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


def format_metrics(metrics: Metrics, counters: Counters) -> str:
    """All metrics in the text format of Prometheus."""
    parts = (*_hub_families(metrics), *_call_families(counters))
    return "".join(line + "\n" for part in parts for line in part)


def _hub_families(metrics: Metrics) -> Iterable[list[str]]:
    system, store = metrics.system, metrics.store
    yield _family("info", "gauge", "The version of the hub.", [({"version": system.version}, 1)])
    yield _family("uptime_seconds", "gauge", "Seconds since the hub was created.", [({}, system.uptime_seconds)])
    yield _family("memory_bytes", "gauge", "Memory of the process.", [({}, system.memory_bytes)])
    yield _family(
        "loop_stalls_total", "counter", "Turns of the event loop that took too long.", [({}, system.loop_stalls)]
    )
    yield _family(
        "loop_stall_seconds_total", "counter", "How long they took together.", [({}, system.loop_stall_seconds)]
    )
    yield _family("tools_registered", "gauge", "Tools that are listed.", [({}, metrics.mcp.tools_registered)])
    yield _family("skills_registered", "gauge", "Executable skills.", [({}, metrics.skills.total_registered)])
    yield _family("skills_active", "gauge", "Skills whose breaker is not open.", [({}, metrics.skills.active)])
    breakers = metrics.skills.circuit_breakers.items()
    yield _family(
        "circuit_breaker_open",
        "gauge",
        "Whether a circuit breaker is open.",
        [({"capability": name}, one.state == "open") for name, one in breakers],
    )
    yield _family(
        "circuit_breaker_failures",
        "gauge",
        "Consecutive failures.",
        [({"capability": name}, one.failure_count) for name, one in breakers],
    )
    workflows = {"total": metrics.workflows.total, "running": metrics.workflows.running}
    workflows |= {"completed": metrics.workflows.completed, "failed": metrics.workflows.failed}
    yield _family(
        "workflows", "gauge", "Workflow instances.", [({"status": name}, count) for name, count in workflows.items()]
    )
    yield _family("sessions_open", "gauge", "Sessions that are open on this hub.", [({}, metrics.sessions.open)])
    yield _family("store_up", "gauge", "Whether the store is available.", [({}, store.status == "ok")])
    records = {"instances": store.instances, "tasks": store.tasks, "sessions": store.sessions}
    yield _family(
        "store_records", "gauge", "Records in the store.", [({"kind": kind}, count) for kind, count in records.items()]
    )


def _call_families(counters: Counters) -> Iterable[list[str]]:
    calls = counters.calls().items()
    yield _family(
        "calls_total",
        "counter",
        "Calls by capability and outcome.",
        [({"capability": name, "outcome": outcome}, count) for (name, outcome), count in calls],
    )
    denied = sum(count for (_, outcome), count in calls if outcome == "denied")
    yield _family("denials_total", "counter", "Denied calls.", [({}, denied)])
    yield _histogram("call_duration_seconds", "Duration of calls.", counters)


def _family(name: str, kind: Literal["gauge", "counter"], text: str, samples: Iterable[Sample]) -> list[str]:
    return [*_head(name, kind, text), *(_sample(name, labels, value) for labels, value in samples)]


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


def _sample(name: str, labels: Labels, value: float) -> str:
    pairs = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
    return f"waypost_{name}{{{pairs}}} {_number(value)}" if pairs else f"waypost_{name} {_number(value)}"


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
