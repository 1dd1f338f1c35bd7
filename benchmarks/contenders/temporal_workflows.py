"""Temporal: updates of waiting workflows, durable in the SQLite file of its development server.

An update is what comes nearest to a submit: it reaches an instance that waits, changes it, and is answered when the
change is durable. Runs in the virtual environment that `TEMPORAL_VENV` names, which has nothing of Waypost's, so it
imports nothing of the other contenders and speaks their protocol of one JSON line each way by itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

BODY = "x" * 300
QUEUE = "bench"
START_TIMEOUT_S = 25.0


@workflow.defn
class Steps:
    """Waits for steps until it is ended from outside."""

    @workflow.init  # type: ignore[untyped-decorator]
    def __init__(self) -> None:
        self._version = 1
        self._body = ""

    @workflow.run  # type: ignore[untyped-decorator]
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update  # type: ignore[untyped-decorator]
    async def step(self, body: str) -> int:
        self._body = body
        self._version += 1
        return self._version


def start_server(folder: str, port: int) -> subprocess.Popen[bytes]:
    """Start the development server on a file in a folder."""
    program = Path(sys.executable).with_name("temporal")
    where = ["--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(Path(folder) / "temporal.db")]
    command = [str(program), "server", "start-dev", "--headless", "--log-level", "error", *where]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


async def connect(port: int) -> Client:
    """A client, as soon as the server answers."""
    until = perf_counter() + START_TIMEOUT_S
    while True:
        try:
            return await Client.connect(f"127.0.0.1:{port}")
        except RuntimeError:
            if perf_counter() > until:
                raise
            await asyncio.sleep(0.1)


async def run(client: Client, count: int, in_flight: int) -> dict[str, float]:
    """A closed loop of clients, each with a workflow of its own, until `count` steps are durable."""
    handles: list[WorkflowHandle[Any, Any]] = []
    for number in range(in_flight):
        name = f"steps-{perf_counter()}-{number}"
        handles.append(await client.start_workflow(Steps.run, id=name, task_queue=QUEUE))
    await asyncio.gather(*(handle.execute_update(Steps.step, BODY) for handle in handles))  # it is loaded by now
    left, latencies = iter(range(count)), list[float]()

    async def visit(handle: WorkflowHandle[Any, Any]) -> None:
        for _ in left:
            began = perf_counter()
            await handle.execute_update(Steps.step, BODY)
            latencies.append(perf_counter() - began)

    began = perf_counter()
    await asyncio.gather(*map(visit, handles))
    elapsed = perf_counter() - began
    await asyncio.gather(*(handle.terminate() for handle in handles))
    ordered = sorted(latencies)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return {"rate": len(ordered) / elapsed, "p50_ms": p50 * 1000, "p99_ms": p99 * 1000}


async def answer_questions(port: int) -> None:
    """Answer line by line until stdin ends."""
    client = await connect(port)
    loop = asyncio.get_running_loop()
    runner = UnsandboxedWorkflowRunner()  # its sandbox costs a worker time, and is not what is compared
    async with Worker(client, task_queue=QUEUE, workflows=[Steps], workflow_runner=runner):
        print('"ready"', flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            question = json.loads(line)
            print(json.dumps(await run(client, question["count"], question["in_flight"])), flush=True)


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    server = start_server(sys.argv[1], port)
    try:
        asyncio.run(answer_questions(port))
    finally:
        server.terminate()
        server.wait(timeout=8)
    sys.stderr.flush()
    os._exit(0)  # its threads would take seconds to end


if __name__ == "__main__":
    main()
