"""A hub that shares a PostgreSQL with others: the tool `add`, and workflows whose transition runs nothing."""

from __future__ import annotations

import os

from benchmarks.contenders.common import STORE, options
from waypost import Hub
from waypost.config.models import Workflow
from waypost.kinds import convert

FLOW = {
    "initialState": "here",
    "states": {
        "here": {"transitions": {"go": {"target": "there"}}},
        "there": {"transitions": {"go": {"target": "here"}}},
    },
}


def build() -> Hub:
    hub = Hub("bench", version="1.0.0", store=os.environ[STORE])
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
