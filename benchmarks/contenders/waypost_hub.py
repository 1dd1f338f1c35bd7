"""Waypost by its public API, as a user would write it."""

from __future__ import annotations

from typing import Any

from benchmarks.contenders.common import extra_tools, lookup, options
from waypost import Hub


def build(total: int, **settings: Any) -> Hub:
    hub = Hub("bench", version="1.0.0", **settings)

    @hub.tool
    async def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    touched: list[str] = []

    @hub.tool(hidden=True)
    async def touch() -> None:
        """Change the list of tools: one comes, or goes again."""
        if touched:
            hub.remove(touched.pop())
        else:
            touched.append("touched")
            hub.tool(name="touched", description="Look up the latest records.")(lookup)

    for name, description in extra_tools(total):
        hub.tool(name=name, description=description)(lookup)
    return hub


def main(**settings: Any) -> None:
    chosen = options()
    bench = build(chosen.tools, **settings)
    if chosen.stdio:
        bench.run()
    else:
        bench.run("http", port=chosen.port)


if __name__ == "__main__":
    main()
