"""Skills and prompts in the store of the hub."""

from __future__ import annotations

from typing import Final

from waypost.errors import StaleVersion
from waypost.skills.content.ports import Data, Kind
from waypost.stores.records import Document, Documents, shorten_key
from waypost.stores.store import Store

_PAGE: Final = 500
_KINDS: Final[tuple[Kind, ...]] = ("skills", "prompts")


class StoreShelf:
    """A shelf over the documents of a store; the last who writes wins, on whichever hub."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, kind: Kind, key: str) -> Data | None:
        """What is kept under a key."""
        found = await self._documents(kind).get(shorten_key(key))
        return None if found is None else _value(found)

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        """Keep something, whatever was there before."""
        documents, place = self._documents(kind), shorten_key(key)
        while True:
            found = await documents.get(place)
            try:
                await documents.put(place, value, 0 if found is None else found.version)
            except StaleVersion:
                continue  # another hub was first
            return

    async def remove(self, kind: Kind, key: str) -> bool:
        """Keep it no more; whether there was anything."""
        documents, place = self._documents(kind), shorten_key(key)
        while (found := await documents.get(place)) is not None:
            try:
                await documents.remove(place, found.version)
            except StaleVersion:
                continue  # another hub was first
            return True
        return False

    async def all(self, kind: Kind) -> list[Data]:
        """Everything that is kept."""
        documents, rows, after = self._documents(kind), [], ""
        while page := await documents.page(after, _PAGE):
            rows += [value for value in map(_value, page) if value is not None]
            after = page[-1].id
        return rows

    async def mark(self) -> object:
        """How often hubs on this store have changed any."""
        revisions = await self._store.revisions()
        return [revisions.get(kind, 0) for kind in _KINDS]

    def _documents(self, kind: Kind) -> Documents:
        store = self._store
        return store.skills if kind == "skills" else store.prompts


def _value(document: Document) -> Data | None:
    return document.value if isinstance(document.value, dict) else None
