"""A complete `tools/list`, and what a large catalogue costs each `tools/call` (2026-07-28, one connection)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

import msgspec

from benchmarks import wire
from benchmarks.client import BadAnswer, Client
from benchmarks.harness import MCP_SERVERS, Fleet, Server
from benchmarks.report import Key, Report, Settings, Target

SIZES = (10, 1_000, 10_000)
START_SECONDS = 60.0
MINIMUM_REPEATS = 3
QUICK_FASTMCP = "fastmcp needs half a minute to register 10,000 tools: --quick leaves that size out for it"


class _Page(msgspec.Struct):
    tools: list[msgspec.Raw]
    nextCursor: str | None = None


class _Answer(msgspec.Struct):
    result: _Page


def run(settings: Settings) -> Report:
    report = Report("Complete tools/list, and tools/call beside many tools")
    sizes = (10, 10_000) if settings.quick else SIZES
    with Fleet(report) as fleet:
        for size in sizes:
            for name in MCP_SERVERS:
                _start(fleet, name, size, settings)
        for _ in range(settings.rounds):
            for server in list(fleet.servers):
                fleet.attempt(server, partial(_measure, report, server, settings.seconds / 2))
    report.rows.sort(key=lambda row: row.case.startswith("tools/call"))
    report.targets = _targets()
    return report


def _start(fleet: Fleet, name: str, size: int, settings: Settings) -> None:
    report = fleet.report
    if settings.quick and name == "fastmcp" and size > 1_000:
        report.notes.append(QUICK_FASTMCP)
        return
    peer = name != "waypost"
    before = dict(report.failed)
    if fleet.start(name, tools=size, timeout=START_SECONDS) is None and peer and size > 1_000:
        report.failed = before
        report.notes.append(f"{name} did not start with {size:,} tools within {START_SECONDS:g} s")


def _measure(report: Report, server: Server, seconds: float) -> None:
    with Client(server.port) as client:
        sizes: list[int] = []
        listing = _repeat(lambda: _list_all(client, server.tools, sizes), seconds)
        report.row(server.name, _list_case(server.tools), "ms").add(listing * 1000, bytes=sizes[-1])
        request = wire.modern(server.port, "tools/call", wire.ADD)
        call = _repeat(lambda: _timed(client, request)[0], seconds)
        report.row(server.name, _call_case(server.tools), "ms").add(call * 1000)


def _repeat(measure: Callable[[], float], seconds: float) -> float:
    """The median of as many measurements as fit, after one that is not counted."""
    measure()
    times: list[float] = []
    deadline = perf_counter() + seconds
    while len(times) < MINIMUM_REPEATS or perf_counter() < deadline:
        times.append(measure())
    return median(times)


def _list_all(client: Client, expected: int, sizes: list[int]) -> float:
    """Follow the cursors to the end; only the exchanges are timed, not the decoding on this side."""
    total, count, size = 0.0, 0, 0
    params: dict[str, str] = {}
    while True:
        elapsed, body = _timed(client, wire.modern(client.port, "tools/list", params), b'"tools"')
        page = _decode(body)
        total, count, size = total + elapsed, count + len(page.tools), size + len(body)
        if page.nextCursor is None:
            break
        params = {"cursor": page.nextCursor}
    if count != expected:
        raise BadAnswer(f"{count} tools listed, {expected} registered")
    sizes.append(size)
    return total


def _decode(body: bytes) -> _Page:
    try:
        return msgspec.json.decode(body, type=_Answer).result
    except msgspec.MsgspecError as error:
        raise BadAnswer(f"tools/list: {error}: {body[:200]!r}") from error


def _timed(client: Client, request: bytes, part: bytes = wire.SUM) -> tuple[float, bytes]:
    began = perf_counter()
    answer = client.expect(request, part)
    return perf_counter() - began, answer.body


def _list_case(size: int) -> str:
    return f"tools/list, {size:,} tools"


def _call_case(size: int) -> str:
    return f"tools/call, {size:,} tools"


def _targets() -> list[Target]:
    listing = _list_case(10_000)
    growth = Key("waypost", _call_case(10_000)), Key("waypost", _call_case(10))
    return [
        Target(f"{listing}: faster than fastmcp", Key("fastmcp", listing), Key("waypost", listing), at_least=60),
        Target("tools/call: 10,000 tools against 10", *growth, at_most=1.2),
    ]
