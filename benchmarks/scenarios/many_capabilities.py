"""A hub with 10,000 capabilities: its start, and `gateway.home` page after page.

They are 100 servers of 100 tools each, which the hub has seen before; while it is measured, none of them runs. Beside
it stand 10,000 functions of one program.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec

from benchmarks import wire
from benchmarks.client import BadAnswer, Client
from benchmarks.contenders.common import UPSTREAM
from benchmarks.contenders.many_upstreams import KEPT, SERVERS
from benchmarks.harness import Server, StartFailed
from benchmarks.report import SUBJECT, Key, Report, Settings, Target

TOOLS = 100
PAGE = 200
START = "start to first gateway.home"
FUNCTIONS = "start to first answer, 10,000 functions"
HOME = "a page of gateway.home"
START_LIMIT = 1_500.0
WITHIN = 120.0


class _Next(msgspec.Struct):
    rel: str
    args: dict[str, object]


class _Home(msgspec.Struct):
    items: list[msgspec.Raw]
    links: list[_Next]


class _Result(msgspec.Struct):
    structuredContent: _Home


class _Answer(msgspec.Struct):
    result: _Result


def run(settings: Settings) -> Report:
    report = Report("10,000 capabilities: start, and the pages of gateway.home")
    kept = Path(tempfile.mkdtemp(prefix="waypost-bench-kept-"))
    os.environ[KEPT] = str(kept)
    try:
        _meet_all()
        for _ in range(settings.rounds):
            _measure(report)
            _measure_functions(report)
    except (StartFailed, BadAnswer, OSError) as error:
        report.fail(SUBJECT, str(error))
    finally:
        del os.environ[KEPT]
        shutil.rmtree(kept, ignore_errors=True)
    report.notes.append("functions are inspected one by one at every start; what servers offer is kept")
    report.targets = [Target("milliseconds from start to home", Key(SUBJECT, START), at_most=START_LIMIT)]
    return report


def _meet_all() -> None:
    """Let a hub see all servers once."""
    upstream = Server("waypost", tools=TOOLS)
    os.environ[UPSTREAM] = f"http://127.0.0.1:{upstream.port}/mcp"
    hub = Server("many upstreams")
    try:
        upstream.wait_until_listening(timeout=20)
        hub.wait_until_listening(timeout=60)
        until = time.monotonic() + WITHIN
        with Client(hub.port) as client:
            while (count := sum(len(page.items) for page, _ in _pages(client))) < SERVERS * TOOLS:
                if time.monotonic() > until:
                    raise BadAnswer(f"{count} of {SERVERS * TOOLS} tools after {WITHIN:g} s: {hub.last_words()}")
                time.sleep(0.2)
    finally:
        hub.stop()
        upstream.stop()


def _measure(report: Report) -> None:
    server = Server("many upstreams")
    try:
        server.wait_until_listening(timeout=60)
        with Client(server.port) as client:
            page, _ = _page(client, {})
            elapsed = perf_counter() - server.started
            pages = _pages(client)
        sizes = [len(page.items) for page, _ in pages]
        if len(page.items) != PAGE or sizes != [PAGE] * (SERVERS * TOOLS // PAGE):
            raise BadAnswer(f"pages of {sizes}")
        report.row(SUBJECT, START, "ms").add(elapsed * 1000, rss_mb=server.rss_mb())
        report.row(SUBJECT, HOME, "ms").add(median(seconds for _, seconds in pages) * 1000)
    finally:
        server.stop()


def _measure_functions(report: Report) -> None:
    server = Server("waypost", tools=SERVERS * TOOLS)
    try:
        server.wait_until_listening(timeout=60)
        with Client(server.port) as client:
            client.expect(wire.modern(server.port, "tools/call", wire.ADD), wire.SUM)
        elapsed = perf_counter() - server.started
        report.row(SUBJECT, FUNCTIONS, "ms").add(elapsed * 1000, rss_mb=server.rss_mb())
    finally:
        server.stop()


def _pages(client: Client) -> list[tuple[_Home, float]]:
    """All pages, each with the seconds it took."""
    found = []
    arguments: dict[str, object] | None = {}
    while arguments is not None:
        page, seconds = _page(client, arguments)
        found.append((page, seconds))
        arguments = next((link.args for link in page.links if link.rel == "next"), None)
    return found


def _page(client: Client, arguments: dict[str, object]) -> tuple[_Home, float]:
    began = perf_counter()
    asked = {"name": "gateway.home", "arguments": arguments}
    answer = client.expect(wire.modern(client.port, "tools/call", asked), b'"structuredContent"')
    elapsed = perf_counter() - began
    return msgspec.json.decode(answer.body, type=_Answer).result.structuredContent, elapsed
