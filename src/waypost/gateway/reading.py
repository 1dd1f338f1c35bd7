"""How documents are read by agents that can only call tools: by the tool that fetches texts, where it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Context
from waypost.capabilities.registry import Registry
from waypost.gateway.directory import Item, start_link
from waypost.imports.rows import FOREIGN
from waypost.workers.offers import find_function_tool

ReadAt: TypeAlias = Callable[[str], str | None]
"""Where the document of a URI is also read, if the tool can read it there."""
May: TypeAlias = Callable[[Capability, str, Context], bool]
"""Whether somebody may use a capability under a name."""

_FETCH: Final = "skill::fetch"
_SCHEME: Final = "iii://"


class Reading:
    """Knows the calls that read documents."""

    def __init__(self, registry: Registry, may: May, read_at: ReadAt) -> None:
        self._registry = registry
        self._may = may
        self._read_at = read_at

    def links(self, item: Item, ctx: Context) -> list[dict[str, Any]]:
        """The call that reads an item, if it is a document and there is a call that whoever asks may make."""
        if item.kind != "document":
            return []
        tool = find_function_tool(self._registry, _FETCH)
        if tool is None or tool.metadata.hidden or not self._may(tool, tool.id, ctx):
            return []
        uri = self._uri(item.row, ctx)
        return [] if uri is None else [start_link(tool.id, arguments={"uri": uri})]

    def _uri(self, row: Capability, ctx: Context) -> str | None:
        """Where the tool reads a document."""
        if row.id.startswith(_SCHEME):
            return None if (row.owner or "").startswith(FOREIGN) else row.id
        uri = self._read_at(row.id)
        if uri is None or uri in self._registry[Kind.RESOURCE]:  # what is published there is another text
            return None
        return uri if self._may(self._registry.resource(uri), uri, ctx) else None
