"""Workers: the processes that are connected to the worker socket, and their functions."""

from __future__ import annotations

from typing import Any, Final

from waypost.console.page import Page, View

MAX_WORKERS: Final = 40
MAX_NAMES: Final = 400
"""How many names of functions the page shows, of all workers together."""


async def load(view: View) -> dict[str, Any]:
    """The workers that are connected, the busiest first, with their functions."""
    answer = await view.api.get("workers")
    workers = sorted(answer["workers"], key=lambda one: (-one["active_invocations"], one["name"], one["id"]))
    each = max(3, MAX_NAMES // max(1, min(len(workers), MAX_WORKERS)))
    return {
        "address": answer["address"],
        "needs_token": answer["needsToken"],
        "workers": [{**one, "shown": one["functions"][:each]} for one in workers[:MAX_WORKERS]],
        "count": len(workers),
    }


PAGE: Final = Page(
    "workers", "Workers", "workers.html", load, section="Sources", icon="workers", shortcut="r", live=("tools",)
)
