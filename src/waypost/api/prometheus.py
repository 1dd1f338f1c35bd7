"""Metrics as Prometheus reads them: the text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from waypost.api.metrics import Metrics
from waypost.execution.counters import Counters

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


def exposition(metrics: Metrics, counters: Counters) -> str:
    """All metrics as text."""
    parts = (*_of_the_hub(metrics), *_of_calls(counters))
    return "".join(line + "\n" for part in parts for line in part)


def _of_the_hub(metrics: Metrics) -> Iterable[list[str]]:
    system, store = metrics.system, metrics.store
    yield _family("info", "gauge", "Which hub this is.", [({"version": system.version}, 1)])
    yield _family("uptime_seconds", "gauge", "Seconds since the hub was made.", [({}, system.uptime_seconds)])
    yield _family("memory_bytes", "gauge", "Memory of the process.", [({}, system.memory_bytes)])
    yield _family("tools_registered", "gauge", "Tools in the list.", [({}, metrics.mcp.tools_registered)])
    yield _family("skills_registered", "gauge", "Executable skills.", [({}, metrics.skills.total_registered)])
    yield _family("skills_active", "gauge", "Skills whose breaker is not open.", [({}, metrics.skills.active)])
    breakers = metrics.skills.circuit_breakers.items()
    yield _family(
        "circuit_breaker_open",
        "gauge",
        "Whether a breaker lets nobody through.",
        [({"capability": name}, one.state == "open") for name, one in breakers],
    )
    yield _family(
        "circuit_breaker_failures",
        "gauge",
        "Failures in a row.",
        [({"capability": name}, one.failure_count) for name, one in breakers],
    )
    workflows = {"total": metrics.workflows.total, "running": metrics.workflows.running}
    workflows |= {"completed": metrics.workflows.completed, "failed": metrics.workflows.failed}
    yield _family(
        "workflows", "gauge", "Workflow instances.", [({"status": name}, count) for name, count in workflows.items()]
    )
    yield _family("sessions_open", "gauge", "Sessions that are open here.", [({}, metrics.sessions.open)])
    yield _family("store_up", "gauge", "Whether the store can be used.", [({}, store.status == "ok")])
    kept = {"instances": store.instances, "tasks": store.tasks, "sessions": store.sessions}
    yield _family(
        "store_records", "gauge", "Records in the store.", [({"kind": kind}, count) for kind, count in kept.items()]
    )


def _of_calls(counters: Counters) -> Iterable[list[str]]:
    calls = counters.calls().items()
    yield _family(
        "calls_total",
        "counter",
        "Calls by capability and outcome.",
        [({"capability": name, "outcome": outcome}, count) for (name, outcome), count in calls],
    )
    denied = sum(count for (_, outcome), count in calls if outcome == "denied")
    yield _family("denials_total", "counter", "Calls that were denied.", [({}, denied)])
    yield _histogram("call_duration_seconds", "How long calls took.", counters)


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
