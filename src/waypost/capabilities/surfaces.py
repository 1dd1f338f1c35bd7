"""What clients see of everything there is."""

from __future__ import annotations

from typing import Final, Literal

Surface = Literal["gateway", "full", "both"]
"""The seven tools of the gateway, every visible capability, or both."""

SEVEN: Final = frozenset(
    {
        "gateway.describe",
        "gateway.home",
        "gateway.search",
        "workflow.explain",
        "workflow.get",
        "workflow.start",
        "workflow.submit",
    }
)
"""The tools of the gateway, whatever is wired in."""
