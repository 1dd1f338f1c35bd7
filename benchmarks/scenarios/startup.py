"""From process start to the first `tools/call` answer over HTTP."""

from __future__ import annotations

import os
from time import perf_counter
from urllib.request import urlopen

from benchmarks import wire
from benchmarks.client import BadAnswer, Client
from benchmarks.contenders.contextforge import VENV, WITHIN
from benchmarks.harness import MCP_SERVERS, Server, StartFailed
from benchmarks.report import Key, Report, Settings, Target

CASE = "start to first answer"
CONTENDERS = (*MCP_SERVERS, "static")
OTHER = "contextforge"
"""A gateway without tools of its own: up to the first answer of `/health`, and in two rounds, as it takes long."""


def run(settings: Settings) -> Report:
    report = Report("Process start to first tools/call answer over HTTP")
    if VENV not in os.environ:
        report.notes.append(f"{OTHER} is measured where {VENV} names a virtual environment that has it")
    for number in range(2 if settings.quick else max(5, settings.rounds)):
        for name in CONTENDERS:
            if name not in report.failed:
                _measure(report, name)
        if number < 2 and VENV in os.environ and OTHER not in report.failed:
            _measure(report, OTHER)
    own, peer = Key("waypost", CASE), Key("mcp lowlevel", CASE)
    report.targets = [
        Target("milliseconds to the first answer", own, at_most=250),
        Target("share of mcp lowlevel's time", own, peer, at_most=0.36),
    ]
    return report


def _measure(report: Report, name: str) -> None:
    server = Server(name)
    try:
        server.wait_until_listening(timeout=WITHIN if name == OTHER else 20)
        if name == OTHER:
            urlopen(f"http://127.0.0.1:{server.port}/health", timeout=WITHIN).close()
        else:
            with Client(server.port) as client:
                client.expect(wire.modern(server.port, "tools/call", wire.ADD), wire.SUM)
        elapsed = perf_counter() - server.started
        report.row(name, CASE, "ms").add(elapsed * 1000, rss_mb=server.rss_mb())
    except (StartFailed, BadAnswer, OSError) as error:
        report.fail(name, str(error))
    finally:
        server.stop()
