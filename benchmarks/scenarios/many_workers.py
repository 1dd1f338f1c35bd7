"""A thousand workers with ten functions each: what each costs the hub, and how long it takes to list them all."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial

import uvloop

from benchmarks import wire
from benchmarks.client import Client
from benchmarks.contenders.common import WORKER_PORT
from benchmarks.harness import Fleet, Server, free_port
from benchmarks.report import Key, Report, Settings, Target
from benchmarks.websocket import FastSocket, connect
from benchmarks.workers import introduced

HUB = "worker hub"
WORKERS = 1000
FUNCTIONS = 10
WITHIN = 60.0
_LIST = (
    b'{"type":"invokefunction","function_id":"engine::functions::list","data":{"prefix":"w"},"invocation_id":"list"}'
)


def run(settings: Settings) -> Report:
    count = WORKERS // 10 if settings.quick else WORKERS
    report = Report(f"{count} workers with {FUNCTIONS} functions each")
    with Fleet(report) as fleet:
        port = free_port()
        os.environ[WORKER_PORT] = str(port)
        hub = fleet.start(HUB)
        if hub is not None:
            fleet.attempt(hub, partial(measure, report, hub, port, count))
    report.targets = [Target("KB of memory for each worker", Key(HUB, "memory for each worker"), at_most=100)]
    return report


def measure(report: Report, hub: Server, port: int, count: int) -> None:
    before = hub.rss_mb()
    began = time.perf_counter()
    connecting, listing = uvloop.run(_connected(report, hub, port, count, before, began))
    report.row(HUB, "all connected and offered", "ms").add(connecting)
    report.row(HUB, "engine::functions::list", "ms").add(listing)


async def _connected(
    report: Report, hub: Server, port: int, count: int, before: float, began: float
) -> tuple[float, float]:
    sockets = [await _worker(port, number) for number in range(count)]
    lists: asyncio.Queue[bytes] = asyncio.Queue()
    asking = await connect(port, lambda message: _answered(message, lists))
    asking.send(introduced(b"asking"))
    async with asyncio.timeout(WITHIN):
        answer = b""
        while answer.count(b'"function_id":"w') < count * FUNCTIONS:
            asking.send(_LIST)
            answer = await lists.get()
    connecting = (time.perf_counter() - began) * 1000
    report.row(HUB, "memory for each worker", "KB").add((hub.rss_mb() - before) * 1024 / count)
    asked = time.perf_counter()
    asking.send(_LIST)
    await lists.get()
    listing = (time.perf_counter() - asked) * 1000
    _list_tools(report, hub)
    for socket in (*sockets, asking):
        socket.transport.abort()
    return connecting, listing


def _answered(message: bytes, lists: asyncio.Queue[bytes]) -> None:
    if b'"invocation_id":"list"' in message:
        lists.put_nowait(message)


def _list_tools(report: Report, hub: Server) -> None:
    with Client(hub.port) as client:
        for case in ("tools/list, first page, after a change", "tools/list, first page, again"):
            asked = time.perf_counter()
            client.expect(wire.modern(hub.port, "tools/list", {}), b'"tools":[')
            report.row(HUB, case, "ms").add((time.perf_counter() - asked) * 1000)


async def _worker(port: int, number: int) -> FastSocket:
    socket = await connect(port, lambda _: None)
    for function in range(FUNCTIONS):
        named = b'"id":"w%d::f%d","description":"The function %d."' % (number, function, function)
        socket.send(b'{"type":"registerfunction",' + named + b"}")
    socket.send(introduced(b"w%d" % number))
    return socket
