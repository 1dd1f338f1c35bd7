"""A hub that shares a PostgreSQL with others: the tool `add`, workflows whose transition runs nothing, and workers."""

from __future__ import annotations

import os

from msgspec.structs import replace

from benchmarks.contenders.common import BUS, STORE, WORKER_PORT, options
from waypost import Hub
from waypost.config.models import Workflow
from waypost.kinds import convert
from waypost.settings import IN_PYTHON, Bus, Workers

FLOW = {
    "initialState": "here",
    "states": {
        "here": {"transitions": {"go": {"target": "there"}}},
        "there": {"transitions": {"go": {"target": "here"}}},
    },
}


def build() -> Hub:
    settings = replace(
        IN_PYTHON,
        bus=Bus(url=os.environ.get(BUS, "auto")),
        workers=Workers(port=int(os.environ[WORKER_PORT]), registry=False) if WORKER_PORT in os.environ else None,
    )
    hub = Hub("bench", version="1.0.0", store=os.environ[STORE], settings=settings)
    hub.workflow("flow", convert(FLOW, Workflow))

    @hub.tool
    async def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    touched: list[str] = []

    @hub.tool(hidden=True)
    async def touch() -> None:
        """Change the list of tools of all replicas: a workflow in the store comes, or goes again."""
        if touched:
            await hub.workflows.stored.remove(touched.pop())
        else:
            touched.append("touched")
            await hub.workflows.stored.create("touched", convert(FLOW, Workflow))

    return hub


if __name__ == "__main__":
    build().run("http", port=options().port)
