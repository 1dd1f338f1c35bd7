"""The lists of a registry as clients page through them: sorted, and encoded once per version and revision."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal
from weakref import WeakKeyDictionary

import msgspec

from waypost.capabilities.capability import Capability, Kind, needs_portable_names
from waypost.capabilities.registry import Registry
from waypost.wire import downgrade, messages
from waypost.wire.definitions import Definition, Implementation
from waypost.wire.params import decode_cursor, encode_cursor

WIRE_KEYS: Final = {
    Kind.TOOL: "tools",
    Kind.PROMPT: "prompts",
    Kind.RESOURCE: "resources",
    Kind.TEMPLATE: "resourceTemplates",
}
_MAX_CACHED_PAGES: Final = 1024


class Page(msgspec.Struct):
    """Part of a list, and the cursor of the next part."""

    items: Sequence[Capability | Definition]
    next_cursor: str | None = None


class Lists:
    """The encoded lists of one registry."""

    def __init__(
        self,
        registry: Registry,
        *,
        page_size: int,
        names: Literal["auto", "canonical", "portable"] = "canonical",
        only: frozenset[str] | None = None,
    ) -> None:
        self._registry = registry
        self.only = only
        """The tools to list, where not all are."""
        self._page_size = page_size
        self._portable = names == "portable"
        self._portable_lists = (
            Lists(registry, page_size=page_size, names="portable", only=only) if names == "auto" else None
        )
        self._by_name: tuple[int, list[Capability]] | None = None
        """The tools in the order of their portable names, at a revision of the registry."""
        # Nothing removes a page when the registry changes: its revision shows that it is outdated.
        self._pages: dict[tuple[Kind, str, str | None], tuple[int, bytes]] = {}
        # A capability that is replaced takes its encoded rows with it.
        self._encoded: WeakKeyDictionary[Capability, dict[tuple[str, str], bytes]] = WeakKeyDictionary()

    @property
    def differ_by_client(self) -> bool:
        """Whether some clients get other names of tools than the rest."""
        return self._portable_lists is not None

    def for_client(self, client: Implementation | None) -> Lists:
        """The lists with the names that a client takes; an unknown client takes canonical ones."""
        if self._portable_lists is None or client is None or not needs_portable_names(client.name):
            return self
        return self._portable_lists

    def page(self, kind: Kind, cursor: str | None, version: str) -> bytes:
        """A page of all visible items, encoded for `version`; cached, because it is the same for all clients."""
        revision = self._registry[kind].revision
        kept = self._pages.get((kind, version, cursor))
        if kept is not None and kept[0] == revision:
            return kept[1]
        body = self.encode(kind, self.select(kind, cursor), version)
        if len(self._pages) >= _MAX_CACHED_PAGES:  # clients choose cursors, so there may be any number of pages
            self._pages.clear()
        self._pages[kind, version, cursor] = (revision, body)
        return body

    def select(
        self,
        kind: Kind,
        cursor: str | None,
        *,
        include_hidden: bool = False,
        shows: Callable[[Capability], bool] | None = None,
    ) -> Page:
        """A page of the registered items for which `shows` holds; hidden ones only if asked for."""
        items: list[Capability] = []
        only = self.only if kind is Kind.TOOL and not include_hidden else None
        for capability in self._after(kind, decode_cursor(cursor)):
            if (capability.metadata.hidden and not include_hidden) or not (shows is None or shows(capability)):
                continue
            if only is not None and capability.id not in only:
                continue
            if len(items) == self._page_size:
                # A cursor is the last name, not an offset: while the list changes, pages neither repeat nor skip items.
                return Page(items, encode_cursor(self.name_of(items[-1])))
            items.append(capability)
        return Page(items)

    def _after(self, kind: Kind, key: str | None) -> Iterable[Capability]:
        """The items behind `key`, in the order of the names that are published."""
        table = self._registry[kind]
        if not self._portable or kind is not Kind.TOOL:
            return table.after(key)
        if self._by_name is None or self._by_name[0] != table.revision:
            self._by_name = (table.revision, sorted(table, key=self.name_of))
        ordered = self._by_name[1]
        return ordered if key is None else ordered[bisect_right(ordered, key, key=self.name_of) :]

    def name_of(self, capability: Capability) -> str:
        """The name that is published."""
        is_portable = self._portable and capability.kind is Kind.TOOL
        return self._registry.portable_name(capability) if is_portable else capability.id

    def encode(self, kind: Kind, page: Page, version: str) -> bytes:
        """The result of a list method."""
        rows = b",".join(self._rows(page.items, version))
        more = b"" if page.next_cursor is None else b',"nextCursor":' + messages.encode(page.next_cursor)
        return b'{"%b":[%b]%b}' % (WIRE_KEYS[kind].encode(), rows, more)

    def _rows(self, items: Iterable[Capability | Definition], version: str) -> Iterable[bytes]:
        for item in items:
            if not isinstance(item, Capability):
                yield messages.encode(downgrade.definition(item, version))
                continue
            yield self._row(item, version)

    def _row(self, capability: Capability, version: str) -> bytes:
        definition = self._to_published(capability)
        # By row, beside the cached pages: after a change of one tool of thousands, only that one is encoded again.
        kept = self._encoded.setdefault(capability, {})
        row = kept.get((version, definition.name))
        if row is None:
            row = kept[version, definition.name] = messages.encode(downgrade.definition(definition, version))
        return row

    def _to_published(self, capability: Capability) -> Definition:
        definition = capability.definition
        if not self._portable or capability.kind is not Kind.TOOL:
            return definition
        name = self._registry.portable_name(capability)
        if name == definition.name:
            return definition
        return msgspec.structs.replace(definition, name=name, title=definition.title or definition.name)
