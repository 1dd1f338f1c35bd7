"""`tools/call` through a gateway to one MCP server on HTTP, beside calling that server directly.

The gateways share a core with the upstream, so what a call costs them comes on top of what it costs the upstream.
"""

from __future__ import annotations

import os
import time
from functools import partial

from benchmarks import load, wire
from benchmarks.client import BadAnswer, Client
from benchmarks.contenders.common import UPSTREAM
from benchmarks.contenders.contextforge import VENV
from benchmarks.contenders.contextforge import WITHIN as START_WITHIN
from benchmarks.harness import Fleet, Server
from benchmarks.report import Key, Report, Settings, Target

DIRECT = "mcp lowlevel"
OWN = "waypost gateway"
GATEWAYS = {OWN: "up.add", "fastmcp proxy": "add"}
OTHER = "contextforge"
WITHIN = 20.0
ADDED = "p50 added at 1 connection"
BY_CPU = "16 connections: share of the upstream called directly, by processor time"


def run(settings: Settings) -> Report:
    report = Report("tools/call `add` through a gateway, 1 worker")
    with Fleet(report) as fleet:
        upstream = fleet.start(DIRECT)
        if upstream is None:
            return report
        os.environ[UPSTREAM] = f"http://127.0.0.1:{upstream.port}/mcp"
        requests = {upstream.name: wire.modern(upstream.port, "tools/call", wire.ADD)}
        for name, tool in GATEWAYS.items():
            server = fleet.start(name)
            if server is not None:
                requests[name] = wire.modern(server.port, "tools/call", {**wire.ADD, "name": tool})
                fleet.attempt(server, partial(wait_for_tool, server, requests[name]))
        _add_contextforge(fleet, requests)
        for count in (1, 16):
            for _ in range(settings.rounds):
                for server in list(fleet.servers):
                    sent = [requests[server.name]] * count
                    fleet.attempt(server, partial(measure, report, {upstream, server}, server, sent, settings))
    _add_derived(report)
    report.targets = _targets()
    return report


def _add_contextforge(fleet: Fleet, requests: dict[str, bytes]) -> None:
    """It knows sessions only, though it needs none, and a token with each request."""
    if VENV not in os.environ:
        fleet.report.notes.append(f"{OTHER} is measured where {VENV} names a virtual environment that has it")
        return
    server = fleet.start(OTHER, timeout=START_WITHIN)
    if server is None:
        return
    token = server.scratch / "token"
    until = time.monotonic() + START_WITHIN
    while not token.exists() and time.monotonic() < until:
        time.sleep(0.1)
    if not token.exists():
        fleet.drop(server, "it did not take the upstream")
        return
    call = wire.message("tools/call", {**wire.ADD, "name": "up-add"}, id=1)
    headers = {"MCP-Protocol-Version": wire.LEGACY, "Authorization": f"Bearer {token.read_text()}"}
    requests[OTHER] = wire.post(server.port, call, headers).replace(b"/mcp", b"/mcp/", 1)
    fleet.attempt(server, partial(wait_for_tool, server, requests[OTHER]))


def _add_derived(report: Report) -> None:
    """What the hop adds to the median of one call at a time, and its share of processor time, round by round."""
    rows = {row.contender: row.details["p50_ms"] for row in report.rows if row.case == case_of(1)}
    for own, direct in zip(rows.get(OWN, []), rows.get(DIRECT, []), strict=False):
        report.row(OWN, ADDED, "ms").add(own - direct)
    rows = {row.contender: row.details["per_cpu_second"] for row in report.rows if row.case == case_of(16)}
    for own, direct in zip(rows.get(OWN, []), rows.get(DIRECT, []), strict=False):
        report.row(OWN, BY_CPU, "").add(own / direct if direct else 0.0)


def wait_for_tool(server: Server, request: bytes) -> None:
    """A gateway needs a moment until it knows the tools behind it."""
    until = time.monotonic() + WITHIN
    while True:
        try:
            with Client(server.port) as client:
                client.expect(request, wire.SUM)
                return
        except BadAnswer:
            if time.monotonic() > until:
                raise
        time.sleep(0.1)


def measure(report: Report, servers: set[Server], server: Server, requests: list[bytes], settings: Settings) -> None:
    """Load `server`; `servers` are all that have work of it, which other work on the machine does not add to."""
    began, cpu = time.perf_counter(), _cpu(servers)
    seen = load.run(server.port, requests, wire.SUM, seconds=settings.seconds, warmup=settings.warmup)
    busy = (_cpu(servers) - cpu) / (time.perf_counter() - began)
    case = case_of(len(requests))
    if seen.errors:
        report.fail(server.name, f"{case}: {seen.errors} errors, first {seen.first_error}")
    report.row(server.name, case, "req/s").add(
        seen.rate, p50_ms=seen.p50_ms, p99_ms=seen.p99_ms, per_cpu_second=seen.rate / busy if busy else 0.0
    )


def _cpu(servers: set[Server]) -> float:
    return sum(server.cpu_seconds() for server in servers)


def case_of(connections: int) -> str:
    return f"{connections} connection{'s' if connections > 1 else ''}"


def _targets() -> list[Target]:
    case = case_of(16)
    own = Key(OWN, case)
    return [
        Target(f"{case}: over fastmcp create_proxy", own, Key("fastmcp proxy", case), at_least=100),
        Target(f"{case}: share of the upstream called directly", own, Key(DIRECT, case), at_least=0.5),
        Target(ADDED, Key(OWN, ADDED), at_most=0.4),
    ]
