"""Counts the instructions of a request, here and in another tree: `python -m benchmarks.instructions --against DIR`.

Rates vary with whatever else a machine does; instructions do not. A hub runs under valgrind and answers over stdio, one
request at a time, once with few requests and once with many: the difference, divided by the requests, is a request.
Calls from worker to worker go over the worker socket, some at a time: the hub polls for the answer to a single one, and
how often it does so depends on the machine.
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
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import workers
from benchmarks.harness import free_port

HERE: Final = Path(__file__).parents[1]
FEW: Final = 100
MANY: Final = 500
ROUNDS: Final = 3
IN_FLIGHT: Final = 16
WORKER_CALL: Final = "worker call"
CONFIGURATION: Final = """
server: {name: instructions, version: "1", surface: both}
toolkits: ["./adder.py"]
skills: {core: []}
search: {ranking: weighted}
workflows:
  flow: {initialState: a, states: {a: {transitions: {go: {target: a}}}}}
"""
ADDER: Final = """
from waypost import Toolkit, tool


class Adder(Toolkit):
    @tool(description="Add", input={"a": {"type": "number"}, "b": {"type": "number"}})
    async def add(self, args):
        return args["a"] + args["b"]
"""


class Count(NamedTuple):
    start: int
    """Instructions from the start of the process to the answer to `initialize`, and its end."""
    request: int


class Server:
    """A hub over stdio under valgrind."""

    def __init__(self, tree: Path, directory: Path, *options: str) -> None:
        self._log = directory / "valgrind.log"
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process = subprocess.Popen(
            [
                *("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
                *(f"--log-file={self._log}", sys.executable, "-m", "waypost", "serve"),
                *(str(directory / "waypost.yaml"), "--data", str(directory / "data"), *options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._last_id = 0

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        while line := self._process.stdout.readline():
            answer = json.loads(line)
            if answer.get("id") == self._last_id:
                if "error" in answer or answer["result"].get("isError"):
                    raise RuntimeError(f"{method} failed: {answer}")
                return answer["result"]
        raise RuntimeError(f"The hub ended without an answer to {method}.")

    def initialize(self) -> None:
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "count", "version": "1"}}
        self.ask("initialize", client)
        assert self._process.stdin is not None
        self._process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def stop(self) -> int:
        """End the hub and return the instructions that it took."""
        if self._last_id == 0:  # it serves workers, and does not wait for the end of its input
            self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=120)
        found = re.search(r"I\s+refs:\s+([\d,]+)", self._log.read_text())
        if found is None:
            raise RuntimeError(f"valgrind counted nothing: {self._log.read_text()}")
        return int(found[1].replace(",", ""))


def send_calls(server: Server, number: int) -> None:
    for value in range(number):
        server.ask("tools/call", {"name": "add", "arguments": {"a": value, "b": 1}})


def send_lists(server: Server, number: int) -> None:
    for _ in range(number):
        server.ask("tools/list", {})


def send_submits(server: Server, number: int) -> None:
    started = server.ask("tools/call", {"name": "workflow.start", "arguments": {"definitionId": "flow"}})
    instance = started["structuredContent"]
    for version in range(instance["version"], instance["version"] + number):
        arguments = {"workflowId": instance["workflowId"], "transition": "go", "expectedVersion": version}
        server.ask("tools/call", {"name": "workflow.submit", "arguments": arguments})


SCENARIOS: Final = {"tools/call": send_calls, "tools/list": send_lists, "workflow.submit": send_submits}


def run_over_stdio(tree: Path, directory: Path, scenario: str, number: int) -> int:
    """The instructions of a hub that answered so many requests."""
    server = Server(tree, directory, "--stdio")
    server.initialize()
    if number:
        SCENARIOS[scenario](server, number)
    return server.stop()


def run_with_workers(tree: Path, directory: Path, number: int) -> int:
    """The instructions of a hub that passed on so many calls between workers."""
    port = free_port()
    with (directory / "waypost.yaml").open("a") as file:
        file.write(f"workers: {{port: {port}}}\n")
    server = Server(tree, directory, "--port", str(free_port()))
    workers.make_calls(port, IN_FLIGHT, number)
    return server.stop()


def count(tree: Path, scenario: str) -> Count:
    totals = []
    for number in (0, FEW, MANY):
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            (directory / "waypost.yaml").write_text(CONFIGURATION)
            (directory / "adder.py").write_text(ADDER)
            if scenario == WORKER_CALL:
                totals.append(run_with_workers(tree, directory, number))
            else:
                totals.append(run_over_stdio(tree, directory, scenario, number))
    return Count(totals[0], (totals[2] - totals[1]) // (MANY - FEW))


def measure(tree: Path, scenario: str, rounds: int) -> Count:
    """The median of several counts: timers of the hub fire at other moments each time."""
    counts = [count(tree, scenario) for _ in range(rounds)]
    return Count(*(int(statistics.median(values)) for values in zip(*counts, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--against", type=Path, metavar="DIR", help="a checkout of another revision")
    parser.add_argument("--only", choices=[*SCENARIOS, WORKER_CALL], action="append")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    trees = [HERE] + ([options.against.resolve()] if options.against else [])
    for scenario in options.only or [*SCENARIOS, WORKER_CALL]:
        counts = [measure(tree, scenario, options.rounds) for tree in trees]
        for name in Count._fields:
            values = [getattr(one, name) for one in counts]
            ratio = f"  {values[0] / values[1] - 1:+.1%}" if len(values) > 1 else ""
            print(f"{scenario:16} {name:8} " + "  ".join(f"{value:>13,}" for value in values) + ratio, flush=True)


if __name__ == "__main__":
    main()
