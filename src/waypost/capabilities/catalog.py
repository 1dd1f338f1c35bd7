"""The catalog tool: full definitions of everything registered, hidden or not, for agents that look further."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Context
from waypost.capabilities.tools import Tool

_SECTIONS: Final = {kind.value: kind for kind in Kind}


class Catalog(
    Tool,
    name="catalog",
    input_schema={
        "type": "object",
        "properties": {
            "type": {
                "type": "string",
                "enum": [*_SECTIONS, "all"],
                "default": "all",
                "description": "Which section to list",
            },
            "query": {"type": "string", "description": "Text to find in names, descriptions and URIs"},
            "category": {"type": "string", "description": "Only entries of this category"},
            "include_hidden": {
                "type": "boolean",
                "default": True,
                "description": "Whether entries that lists leave out are shown",
            },
        },
    },
    annotations={"read_only_hint": True},
):
    """List everything this server offers, with full schemas, including items that the ordinary lists leave out."""

    async def execute(self, args: dict[str, Any], ctx: Context) -> dict[str, Any]:
        """The requested sections, filtered."""
        wanted = args.get("type", "all")
        return {
            section: [_entry(row) for row in ctx.registry[kind] if _matches(row, args)]
            for section, kind in _SECTIONS.items()
            if wanted in (section, "all")
        }


def _matches(row: Capability, args: dict[str, Any]) -> bool:
    if row.hidden and not args.get("include_hidden", True):
        return False
    query, category = args.get("query"), args.get("category")
    if query and not any(query.casefold() in text.casefold() for text in _texts(row)):
        return False
    return category is None or (row.category is not None and row.category.casefold() == category.casefold())


def _texts(row: Capability) -> list[str]:
    return [row.id, row.definition.name, row.definition.description or ""]


def _entry(row: Capability) -> dict[str, Any]:
    entry: dict[str, Any] = msgspec.to_builtins(row.definition)
    entry["hidden"] = row.hidden
    if row.kind is Kind.TOOL and row.category is not None:
        entry["category"] = row.category
    return entry
