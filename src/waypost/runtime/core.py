"""The core of a running hub: what every component may use, built once and never changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from waypost.buses import Bus, LocalBus
from waypost.capabilities.names import GATEWAY_TOOLS
from waypost.capabilities.registry import Registry
from waypost.execution.breakers import Breakers
from waypost.execution.pipeline import Pipeline
from waypost.execution.pool import Pool
from waypost.execution.shares import Bulkheads
from waypost.policy.audit import AuditLog, writer
from waypost.policy.guard import PolicyGuard, build_guard
from waypost.policy.rules import Rule
from waypost.protocol.engine import Engine, EngineSettings
from waypost.protocol.profile import Host
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
    opens_worker_port: bool = True
    """Whether the worker socket is opened; stdio and one-shot commands open no port."""
    resume_runs: bool = True
    """Whether workflow instances that an earlier process left are taken up again."""


@dataclass(frozen=True, slots=True)
class Core:
    """Everything below the components."""

    settings: Settings
    data_dir: Path
    secret: Secret
    store: Store
    bus: Bus
    registry: Registry
    pipeline: Pipeline
    guard: PolicyGuard
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
    store = _build_store(options.store, data_dir, launch.durable)
    limits = settings.limits
    pipeline = Pipeline(
        registry,
        host,
        timeout=settings.tool_timeout,
        slots=Bulkheads(server.max_running, server.max_waiting),
        pool=Pool(limits.max_threads, max_stuck=limits.max_stuck_threads),
    )
    engine = Engine(
        host,
        registry,
        pipeline,
        EngineSettings(
            page_size=server.page_size,
            portable_names=server.names == "portable",
            session_idle=server.session_idle_ms / 1000,
            max_sessions=server.max_sessions,
            max_tasks=server.max_tasks,
            secret=options.secret,
            task_after=server.task_after_ms / 1000,
            max_result=server.max_result_bytes,
            limits=limits,
            only_tools=GATEWAY_TOOLS if server.surface == "gateway" else None,
        ),
        store,
    )
    guard = build_guard(
        options.rules,
        _build_audit(settings, store, data_dir, engine),
        secret=options.secret,
        counters=pipeline.counters,
        breakers=Breakers(settings.breakers) if options.breakers else None,
    )
    pipeline.guard = guard
    return Core(
        settings,
        data_dir,
        Secret(data_dir, options.secret),
        store,
        LocalBus(),
        registry,
        pipeline,
        guard,
        engine,
        time.time,
        engine.background,
    )


def _build_store(given: Store | str | None, data_dir: Path, durable: bool) -> Store:
    if isinstance(given, Store):
        return given
    return Store(urls.create_database(given or (urls.DEFAULT if durable else urls.MEMORY), data_dir))


def _build_audit(settings: Settings, store: Store, data_dir: Path, engine: Engine) -> AuditLog | None:
    target = writer(settings.audit.sink, store, data_dir)
    return None if target is None else AuditLog(target, engine.background)
