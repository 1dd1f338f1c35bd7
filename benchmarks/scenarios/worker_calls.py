"""Calls of a worker's function: from another worker, and from `tools/call`, beside bare WebSocket echoes.

An echo is one message each way; a call between workers is two, through the hub, and is held against as many echoes in
flight on one connection. `tools/call` comes over as many connections as there are calls in flight, and so do the echoes
that it is held against. The generator, and the worker that answers, share the other core.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

from benchmarks import load, wire, workers
from benchmarks.client import BadAnswer, Client
from benchmarks.contenders.common import WORKER_PORT
from benchmarks.harness import Fleet, Server, free_port
from benchmarks.report import Key, Report, Settings, Target

HUB = "worker hub"
ECHO = "websockets echo"
IN_FLIGHT = (1, 16, 64)
WITHIN = 20.0
CALL = {"name": workers.TOOL, "arguments": {"a": 1, "b": 2}}
EXPECTED = b'"sum":3'


def run(settings: Settings) -> Report:
    report = Report("calls of a worker's function, 1 hub")
    with Fleet(report) as fleet:
        port = free_port()
        os.environ[WORKER_PORT] = str(port)
        echo, hub = fleet.start(ECHO), fleet.start(HUB)
        if echo is None or hub is None:
            return report
        for count in IN_FLIGHT:
            for _ in range(settings.rounds):
                fleet.attempt(echo, partial(_kept, report, echo, echo.port, workers.echoes, "echo", count, settings))
                fleet.attempt(hub, partial(_kept, report, hub, port, workers.calls, "worker", count, settings))
                separate = partial(_kept, report, echo, echo.port, workers.separate_echoes, "echo, connections", count)
                fleet.attempt(echo, partial(separate, settings))
        with workers.serving(port):
            request = wire.modern(hub.port, "tools/call", CALL)
            fleet.attempt(hub, partial(wait_for_tool, hub, request))
            for count in IN_FLIGHT:
                for _ in range(settings.rounds):
                    fleet.attempt(hub, partial(_called, report, hub, request, count, settings))
    report.targets = [
        Target(
            f"{count} in flight: {kind}, share of bare echoes",
            Key(HUB, f"{kind} {count}"),
            Key(ECHO, f"{limit} {count}"),
            at_least=0.4,
        )
        for kind, limit in (("worker", "echo"), ("tools/call", "echo, connections"))
        for count in IN_FLIGHT
    ]
    return report


def wait_for_tool(server: Server, request: bytes) -> None:
    """Wait until a worker is there that answers."""
    until = time.monotonic() + WITHIN
    while True:
        try:
            with Client(server.port) as client:
                client.expect(request, EXPECTED)
                return
        except BadAnswer:
            if time.monotonic() > until:
                raise
        time.sleep(0.1)


def _kept(
    report: Report,
    server: Server,
    port: int,
    keep: Callable[[int, int, float, float], workers.Seen],
    kind: str,
    count: int,
    settings: Settings,
) -> None:
    seen = keep(port, count, settings.seconds, settings.warmup)
    report.row(server.name, f"{kind} {count}", "req/s").add(seen.rate)


def _called(report: Report, server: Server, request: bytes, count: int, settings: Settings) -> None:
    seen = load.run(server.port, [request] * count, EXPECTED, seconds=settings.seconds, warmup=settings.warmup)
    if seen.errors:
        report.fail(server.name, f"{count}: {seen.errors} errors, first {seen.first_error}")
    report.row(server.name, f"tools/call {count}", "req/s").add(seen.rate, p50_ms=seen.p50_ms, p99_ms=seen.p99_ms)
