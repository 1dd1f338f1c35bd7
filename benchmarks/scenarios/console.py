"""The console of a hub with years of use behind it: the size and the time of each page, and what open pages cost."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil
from statistics import median
from time import perf_counter
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from benchmarks import load, wire
from benchmarks.client import BadAnswer, Client
from benchmarks.contenders.console_hub import KEY, SIZE
from benchmarks.harness import HOST, Fleet, Server
from benchmarks.report import SUBJECT, Key, Report, Settings, Target
from benchmarks.stores.busy_hub import DEFINITION, LONG, Size
from waypost.console.pages import PAGES
from waypost.identity import new_key

NAME = "console hub"
TOOLS = 10_000
FULL, QUICK = Size(100_000, 100_000, 1_000_000), Size(10_000, 10_000, 100_000)
START_WITHIN = 300.0
VISITS, QUICK_VISITS, WARMUP = 100, 40, 3
NAMES = {"instances/{id}": LONG, "workflows/{id}": DEFINITION, "catalog/{id}": "add"}
"""What stands for the variable of a page."""
VIEWS = (
    "instances?status=succeeded",
    "instances?q=shop-1",
    f"instances/{LONG}?before=50000",
    "catalog?q=look+up+records",
    "audit?decision=deny",
    "audit?principal=nobody",
)
MAX_BYTES, MAX_P50_MS, MAX_P99_MS, MAX_COST = 50_000, 20.0, 100.0, 1.05
LIVE_PAGES, CONNECTIONS = 200, 16
POLL_S = 5.0
"""How often an open overview loads the points of its plots."""
QUIET = "tools/call, per second of the server's processor"
LIVE = f"{QUIET}, beside {LIVE_PAGES} open pages"
SLOWEST, SLOWEST_P99, LARGEST = "the slowest page", "the slowest page, p99", "the largest page"
BUSIEST, BUSIEST_P99 = "the busiest page, on a core", "the busiest page, on a core, p99"


class Visits(NamedTuple):
    """The times of one page in milliseconds: from the request to the answer, and of the server on a core."""

    p50: float
    p99: float
    busy_p50: float
    busy_p99: float
    size: int


def list_places() -> list[str]:
    """Every page of the table, and views of those that filter; an approval alone is a part of their list."""
    named = [f"{path.partition('{')[0]}{name}" for path, name in NAMES.items()]
    return [*(one.path for one in PAGES if "{" not in one.path), *named, *VIEWS]


def run(settings: Settings) -> Report:
    size = QUICK if settings.quick else FULL
    report = Report(
        f"The console with {TOOLS:,} capabilities, {size.instances:,} instances, one with {size.events:,} events, "
        f"and {size.entries:,} entries of the audit"
    )
    os.environ[KEY], os.environ[SIZE] = new_key(), ",".join(map(str, size))
    try:
        with Fleet(report) as fleet:
            server = fleet.start(NAME, tools=TOOLS, timeout=START_WITHIN)
            if server is not None:
                fleet.attempt(server, partial(_measure, report, server, settings))
    finally:
        del os.environ[KEY], os.environ[SIZE]
    report.targets = _targets()
    return report


def _measure(report: Report, server: Server, settings: Settings) -> None:
    visits = QUICK_VISITS if settings.quick else VISITS
    with Client(server.port) as client:
        cookie = sign_in(client)
        # The first search of a hub indexes all items, which the scenario `search` measures.
        client.expect(_request(server.port, cookie, "catalog?q=add"), b"</html>")
        for _ in range(settings.rounds):
            seen = {place: _visit(server, client, cookie, place, visits) for place in list_places()}
            for place, one in seen.items():
                row = report.row(SUBJECT, "/" + place.replace(LONG, "{long}"), "ms")
                row.add(one.p50, p99_ms=one.p99, busy_ms=one.busy_p50, busy_p99_ms=one.busy_p99, bytes=one.size)
            cases = (SLOWEST, SLOWEST_P99, BUSIEST, BUSIEST_P99, LARGEST)
            for column, name in enumerate(cases):
                unit = "bytes" if name == LARGEST else "ms"
                report.row(SUBJECT, name, unit).add(max(one[column] for one in seen.values()))
    calls = [wire.modern(server.port, "tools/call", wire.ADD)] * CONNECTIONS
    for _ in range(settings.rounds):
        _call(report, server, QUIET, calls, settings)
        with _open_pages(server.port, cookie, LIVE_PAGES):
            _call(report, server, LIVE, calls, settings)


def sign_in(client: Client) -> str:
    """The cookie of a session."""
    body = urlencode({"key": os.environ[KEY]}).encode()
    head = (
        f"POST /console/sign-in HTTP/1.1\r\nHost: {HOST}:{client.port}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = client.send(head.encode() + body)
    cookie = answer.header(b"set-cookie")
    if answer.status != 303 or cookie is None:
        raise BadAnswer(f"signing in: {answer.status} {answer.body[:200]!r}")
    return cookie.partition(";")[0]


def _request(port: int, cookie: str, place: str) -> bytes:
    return f"GET /console/{place} HTTP/1.1\r\nHost: {HOST}:{port}\r\nCookie: {cookie}\r\n\r\n".encode()


def _visit(server: Server, client: Client, cookie: str, place: str, visits: int) -> Visits:
    """Load one page again and again, one at a time."""
    request = _request(client.port, cookie, place)
    taken, busy = [], []
    for _ in range(WARMUP + visits):
        began, was_busy = perf_counter(), server.busy_ms()
        answer = client.expect(request, b"</html>")
        taken.append((perf_counter() - began) * 1000)
        busy.append(server.busy_ms() - was_busy)
    taken, busy = sorted(taken[WARMUP:]), sorted(busy[WARMUP:])
    last = ceil(visits * 0.99) - 1
    return Visits(median(taken), taken[last], median(busy), busy[last], len(answer.body))


def _call(report: Report, server: Server, case: str, calls: list[bytes], settings: Settings) -> None:
    began, cpu = perf_counter(), server.cpu_seconds()
    seen = load.run(server.port, calls, wire.SUM, seconds=settings.seconds, warmup=settings.warmup)
    if seen.errors:
        raise BadAnswer(seen.first_error)
    busy = (server.cpu_seconds() - cpu) / (perf_counter() - began)
    # By the server's own time: on a machine with other work the rate alone says little about a few percent.
    report.row(SUBJECT, case, "req/s").add(seen.rate / max(busy, 0.01), rate=seen.rate)


@contextmanager
def _open_pages(port: int, cookie: str, count: int) -> Iterator[None]:
    """Overviews in open tabs: a stream of changes each, and now and then the new points of the plots."""
    streams = []
    stopping = threading.Event()
    poller = threading.Thread(target=_poll, args=(port, cookie, count / POLL_S, stopping))
    try:
        for _ in range(count):
            stream = socket.create_connection((HOST, port), timeout=10)
            streams.append(stream)
            stream.sendall(_request(port, cookie, "events?kinds=approvals,instances,upstreams,breakers"))
            if not stream.recv(4096).startswith(b"HTTP/1.1 200"):
                raise BadAnswer("a stream of changes was refused")
        poller.start()
        yield
    finally:
        stopping.set()
        if poller.is_alive():
            poller.join()
        for stream in streams:
            stream.close()


def _poll(port: int, cookie: str, rate: float, stopping: threading.Event) -> None:
    with Client(port) as client:
        last = 0
        while not stopping.wait(1 / rate):
            request = _request(port, cookie, f"api/calls?after={last}")
            answer = client.expect(request, b'"step"')
            last = max([last, *_steps(answer.body)])


def _steps(body: bytes) -> list[int]:
    return [int(at) for at in msgspec.json.decode(body)["at"]]


def _targets() -> list[Target]:
    return [
        Target("p50 of the slowest page in ms", Key(SUBJECT, SLOWEST), at_most=MAX_P50_MS),
        Target("largest p99 of a page in ms", Key(SUBJECT, SLOWEST_P99), at_most=MAX_P99_MS),
        Target("p50 of the busiest page in ms on a core", Key(SUBJECT, BUSIEST), at_most=MAX_P50_MS),
        Target("largest p99 of a page in ms on a core", Key(SUBJECT, BUSIEST_P99), at_most=MAX_P99_MS),
        Target("bytes of the largest page", Key(SUBJECT, LARGEST), at_most=MAX_BYTES),
        Target(
            f"tools/call alone over the same beside {LIVE_PAGES} open pages",
            Key(SUBJECT, QUIET),
            Key(SUBJECT, LIVE),
            at_most=MAX_COST,
        ),
    ]
