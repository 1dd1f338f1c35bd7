"""Thousands of idle streams on one process: what each weighs, and how soon all of them hear of a change."""

from __future__ import annotations

import asyncio
import resource
import time
from functools import partial
from time import perf_counter
from typing import cast

import uvloop

from benchmarks import wire
from benchmarks.client import BadAnswer, Client
from benchmarks.harness import Fleet, Server
from benchmarks.report import Key, Report, Settings, Target

NAME = "waypost"
STREAMS, FEWER = 10_000, 1_000
SPARE_FILES = 256
"""What a process has open beside its streams."""
BATCH = 200
"""Connections that are being opened at a time."""
OPEN_WITHIN = 60.0
HEARD_WITHIN = 30.0
SETTLE_SECONDS = 0.5
NEWS = b"notifications/tools/list_changed"
STREAM_TYPE = b"text/event-stream"
ACKNOWLEDGED = b"notifications/subscriptions/acknowledged"
READY = {wire.MODERN: ACKNOWLEDGED, wire.LEGACY: STREAM_TYPE}
"""What a client has read when its stream is open."""
AT_LEAST = 5_000


def run(settings: Settings) -> Report:
    report = Report("Idle streams over HTTP, 1 worker: memory, and a change of the tools told to all of them")
    wanted = FEWER if settings.quick else STREAMS
    count = min(wanted, allow_files() - SPARE_FILES)
    if count < wanted:
        report.notes.append(f"{count:,} streams instead of {wanted:,}: this process may not open more files")
    for era in (wire.MODERN, wire.LEGACY):
        with Fleet(report) as fleet:
            server = fleet.start(NAME)
            if server is not None:
                fleet.attempt(server, partial(_measure, report, server, era, count, settings))
        label = f"{_case(era, count)}, notified"
        report.targets.append(Target(f"{label} per second", Key(NAME, label), at_least=AT_LEAST))
    return report


def allow_files() -> int:
    """How many files this process and those it starts may open from now on: as many as the machine lets them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = STREAMS + SPARE_FILES if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _case(era: str, count: int) -> str:
    return f"{era}, {count:,} {'listen streams' if era == wire.MODERN else 'sessions with a stream'}"


def _measure(report: Report, server: Server, era: str, count: int, settings: Settings) -> None:
    with Client(server.port) as client:
        client.expect(wire.modern(server.port, "tools/call", wire.ADD), wire.SUM)
        before = server.rss_mb()
        requests = _requests(client, era, count)
    audience = Audience(report, server.name, [server], _case(era, count), READY[era], requests)
    uvloop.run(audience.attend(before, settings.rounds))


def _requests(client: Client, era: str, count: int) -> list[bytes]:
    """One for each stream; in 2025-11-25 each has a session of its own."""
    if era == wire.MODERN:
        wish = {"notifications": {"toolsListChanged": True}}
        return [wire.modern(client.port, "subscriptions/listen", wish)] * count
    return [_get(client.port, client.open_session()) for _ in range(count)]


def _get(port: int, session: str) -> bytes:
    lines = (
        "GET /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Accept: text/event-stream",
        f"Mcp-Session-Id: {session}",
        f"MCP-Protocol-Version: {wire.LEGACY}",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


class Audience:
    """All the streams of one server, or of several in turn, and when each of them heard."""

    def __init__(
        self, report: Report, name: str, servers: list[Server], case: str, ready: bytes, requests: list[bytes]
    ) -> None:
        self.report = report
        self.name = name
        self.servers = servers
        self.requests = requests
        self.case = case
        self.ready = ready
        self.heard: list[float] = []
        self.everybody = asyncio.Event()
        self.lost = ""
        self.leaving = False

    async def attend(self, before: float, rounds: int) -> None:
        listeners: list[_Listener] = []
        try:
            async with asyncio.timeout(OPEN_WITHIN):
                for start in range(0, len(self.requests), BATCH):
                    batch = range(start, min(start + BATCH, len(self.requests)))
                    listeners += await asyncio.gather(*(self._open(place) for place in batch))
            await asyncio.sleep(SETTLE_SECONDS)
            weight = (sum(server.rss_mb() for server in self.servers) - before) * 1024 / len(listeners)
            self.report.row(self.name, f"{self.case}, memory of each", "KB").add(weight)
            for _ in range(rounds):
                await self._announce()
        finally:
            self.leaving = True
            for listener in listeners:
                listener.transport.abort()

    async def _open(self, place: int) -> _Listener:
        loop, port = asyncio.get_running_loop(), self.servers[place % len(self.servers)].port
        _, listener = await loop.create_connection(
            lambda: _Listener(self, self.requests[place], loop.create_future()), "127.0.0.1", port
        )
        await listener.opened
        return listener

    async def _announce(self) -> None:
        """Change the tools once and wait for the last stream to hear of it."""
        self.heard.clear()
        self.everybody.clear()
        port = self.servers[0].port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        cpu, generator = self._cpu_seconds(), time.process_time()
        began = perf_counter()
        writer.write(wire.modern(port, "tools/call", {"name": "touch", "arguments": {}}))
        try:
            async with asyncio.timeout(HEARD_WITHIN):
                await self.everybody.wait()
        except TimeoutError:
            raise BadAnswer(f"{len(self.heard)} of {len(self.requests)} streams heard of a change") from None
        elapsed = perf_counter() - began
        busy, generator = (self._cpu_seconds() - cpu) / elapsed, (time.process_time() - generator) / elapsed
        await asyncio.sleep(SETTLE_SECONDS)
        if b" 200 " not in await reader.readline() or self.lost or len(self.heard) != len(self.requests):
            raise BadAnswer(self.lost or f"{len(self.heard)} notifications on {len(self.requests)} streams")
        writer.close()
        waits = sorted(moment - began for moment in self.heard)
        self.report.row(self.name, f"{self.case}, notified", "/s").add(
            len(waits) / elapsed,
            p50_ms=waits[len(waits) // 2] * 1000,
            p99_ms=waits[len(waits) * 99 // 100] * 1000,
            server_cpu=busy,
            generator_cpu=generator,
        )
        self.report.row(self.name, f"{self.case}, change to the last notified", "ms").add(elapsed * 1000)

    def _cpu_seconds(self) -> float:
        return sum(server.cpu_seconds() for server in self.servers)

    def hears(self, times: int) -> None:
        self.heard += [perf_counter()] * times
        if len(self.heard) >= len(self.requests):
            self.everybody.set()


class _Listener(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, audience: Audience, request: bytes, opened: asyncio.Future[None]) -> None:
        self.audience = audience
        self.request = request
        self.opened = opened
        self.unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        data = self.unread + data
        if not self.opened.done():
            self.unread = data
            if self.audience.ready in data:
                self.unread = b""
                self.opened.set_result(None)
            elif not data.startswith(b"HTTP/1.1 200"[: len(data)]):
                self.opened.set_exception(BadAnswer(f"no stream: {data[:200]!r}"))
            return
        times = data.count(NEWS)
        # The rest may hold the beginning of a notification, but never a whole one.
        self.unread = data[-len(NEWS) + 1 :]
        if times:
            self.audience.hears(times)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f"a stream ended: {exc or 'closed by the server'}"
        if not self.opened.done():
            self.opened.set_exception(BadAnswer(reason))
        elif not self.audience.leaving:
            self.audience.lost = reason
