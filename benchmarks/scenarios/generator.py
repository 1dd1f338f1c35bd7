"""Is the load generator fast enough? Its own ceiling, beside the fastest ASGI answer there is."""

from __future__ import annotations

from benchmarks import load, wire
from benchmarks.harness import Fleet
from benchmarks.report import Key, Report, Settings, Target

CASE = "16 connections"


def run(settings: Settings) -> Report:
    report = Report("Load generator against a protocol that does not parse")
    with Fleet(report) as fleet:
        servers = [server for name in ("bare", "static") if (server := fleet.start(name))]
        for _ in range(settings.rounds):
            for server in servers:
                requests = [wire.modern(server.port, "tools/call", wire.ADD)] * 16
                seen = load.run(server.port, requests, wire.SUM, seconds=settings.seconds, warmup=settings.warmup)
                report.row(server.name, CASE, "req/s").add(seen.rate, generator_cpu=seen.generator_cpu)
    report.targets = [Target("headroom over the static app", Key("bare", CASE), Key("static", CASE), at_least=1.5)]
    return report
