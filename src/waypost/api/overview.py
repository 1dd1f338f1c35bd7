"""The state of the hub in one answer: its health, what needs a person now, and the tokens of its surface."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import Annotated, Final, Literal
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Meta

from waypost.api.metrics import (
    Calls,
    CircuitBreaker,
    Mcp,
    Metrics,
    ReplicaCounts,
    Sessions,
    SkillCounts,
    StoreCounts,
    System,
    TaskCounts,
    Workflows,
    collect_metrics,
)
from waypost.api.routing import ManagedHub, Operator
from waypost.api.upstreams import list_upstreams
from waypost.api.workflows import list_approvals
from waypost.capabilities.capability import GATEWAY_TOOLS, Capability, Kind
from waypost.capabilities.registry import Registry
from waypost.execution.history import STEP_S
from waypost.workflows.resources import RunFilter, Runs

MAX_ITEMS: Final = 20
"""How many things of one kind are listed."""
CHARACTERS_PER_TOKEN: Final = 4
"""An estimate: tokenizers of current models need 3.5 to 4.5 characters of JSON for a token."""
_BATCH: Final = 500

Need = Literal["approval", "unknown_outcome", "failed_chain", "upstream_down", "held_definition", "open_breaker"]


class Attention(msgspec.Struct, frozen=True):
    """Something that waits for a person."""

    need: Need
    id: str
    text: str


class TokenCount(msgspec.Struct, frozen=True):
    """How many tools there are, and about how many tokens their definitions take in the context of an agent."""

    name: str
    tools: int
    tokens: int


class TokenMeter(msgspec.Struct, frozen=True):
    """What agents pay for the tools they are shown, beside the price of showing them everything."""

    surface: str
    published: TokenCount
    everything: TokenCount
    sources: list[TokenCount]
    """By the owner of the tools, the most expensive first."""
    surfaces: list[TokenCount] = []
    """What each value of `server.surface` would publish; `full` is every visible tool but those of the gateway."""


class Overview(msgspec.Struct, frozen=True):
    """The state of a hub."""

    status: Literal["ok", "degraded"]
    metrics: Metrics
    attention: list[Attention]
    tokens: TokenMeter


async def show_overview(hub: ManagedHub, by: Operator) -> Overview:
    """Show the state of the hub: metrics, what needs a person now, and the tokens of its surface."""
    metrics = await collect_metrics(hub, hub.core.pipeline.counters, by.principal)
    attention = [*await _find_waiting(hub, by), *await _find_upstream_problems(hub), *_find_open_breakers(metrics)]
    status: Literal["ok", "degraded"] = "ok" if metrics.store.status == "ok" else "degraded"
    return Overview(status, metrics, attention, await measure_tokens(hub))


async def _find_waiting(hub: ManagedHub, by: Operator) -> list[Attention]:
    if not hub.has_workflows:
        return []
    found = [
        Attention("approval", one["id"], f"{one['definitionId']}: {one['transition']} waits for the role {one['role']}")
        for one in (await list_approvals(hub, by)).approvals[:MAX_ITEMS]
    ]
    runs = Runs(hub.workflows.engine, hub.core.store)
    needs: tuple[tuple[Need, str, str], ...] = (
        ("unknown_outcome", "unknown_outcome", "the outcome of its last step is unknown"),
        ("failed_chain", "chain_failed", "a step that follows by itself failed"),
    )
    for need, status, text in needs:
        page = await runs.list(RunFilter(status=status), limit=MAX_ITEMS)
        found += [Attention(need, run["workflowId"], f"{run['definitionId']}: {text}") for run in page.runs]
    return found


async def _find_upstream_problems(hub: ManagedHub) -> list[Attention]:
    if hub.imports is None:
        return []
    found: list[Attention] = []
    for row in (await list_upstreams(hub)).upstreams:
        if row.state == "failed":
            found.append(Attention("upstream_down", row.connection, f"{row.connection} is down: {row.reason}"))
        if row.held:
            count = "1 definition that is" if len(row.held) == 1 else f"{len(row.held)} definitions that are"
            text = f"{row.connection} has {count} not approved"
            found.append(Attention("held_definition", row.connection, text))
    return found[:MAX_ITEMS]


def _find_open_breakers(metrics: Metrics) -> list[Attention]:
    breakers = metrics.skills.circuit_breakers.items()
    found = [
        Attention(
            "open_breaker",
            name,
            f"{name} failed once" if (count := breaker.failure_count) == 1 else f"{name} failed {count} times in a row",
        )
        for name, breaker in breakers
        if breaker.state == "open"
    ]
    return found[:MAX_ITEMS]


_sizes: Final[WeakKeyDictionary[Capability, int]] = WeakKeyDictionary()
"""The size of each definition, which never changes."""


def _measure(row: Capability) -> int:
    size = _sizes.get(row)
    if size is None:
        size = _sizes[row] = len(msgspec.json.encode(row.definition))
    return size


def count_tokens(row: Capability) -> int:
    """About how many tokens the definition of a capability takes in the context of an agent."""
    return -(-_measure(row) // CHARACTERS_PER_TOKEN)


_meters: Final[WeakKeyDictionary[Registry, tuple[int, object, TokenMeter]]] = WeakKeyDictionary()
"""What was measured last, with the revision of the tools and which of them are listed."""


async def measure_tokens(hub: ManagedHub) -> TokenMeter:
    """Estimate the tokens of what is listed and of everything, without holding the event loop for long."""
    only, registry = hub.core.engine.lists.only, hub.core.registry
    revision, listed, meter = _meters.get(registry, (-1, None, None))
    if meter is None or revision != registry[Kind.TOOL].revision or listed is not only:
        revision = registry[Kind.TOOL].revision  # before: what changes meanwhile is measured next time
        meter = await _measure_all(hub, only)
        _meters[registry] = (revision, only, meter)
    return meter


async def _measure_all(hub: ManagedHub, only: Container[str] | None) -> TokenMeter:
    published, everything, gateway, full = [0, 0], [0, 0], [0, 0], [0, 0]
    sources: dict[str, list[int]] = {}
    # A copy, because tools may change during each pause.
    for place, row in enumerate(list(hub.core.registry[Kind.TOOL])):
        if place % _BATCH == _BATCH - 1:
            await asyncio.sleep(0)
        size = _measure(row)
        groups = [everything, sources.setdefault(row.owner or "hub", [0, 0])]
        if not row.metadata.hidden and (only is None or row.id in only):
            groups.append(published)
        if not row.metadata.hidden:
            groups.append(gateway if row.id in GATEWAY_TOOLS else full)
        for group in groups:
            group[0] += 1
            group[1] += size
    counts = [_to_count(name, group) for name, group in sources.items()]
    return TokenMeter(
        hub.core.settings.server.surface,
        _to_count("published", published),
        _to_count("everything", everything),
        sorted(counts, key=lambda count: -count.tokens)[:MAX_ITEMS],
        _count_surfaces(gateway, full),
    )


def _count_surfaces(gateway: list[int], full: list[int]) -> list[TokenCount]:
    counts = [_to_count("full", full)]
    if gateway[0]:  # a hub that publishes everything does not have the tools of the gateway
        both = [own + other for own, other in zip(gateway, full, strict=True)]
        counts = [_to_count("gateway", gateway), *counts, _to_count("both", both)]
    return counts


def _to_count(name: str, group: list[int]) -> TokenCount:
    return TokenCount(name, group[0], -(-group[1] // CHARACTERS_PER_TOKEN))


_COUNT: Final = TokenCount("everything", 120, 41_000)
OVERVIEW: Final = Overview(
    "ok",
    Metrics(
        System("1.0.0", 86_400.0, 80_000_000, 0, 0.0),
        Workflows(12, 10, 1, 1),
        SkillCounts(2, 3, {"skill:shell": CircuitBreaker("open", 5, "no")}),
        Mcp("running", 9),
        Calls(1000, 2, 12.5, {"ok": 990, "error": 8, "denied": 2}),
        Sessions(3),
        TaskCounts(0),
        StoreCounts("ok", 12, 0, 3),
        ReplicaCounts("5f0c9d7e21ab", "9b1c52d0e4aa", "ok", 2, {"0a4f6b11c2de": 0.4}),
    ),
    [Attention("open_breaker", "skill:shell", "skill:shell failed 5 times in a row")],
    TokenMeter("gateway", TokenCount("published", 7, 2_000), _COUNT, [_COUNT], [TokenCount("gateway", 7, 2_000)]),
)


# The plots


class CallsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of the hour to show."""

    after: Annotated[float, Meta(ge=0, description="A Unix time; only steps that ended after it are shown")] = 0.0


class CallSteps(msgspec.Struct, frozen=True):
    """Calls in steps of some seconds, in columns of equal length, the oldest step first.

    Only calls under a rule, a permission or an audit are timed; where none was, the quantiles are null.
    """

    step: float
    at: list[float]
    calls: list[int]
    errors: list[int]
    p50: list[float | None]
    p99: list[float | None]


async def list_calls(hub: ManagedHub, query: CallsQuery) -> CallSteps:
    """List the calls of the last hour: how many, how many failed, and the median and 99th percentile of their time."""
    samples = hub.core.history.samples(query.after)
    return CallSteps(
        STEP_S,
        [one.at for one in samples],
        [one.calls for one in samples],
        [one.errors for one in samples],
        [one.p50 for one in samples],
        [one.p99 for one in samples],
    )


HISTORY: Final = CallSteps(STEP_S, [1861920000.0], [120], [1], [0.002], [0.04])
