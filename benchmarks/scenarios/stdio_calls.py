"""`tools/call` over stdio: one at a time, and with 64 in flight."""

from __future__ import annotations

import os
import select
from functools import partial
from time import perf_counter

from benchmarks import wire
from benchmarks.client import BadAnswer
from benchmarks.harness import MCP_SERVERS, Fleet, Server
from benchmarks.report import Key, Report, Settings, Target

ANSWER_SECONDS = 20.0
TAIL_BYTES = 4096
"""Enough to hold the last answer whole."""
WINDOWS = {"one at a time": 1, "64 in flight": 64}


def run(settings: Settings) -> Report:
    report = Report("tools/call `add` over stdio, a 2025-11-25 session")
    with Fleet(report) as fleet:
        pipes = {}
        for name in MCP_SERVERS:
            server = fleet.start(name, stdio=True)
            assert server is not None
            pipes[name] = Pipe(server)
            fleet.attempt(server, pipes[name].handshake)
        for case in WINDOWS:
            for _ in range(settings.rounds):
                for server in list(fleet.servers):
                    fleet.attempt(server, partial(_measure, report, server.name, case, pipes[server.name], settings))
    case = "64 in flight"
    report.targets = [
        Target(f"{case}: over mcp lowlevel", Key("waypost", case), Key("mcp lowlevel", case), at_least=30),
    ]
    return report


class Pipe:
    """A session over a contender's stdin and stdout, kept full with a window of calls."""

    def __init__(self, server: Server) -> None:
        assert server.process.stdin is not None and server.process.stdout is not None
        self.input = server.process.stdin.fileno()
        self.output = server.process.stdout.fileno()
        self.template = wire.stdio_call_template()
        self.next_id = 1
        self.ready = select.poll()
        self.ready.register(self.output, select.POLLIN)

    def handshake(self) -> None:
        before, after = wire.stdio_handshake()
        os.write(self.input, before)
        answer = self._read()
        while not answer.endswith(b"\n"):
            answer += self._read()
        if b"protocolVersion" not in answer:
            raise BadAnswer(f"initialize: {answer[:200]!r}")
        os.write(self.input, after)

    def drive(self, window: int, seconds: float) -> float:
        """Answers per second; the first and the last are looked at, the others are counted by their newlines."""
        began = now = perf_counter()
        deadline = began + seconds
        self._write(window)
        waiting, counted = window, 0
        head = tail = b""
        while waiting:
            data = self._read()
            head = head if counted else head + data
            tail = (tail + data)[-TAIL_BYTES:]
            arrived = data.count(b"\n")
            waiting -= arrived
            if now < deadline:
                counted += arrived
                now = perf_counter()
                self._write(arrived)
                waiting += arrived
        _check(head.partition(b"\n")[0])
        _check(tail.rstrip(b"\n").rpartition(b"\n")[2])
        return counted / (now - began)

    def _write(self, count: int) -> None:
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        os.write(self.input, b"".join(map(self.template.__mod__, ids)))

    def _read(self) -> bytes:
        if not self.ready.poll(ANSWER_SECONDS * 1000):
            raise BadAnswer(f"no answer in {ANSWER_SECONDS:g} s")
        data = os.read(self.output, 1 << 20)
        if not data:
            raise BadAnswer("stdout was closed")
        return data


def _measure(report: Report, name: str, case: str, pipe: Pipe, settings: Settings) -> None:
    pipe.drive(WINDOWS[case], settings.warmup)
    report.row(name, case, "req/s").add(pipe.drive(WINDOWS[case], settings.seconds))


def _check(answer: bytes) -> None:
    if wire.SUM not in answer:
        raise BadAnswer(f"unexpected answer: {answer[:200]!r}")
