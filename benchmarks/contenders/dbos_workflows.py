"""DBOS: a workflow of one step, durable on PostgreSQL; asked for a number of them with so many in flight."""

from __future__ import annotations

import asyncio
import os
import sys
from time import perf_counter
from typing import Any

from dbos import DBOS

from benchmarks.stores.child import answer_questions
from benchmarks.stores.closed_loop import pace
from benchmarks.stores.moves import BODY


@DBOS.step()
async def step(body: str) -> str:
    return body


@DBOS.workflow()
async def workflow(body: str) -> str:
    return await step(body)


async def run(count: int, in_flight: int) -> dict[str, float]:
    """A closed loop of clients until `count` workflows are done."""
    left, latencies = iter(range(count)), list[float]()

    async def client() -> None:
        for _ in left:
            began = perf_counter()
            await workflow(BODY)
            latencies.append(perf_counter() - began)

    began = perf_counter()
    await asyncio.gather(*(client() for _ in range(in_flight)))
    return vars(pace(latencies, perf_counter() - began))


def main() -> None:
    DBOS(config={"name": "bench", "system_database_url": sys.argv[1], "log_level": "ERROR"})
    DBOS.launch()
    with asyncio.Runner() as runner:

        def answer(question: Any) -> Any:
            return runner.run(run(question["count"], question["in_flight"]))

        answer_questions(answer)
    sys.stderr.flush()
    os._exit(0)  # its threads would take seconds to end


if __name__ == "__main__":
    main()
