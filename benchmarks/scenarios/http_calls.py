"""`tools/call` over Streamable HTTP with JSON answers: one worker on one core, both eras, and memory afterwards."""

from __future__ import annotations

from functools import partial
from time import perf_counter

from benchmarks import load, wire
from benchmarks.client import Client
from benchmarks.harness import MCP_SERVERS, Fleet, Server
from benchmarks.report import Key, Report, Settings, Target

CONTENDERS = (*MCP_SERVERS, "static")
MEMORY = "memory after load"
BUSY = 0.9
Requests = dict[tuple[str, str], list[bytes]]
"""One for each connection, by contender and era."""


def run(settings: Settings) -> Report:
    report = Report("tools/call `add` over HTTP, 1 worker")
    connections = (16,) if settings.quick else (1, 16, 64)
    with Fleet(report) as fleet:
        requests: Requests = {}
        for name in CONTENDERS:
            server = fleet.start(name)
            if server is not None:
                fleet.attempt(server, partial(prepare, server, requests, max(connections)))
        for era in wire.ERAS:
            for count in connections:
                for _ in range(settings.rounds):
                    for server in list(fleet.servers):
                        sent = requests[server.name, era][:count]
                        fleet.attempt(server, partial(measure, report, server, era, sent, settings))
        for server in fleet.servers:
            report.row(server.name, MEMORY, "MB").add(server.rss_mb())
    report.targets = _targets()
    return report


def prepare(server: Server, requests: Requests, count: int) -> None:
    """One request for each connection; in 2025-11-25 every connection has a session of its own."""
    port = server.port
    with Client(port) as client:
        sessions = [client.open_session() for _ in range(count)]
    requests[server.name, wire.LEGACY] = [wire.in_session(port, session, wire.call_add(1)) for session in sessions]
    requests[server.name, wire.MODERN] = [wire.modern(port, "tools/call", wire.ADD)] * count


def measure(report: Report, server: Server, era: str, requests: list[bytes], settings: Settings) -> None:
    case = case_of(era, len(requests))
    seen, busy = _load(server, requests, settings)
    if _disturbed(busy, requests):
        seen, busy = max((seen, busy), _load(server, requests, settings), key=lambda attempt: attempt[1])
    if _disturbed(busy, requests):
        report.notes.append(f"disturbed: {server.name} was only {busy:.0%} busy in a round of {case}")
    if seen.errors:
        report.fail(server.name, f"{case}: {seen.errors} errors, first {seen.first_error}")
    report.row(server.name, case, "req/s").add(
        seen.rate,
        p50_ms=seen.p50_ms,
        p99_ms=seen.p99_ms,
        server_cpu=busy,
        per_cpu_second=seen.rate / busy if busy else 0.0,
        generator_cpu=seen.generator_cpu,
    )


def _load(server: Server, requests: list[bytes], settings: Settings) -> tuple[load.Load, float]:
    """One run of the generator, and the share of it that the server was on its core."""
    began, cpu = perf_counter(), server.cpu_seconds()
    seen = load.run(server.port, requests, wire.SUM, seconds=settings.seconds, warmup=settings.warmup)
    return seen, (server.cpu_seconds() - cpu) / (perf_counter() - began)


def _disturbed(busy: float, requests: list[bytes]) -> bool:
    """With many connections the server is the limit, unless other work takes its core or the generator's."""
    return len(requests) > 1 and busy < BUSY


def case_of(era: str, connections: int) -> str:
    return f"{era}, {connections} connection{'s' if connections > 1 else ''}"


def _targets() -> list[Target]:
    case = case_of(wire.MODERN, 16)
    own = Key("waypost", case)
    return [
        Target(f"{case}: over fastmcp", own, Key("fastmcp", case), at_least=20),
        Target(f"{case}: over mcp lowlevel", own, Key("mcp lowlevel", case), at_least=6),
        Target(f"{case}: share of static bytes", own, Key("static", case), at_least=0.6),
    ]
