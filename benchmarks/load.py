"""An HTTP/1.1 load generator: keep-alive connections that each send their request as soon as they are answered.

It runs for a fixed time and counts an answer only when its status is 200 and its body holds the expected bytes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import cast

import uvloop

DRAIN_SECONDS = 10.0


@dataclass(frozen=True)
class Load:
    """What one run of the generator saw."""

    answered: int
    errors: int
    first_error: str
    elapsed: float
    p50_ms: float
    p99_ms: float
    generator_cpu: float

    @property
    def rate(self) -> float:
        return self.answered / self.elapsed


def run(port: int, requests: Sequence[bytes], expected: bytes, *, seconds: float, warmup: float = 0.0) -> Load:
    """Load 127.0.0.1:port with one connection for each of `requests`."""
    return uvloop.run(_Generator(expected).drive(port, requests, seconds, warmup))


class _Generator:
    def __init__(self, expected: bytes) -> None:
        self.expected = expected
        self.latencies: list[float] = []
        self.errors = 0
        self.first_error = ""
        self.stopping = False

    async def drive(self, port: int, requests: Sequence[bytes], seconds: float, warmup: float) -> Load:
        loop = asyncio.get_running_loop()
        connections = []
        for request in requests:
            _, connection = await loop.create_connection(partial(_Connection, self, request), "127.0.0.1", port)
            connections.append(connection)
        for connection in connections:
            connection.send()
        if warmup:
            await asyncio.sleep(warmup)
            self.latencies.clear()
        began, cpu = perf_counter(), time.process_time()
        await asyncio.sleep(seconds)
        elapsed, cpu = perf_counter() - began, time.process_time() - cpu
        latencies = sorted(self.latencies)
        self.stopping = True
        await asyncio.wait([connection.closed for connection in connections], timeout=DRAIN_SECONDS)
        for connection in connections:
            connection.transport.abort()
        return Load(
            answered=len(latencies),
            errors=self.errors,
            first_error=self.first_error,
            elapsed=elapsed,
            p50_ms=_percentile(latencies, 0.50) * 1000,
            p99_ms=_percentile(latencies, 0.99) * 1000,
            generator_cpu=cpu / elapsed,
        )

    def error(self, reason: str) -> None:
        self.errors += 1
        self.first_error = self.first_error or reason


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, generator: _Generator, request: bytes) -> None:
        self.generator = generator
        self.request = request
        self.closed = asyncio.get_running_loop().create_future()
        self.sent = 0.0
        self.pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        self.sent = perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if self.pending:
            data = self.pending + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self.pending = data
            return
        length = _content_length(data[:end])
        if length < 0:
            self.generator.error(f"no Content-Length: {data[:200]!r}")
            self.transport.close()
            return
        if len(data) < end + 4 + length:
            self.pending = data
            return
        self.pending = b""
        self._answered(data)

    def _answered(self, data: bytes) -> None:
        generator = self.generator
        now = perf_counter()
        if data.startswith(b"HTTP/1.1 200") and generator.expected in data:
            generator.latencies.append(now - self.sent)
        else:
            generator.error(f"unexpected answer: {data[:300]!r}")
        if generator.stopping:
            self.transport.close()
            return
        self.sent = now
        self.transport.write(self.request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.generator.stopping:
            self.generator.error(f"connection lost: {exc or 'closed by the server'}")
        if not self.closed.done():
            self.closed.set_result(None)


def _content_length(head: bytes) -> int:
    head = head.lower()
    start = head.find(b"\r\ncontent-length:")
    if start < 0:
        return -1
    stop = head.find(b"\r\n", start + 2)
    return int(head[start + 17 : stop if stop >= 0 else None])


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
