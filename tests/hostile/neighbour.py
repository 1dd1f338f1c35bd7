"""A normal client beside a hostile one: what it has to wait, and how much memory the hub takes meanwhile."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.fuzz.hub_under_test import BOB, HubUnderTest
from tests.fuzz.senders import HttpSender, http_request, rpc
from waypost.wire.params import CLIENT_CAPABILITIES, LOG_LEVEL, PROTOCOL_VERSION
from waypost.wire.versions import V2026_07_28

PAUSE_S: Final = 0.01
MIN_P99_S: Final = 0.05
"""A quiet run on a shared machine may be luckier than this."""
MIN_MEDIAN_S: Final = 0.004
MIN_MEMORY_BYTES: Final = 80 << 20
"""A quiet hub as small as this one doubles its memory with a few large messages at once."""
MAX_TURN_S: Final = 0.2
"""CPU time of a turn of the event loop. The hub reports 0.1 s and more; a core shared with others is half as fast."""
_ENVELOPE: Final = {PROTOCOL_VERSION: V2026_07_28, CLIENT_CAPABILITIES: {}}


class Seen(NamedTuple):
    """Measurements of a normal client: seconds per request, failures, and the hub's peak memory."""

    median: float
    p99: float
    failures: list[str]
    memory: int
    requests: int


def call_request(port: int, key: str, tool: str, arguments: Any, level: str = "", **params: Any) -> bytes:
    """A stateless call of a tool as an HTTP request; with a level, its log messages are asked for."""
    headers = {
        "Authorization": f"Bearer {key}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": V2026_07_28,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    meta = {**_ENVELOPE, LOG_LEVEL: level} if level else _ENVELOPE
    body = rpc("tools/call", {"name": tool, "arguments": arguments, "_meta": meta, **params})
    return http_request("POST", "/mcp", headers, body, port)


def visit(under_test: HubUnderTest, goes_on: Callable[[], bool]) -> Seen:
    """Use the hub as a normal client does, as long as the function says."""
    calls: list[tuple[str, Any]] = [
        ("add", {"a": 1, "b": 2}),
        ("echo", {"text": "hello"}),
        ("gateway.search", {"query": "add numbers"}),
        ("workflow.explain", {"definitionId": "release"}),
        ("blocking", {"text": "thread"}),
    ]
    requests = [call_request(under_test.port, BOB, name, arguments) for name, arguments in calls]
    sender, memory = HttpSender(under_test.port), 0
    times: list[float] = []
    failures: list[str] = []
    while goes_on() or len(times) < 50:
        for request in requests:
            began = time.perf_counter()
            [answer] = sender.send([request])
            times.append(time.perf_counter() - began)
            if answer.status != 200 or json.loads(answer.body).get("result", {}).get("isError"):
                failures.append(f"{answer.status}: {answer.body[:300]!r}")
            memory = max(memory, under_test.memory)
            time.sleep(PAUSE_S)
    sender.close()
    return Seen(statistics.median(times), statistics.quantiles(times, n=100)[98], failures, memory, len(times))


def find_faults(under_test: HubUnderTest, quiet: Seen, beside: Seen) -> list[str]:
    """Problems of a run beside an attacker, compared with the quiet one.

    Wall-clock times have floors, since other programs use the machine too. Turns of the event loop are judged by their
    CPU time, which other programs do not change.
    """
    faults = []
    if beside.failures:
        faults.append(f"{len(beside.failures)} of {beside.requests} requests failed: {beside.failures[:3]}")
    if beside.median > 5 * max(quiet.median, MIN_MEDIAN_S):
        faults.append(f"the median rose from {quiet.median * 1000:.1f} to {beside.median * 1000:.1f} ms")
    if beside.p99 > 5 * max(quiet.p99, MIN_P99_S):
        faults.append(f"p99 rose from {quiet.p99 * 1000:.1f} to {beside.p99 * 1000:.1f} ms")
    if beside.memory > 2 * max(quiet.memory, MIN_MEMORY_BYTES):
        faults.append(f"memory rose from {quiet.memory >> 20} to {beside.memory >> 20} MiB")
    faults += under_test.find_turns(longer_than=MAX_TURN_S)
    if not under_test.is_alive:
        faults.append("the hub ended")
    return faults + under_test.crashes
