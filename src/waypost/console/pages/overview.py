"""Overview: the health of the hub, its calls, what needs a person now, and the tokens of its surface."""

from __future__ import annotations

from typing import Any, Final

from waypost.console.page import Page, View
from waypost.console.pages.catalog import link_to

_PLACES: Final = {
    "approval": ("Approval", "approvals/{id}"),
    "unknown_outcome": ("Unknown outcome", "instances/{id}"),
    "failed_chain": ("Failed step", "instances/{id}"),
    "upstream_down": ("Upstream down", "upstreams"),
    "held_definition": ("To approve", "upstreams"),
    "open_breaker": ("Circuit open", "catalog/{id}"),
}
"""What each need is called, and the page where a person sees to it."""


MAX_REPLICAS: Final = 20
MAX_NEEDS: Final = 20
"""How many things of one kind that need a person the API lists."""


async def load(view: View) -> dict[str, Any]:
    """The state of the hub; the plots load their points themselves."""
    overview = await view.api.get("overview")
    tokens = overview["tokens"]
    everything = tokens["everything"]["tokens"]
    replicas = (await view.api.get("replicas"))["replicas"]
    return {
        "replicas": replicas[:MAX_REPLICAS],
        "replica_count": len(replicas),
        "differs": any(one["differs"] for one in replicas),
        "overview": overview,
        "metrics": overview["metrics"],
        "most_of_a_kind": MAX_NEEDS,
        "attention": [_describe(one) for one in overview["attention"]],
        "tokens": tokens,
        "saved": round(100 * (1 - tokens["published"]["tokens"] / everything)) if everything else 0,
    }


def _describe(item: dict[str, str]) -> dict[str, str]:
    label, place = _PLACES[item["need"]]
    return {**item, "label": label, "place": place.format(id=link_to(item["id"]))}


PAGE: Final = Page(
    "",
    "Overview",
    "overview.html",
    load,
    section="Now",
    icon="overview",
    shortcut="o",
    live=("approvals", "instances", "upstreams", "breakers"),
)
