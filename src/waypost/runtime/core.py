"""The core of a running hub: what every component may use, built once and never changed."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from waypost.buses import Bus, LocalBus, choose_bus_url, create_bus
from waypost.capabilities.registry import Registry
from waypost.execution.breakers import Breakers
from waypost.execution.budgets import Budgets
from waypost.execution.history import CallHistory
from waypost.execution.limits import Bulkheads, SharedBulkheads
from waypost.execution.pipeline import Pipeline
from waypost.execution.pool import Pool
from waypost.policy.anchors import Anchors
from waypost.policy.audit import AuditChains, AuditLog, writer
from waypost.policy.capability_tokens import CapabilityTokens
from waypost.policy.guard import PolicyGuard
from waypost.policy.rules import Policy, Rule
from waypost.protocol import methods
from waypost.protocol.engine import Engine, Host
from waypost.protocol.relay import Relay
from waypost.settings import Settings
from waypost.stores import urls
from waypost.stores.directory import Secret, data_directory
from waypost.stores.store import Store


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How a process runs a hub; each transport and each command of the CLI says so once."""

    data_dir: Path | None = None
    """The data directory; left out, `WAYPOST_DATA` or `.waypost` beside the program."""
    durable: bool = False
    """Whether a hub without a store of its own keeps one in the data directory instead of in memory."""
    address: str | None = None
    """The address that HTTP listens on; `None` where there is no listening socket of ours."""
    serves_http: bool = False
    """Whether clients come over HTTP: keys of the store count, and the secret outlives the process."""
    opens_worker_port: bool = True
    """Whether the worker socket is opened; stdio and one-shot commands open no port."""
    is_follower: bool = False
    """Whether another process of this machine, which serves the same hub, opens the worker socket instead."""
    inherited_socket: int | None = None
    """The file descriptor of a bound socket to listen on; another process keeps it open when this one is replaced."""
    log_requests: bool = False
    """Whether each HTTP request is logged, whatever the settings say."""
    resume_runs: bool = True
    """Whether workflow instances that an earlier process left are taken up again."""

    @property
    def has_workers(self) -> bool:
        """Whether workers may connect here, or to the process that opens the worker socket instead."""
        return self.opens_worker_port or self.is_follower


class Core(msgspec.Struct, frozen=True):
    """Everything below the components."""

    settings: Settings
    data_dir: Path
    secret: Secret
    store: Store
    bus: Bus
    replica: str
    """The id of this process among the replicas on one store."""
    budgets: Budgets | None
    """This replica's parts of the limits of all replicas; `None` where the store is not shared."""
    registry: Registry
    pipeline: Pipeline
    history: CallHistory
    guard: PolicyGuard
    chains: AuditChains
    engine: Engine
    clock: Callable[[], float]
    spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
    """Run a coroutine in the background; `stop` waits for it."""


class CoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a program gives a hub beside its settings."""

    store: Store | str | None = None
    secret: bytes | None = None
    rules: tuple[Rule, ...] = ()
    breakers: bool = False


def build_core(host: Host, registry: Registry, settings: Settings, options: CoreOptions, launch: Launch) -> Core:
    """Build the core; nothing is opened, read or started."""
    data_dir = launch.data_dir or data_directory()
    server = settings.server
    store = _build_store(options.store, data_dir, launch.durable, settings.store.timeout_ms / 1000)
    limits = settings.limits
    bus = create_bus(choose_bus_url(settings.bus.url, store.database.bus_url), settings.cluster.id)
    replica = secrets.token_hex(6)
    budgets = Budgets(store, bus, replica) if store.database.is_shared else None
    counts = server.max_running, server.max_waiting
    pipeline = Pipeline(
        registry,
        host,
        timeout=settings.tool_timeout,
        slots=Bulkheads(*counts) if budgets is None else SharedBulkheads(*counts, budgets),
        pool=Pool(limits.max_threads, max_stuck=limits.max_stuck_threads),
    )
    engine = Engine(host, registry, pipeline, settings, store, options.secret)
    # Set from here, because `methods` imports the engine.
    engine.tasks.run_again = partial(methods.call_again, engine)
    secret = Secret(data_dir, options.secret)
    anchors = Anchors(store, settings.audit.anchor, engine.background)
    chains = AuditChains(store, secret, data_dir, anchors, settings.audit.max_bytes, settings.audit.retention_s)
    sink = writer(settings.audit.sink, chains, data_dir)
    guard = PolicyGuard(
        Policy(options.rules, budgets=budgets),
        # Without a given secret, tokens and the engine's seal have a random one, until a start that serves HTTP
        # reads the secret of the hub.
        tokens=CapabilityTokens(options.secret),
        audit=None if sink is None else AuditLog(sink, engine.background),
        breakers=Breakers(settings.breakers) if options.breakers else None,
        counters=pipeline.counters,
    )
    pipeline.guard = guard
    if store.database.is_shared and not isinstance(bus, LocalBus):
        engine.sessions.liveness.relay = Relay(bus, engine)
    return Core(
        settings,
        data_dir,
        secret,
        store,
        bus,
        replica,
        budgets,
        registry,
        pipeline,
        CallHistory(pipeline.counters),
        guard,
        chains,
        engine,
        time.time,
        engine.background,
    )


def _build_store(given: Store | str | None, data_dir: Path, durable: bool, timeout: float) -> Store:
    if isinstance(given, Store):
        return given
    return Store(urls.create_database(given or (urls.DEFAULT if durable else urls.MEMORY), data_dir, timeout))
