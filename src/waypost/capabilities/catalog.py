"""The catalog tool: full definitions of everything registered, hidden or not, for agents that look further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Context
from waypost.capabilities.registry import Registry
from waypost.capabilities.tools import Tool

_SECTIONS: Final = {kind.value: kind for kind in Kind}


class Catalog(Tool, name="catalog", annotations={"read_only_hint": True}):
    """List everything this server offers, with full schemas, including items that the ordinary lists leave out."""

    type: Annotated[Literal["tools", "prompts", "resources", "resource_templates", "all"], "Which section to list"] = (
        "all"
    )
    query: Annotated[str, "Text to find in names, descriptions and URIs"] = ""
    category: Annotated[str | None, "Only entries of this category"] = None
    include_hidden: Annotated[bool, "Whether entries that lists leave out are shown"] = True

    async def execute(self, ctx: Context) -> dict[str, Any]:
        """The requested sections, filtered."""
        sections = list_everything(ctx.registry, lambda row: ctx.shows(row) and self._shows(row))
        return sections if self.type == "all" else {self.type: sections[self.type]}

    def _shows(self, row: Capability) -> bool:
        if row.metadata.hidden and not self.include_hidden:
            return False
        if not any(self.query.casefold() in text.casefold() for text in _texts(row)):
            return False
        if self.category is None:
            return True
        return row.metadata.category is not None and row.metadata.category.casefold() == self.category.casefold()


def list_everything(
    registry: Registry, shows: Callable[[Capability], bool] = lambda _: True
) -> dict[str, list[dict[str, Any]]]:
    """The definitions of everything in a registry, by section."""
    return {section: [_entry(row) for row in registry[kind] if shows(row)] for section, kind in _SECTIONS.items()}


def _texts(row: Capability) -> list[str]:
    return [row.id, row.definition.name, row.definition.description or ""]


def _entry(row: Capability) -> dict[str, Any]:
    entry: dict[str, Any] = msgspec.to_builtins(row.definition)
    entry["hidden"] = row.metadata.hidden
    if row.kind is Kind.TOOL and row.metadata.category is not None:
        entry["category"] = row.metadata.category
    return entry
