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
from benchmarks.harness import Fleet, Server
from benchmarks.report import Key, Report, Settings, Target

DIRECT = "mcp lowlevel"
GATEWAYS = {"waypost gateway": "up.add", "fastmcp proxy": "add"}
WITHIN = 20.0


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
        for count in (1, 16):
            for _ in range(settings.rounds):
                for server in list(fleet.servers):
                    sent = [requests[server.name]] * count
                    fleet.attempt(server, partial(measure, report, server, sent, settings))
    report.targets = _targets()
    return report


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


def measure(report: Report, server: Server, requests: list[bytes], settings: Settings) -> None:
    seen = load.run(server.port, requests, wire.SUM, seconds=settings.seconds, warmup=settings.warmup)
    case = case_of(len(requests))
    if seen.errors:
        report.fail(server.name, f"{case}: {seen.errors} errors, first {seen.first_error}")
    report.row(server.name, case, "req/s").add(seen.rate, p50_ms=seen.p50_ms, p99_ms=seen.p99_ms)


def case_of(connections: int) -> str:
    return f"{connections} connection{'s' if connections > 1 else ''}"


def _targets() -> list[Target]:
    case = case_of(16)
    own = Key("waypost gateway", case)
    return [
        Target(f"{case}: over fastmcp create_proxy", own, Key("fastmcp proxy", case), at_least=100),
        Target(f"{case}: share of the upstream called directly", own, Key(DIRECT, case), at_least=0.5),
    ]
