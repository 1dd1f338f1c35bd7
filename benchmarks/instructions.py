"""Counts the instructions of a request, here and in another tree: `python -m benchmarks.instructions --against DIR`.

Rates vary with whatever else a machine does; instructions do not. A hub runs under valgrind and answers requests, once
few and once many: the difference, divided by the requests, is a request. Requests come one at a time. Where a worker
answers them, they come together, and so do the answers: the hub polls for the answer to a single one, and handles in
one turn of the event loop what came meanwhile. How much that is would depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks import wire, workers
from benchmarks.client import Client
from benchmarks.harness import free_port

HERE: Final = Path(__file__).parents[1]
FEW: Final = 100
MANY: Final = 500
ROUNDS: Final = 3
BATCH: Final = 20
"""Divides both numbers."""
START_TIMEOUT_S: Final = 120
CONFIGURATION: Final = """
server: {{name: instructions, version: "1", surface: both}}
toolkits: ["./adder.py"]
skills: {{core: []}}
search: {{ranking: weighted}}
workflows:
  flow: {{initialState: a, states: {{a: {{transitions: {{go: {{target: a}}}}}}}}}}
  work:
    initialState: a
    states:
      a:
        transitions:
          go:
            target: a
            inputSchema: {{type: object, properties: {{a: {{type: number}}, b: {{type: number}}}}}}
            executor: {{kind: capability, capability: add}}
            output: {{sum: $.output}}
{workers}
"""
ADDER: Final = """
from waypost import Toolkit, tool


class Adder(Toolkit):
    @tool(description="Add", input={"a": {"type": "number"}, "b": {"type": "number"}})
    async def add(self, args):
        return args["a"] + args["b"]
"""


class Hub:
    """A hub under valgrind: over HTTP if it is given a port, else over stdio."""

    def __init__(self, tree: Path, directory: Path, *, port: int | None = None, worker_port: int | None = None) -> None:
        section = "" if worker_port is None else f"workers: {{port: {worker_port}}}"
        (directory / "waypost.yaml").write_text(CONFIGURATION.format(workers=section))
        (directory / "adder.py").write_text(ADDER)
        self.port, self.worker_port = port, worker_port
        self._log = directory / "valgrind.log"
        self._last_id = 0
        self._process = subprocess.Popen(
            [
                *("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
                *(f"--log-file={self._log}", sys.executable, "-m", "waypost", "serve"),
                *(str(directory / "waypost.yaml"), "--data", str(directory / "data")),
                *(("--stdio",) if port is None else ("--port", str(port))),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0"},
        )
        if port is None:
            client = {"name": "count", "version": "1"}
            self.ask("initialize", {"protocolVersion": wire.LEGACY, "capabilities": {}, "clientInfo": client})
            self._write({"method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The result of a request."""
        self._last_id += 1
        self._write({"id": self._last_id, "method": method, "params": params})
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            answer = json.loads(line)
            if answer.get("id") == self._last_id:
                if "error" in answer or answer["result"].get("isError"):
                    raise RuntimeError(f"{method} failed: {answer}")
                return answer["result"]
        raise RuntimeError(f"The hub ended without an answer to {method}.")

    def connect(self) -> Client:
        """A connection to a hub over HTTP, as soon as it listens."""
        assert self.port is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                return Client(self.port, START_TIMEOUT_S)
            except ConnectionRefusedError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def stop(self) -> int:
        """End the hub and return the instructions that it took."""
        if self.port is not None:
            self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=START_TIMEOUT_S)
        found = re.search(r"I\s+refs:\s+([\d,]+)", self._log.read_text())
        if found is None:
            raise RuntimeError(f"valgrind counted nothing: {self._log.read_text()}")
        return int(found[1].replace(",", ""))

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()


def call(hub: Hub, name: str, arguments: dict[str, Any]) -> Any:
    """The structured result of a tool."""
    return hub.ask("tools/call", {"name": name, "arguments": arguments})["structuredContent"]


def start(hub: Hub, number: int) -> None:
    """Nothing: start to first answer, and the end."""


def call_tool(hub: Hub, number: int) -> None:
    for value in range(number):
        call(hub, "add", {"a": value, "b": 1})


def call_over_http(hub: Hub, number: int) -> None:
    assert hub.port is not None
    request = wire.modern(hub.port, "tools/call", wire.ADD)
    with hub.connect() as client:
        for _ in range(number):
            client.expect(request, wire.SUM)


def list_tools(hub: Hub, number: int) -> None:
    for _ in range(number):
        hub.ask("tools/list", {})


def start_workflows(hub: Hub, number: int) -> None:
    for _ in range(number):
        call(hub, "workflow.start", {"definitionId": "flow"})


def submit(hub: Hub, number: int) -> None:
    _submit(hub, number, "flow", {})


def submit_executor(hub: Hub, number: int) -> None:
    _submit(hub, number, "work", {"arguments": {"a": 1, "b": 2}})


def _submit(hub: Hub, number: int, definition: str, more: dict[str, Any]) -> None:
    instance = call(hub, "workflow.start", {"definitionId": definition})
    for version in range(instance["version"], instance["version"] + number):
        key = {"workflowId": instance["workflowId"], "expectedVersion": version}
        call(hub, "workflow.submit", {**key, "transition": "go", **more})


def call_worker(hub: Hub, number: int) -> None:
    assert hub.port is not None and hub.worker_port is not None
    request = wire.modern(hub.port, "tools/call", {"name": workers.TOOL, "arguments": {"a": 1, "b": 2}})
    with workers.serving(hub.worker_port, BATCH), ExitStack() as connections:
        clients = [connections.enter_context(hub.connect()) for _ in range(BATCH)]
        while workers.TOOL.encode() not in clients[0].send(wire.modern(hub.port, "tools/list", {})).body:
            time.sleep(0.5)  # it has not connected yet
        for _ in range(number // BATCH):
            if _call_together(clients, request) != {True}:
                raise RuntimeError("The worker did not answer.")


def _call_together(clients: list[Client], request: bytes) -> set[bool]:
    """Whether calls over several connections, all sent before the first answer, got the answer of the worker."""
    for client in clients:
        client.socket.sendall(request)
    return {workers.ANSWER in client.read().body for client in clients}


def call_between_workers(hub: Hub, number: int) -> None:
    assert hub.worker_port is not None
    workers.make_calls(hub.worker_port, BATCH, number // BATCH)


SCENARIOS: Final[dict[str, Callable[[Hub, int], None]]] = {
    "start": start,
    "tools/call": call_tool,
    "tools/call over HTTP": call_over_http,
    "tools/list": list_tools,
    "workflow.start": start_workflows,
    "workflow.submit": submit,
    "workflow.submit with executor": submit_executor,
    "tools/call of a worker": call_worker,
    "worker to worker": call_between_workers,
}
WITH_WORKERS: Final = {call_worker, call_between_workers}
OVER_HTTP: Final = {call_over_http, *WITH_WORKERS}
"""A hub that serves one client over stdio has no port for workers."""


def run(tree: Path, send: Callable[[Hub, int], None], number: int) -> int:
    """The instructions of a hub that answered so many requests."""
    port = free_port() if send in OVER_HTTP else None
    worker_port = free_port() if send in WITH_WORKERS else None
    with tempfile.TemporaryDirectory() as name:
        hub = Hub(tree, Path(name), port=port, worker_port=worker_port)
        send(hub, number)
        return hub.stop()


def count(tree: Path, send: Callable[[Hub, int], None]) -> int:
    """The instructions of a request, or of a start and its end."""
    if send is start:
        return run(tree, send, 0)
    few = run(tree, send, FEW)
    return (run(tree, send, MANY) - few) // (MANY - FEW)


def measure(trees: list[Path], send: Callable[[Hub, int], None], rounds: int) -> list[int]:
    """The median of several counts for each tree: timers of the hub fire at other moments each time."""
    counts = [[count(tree, send) for tree in trees] for _ in range(rounds)]
    return [int(statistics.median(values)) for values in zip(*counts, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--against", type=Path, metavar="DIR", help="a checkout of another revision")
    parser.add_argument("--only", choices=SCENARIOS, action="append")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    trees = [HERE] + ([options.against.resolve()] if options.against else [])
    for tree in trees:  # or the first start would count as much for its compilation
        subprocess.run([sys.executable, "-m", "compileall", "-q", tree / "src"], check=True)
    for name in options.only or SCENARIOS:
        values = measure(trees, SCENARIOS[name], options.rounds)
        ratio = f"  {values[0] / values[1] - 1:+.1%}" if len(values) > 1 else ""
        print(f"{name:30}" + "  ".join(f"{value:>13,}" for value in values) + ratio, flush=True)


if __name__ == "__main__":
    main()
