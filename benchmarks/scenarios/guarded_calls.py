"""What it costs to stand guard: the same calls with rules, slots, breakers and the audit, and without."""

from __future__ import annotations

from functools import partial

from benchmarks import wire
from benchmarks.harness import Fleet
from benchmarks.report import Key, Report, Settings, Target
from benchmarks.scenarios.http_calls import Requests, case_of, measure, prepare

CONNECTIONS = 16


def run(settings: Settings) -> Report:
    report = Report("tools/call `add` over HTTP with everything on guard, 1 worker")
    with Fleet(report) as fleet:
        requests: Requests = {}
        for name in ("waypost", "guarded"):
            server = fleet.start(name)
            if server is not None:
                fleet.attempt(server, partial(prepare, server, requests, CONNECTIONS))
        for _ in range(settings.rounds):
            for server in list(fleet.servers):
                sent = requests[server.name, wire.MODERN]
                fleet.attempt(server, partial(measure, report, server, wire.MODERN, sent, settings))
    case = case_of(wire.MODERN, CONNECTIONS)
    report.targets = [
        Target(f"{case}: bare over guarded", Key("waypost", case), Key("guarded", case), at_most=1.5),
    ]
    return report
