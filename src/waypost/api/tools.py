"""Tools: which there are, and whose they are."""

from __future__ import annotations

from typing import Final

import msgspec

from waypost.api.operated import Operated
from waypost.api.routing import Route


class ToolRow(msgspec.Struct, frozen=True):
    """A tool of the catalog."""

    name: str
    owner: str | None = None
    category: str | None = None
    hidden: bool = False


class ToolRows(msgspec.Struct, frozen=True):
    """All tools, hidden ones too, by name."""

    tools: list[ToolRow]


async def list_tools(hub: Operated) -> ToolRows:
    """All tools."""
    return ToolRows([ToolRow(row.id, row.owner, row.category, row.hidden) for row in hub.registry.tools])


ROUTES: Final = (
    Route(
        "GET", "/api/v1/tools", list_tools, "All tools", answer=ToolRows([ToolRow("skill:greet", "dynamic", "Skills")])
    ),
)
