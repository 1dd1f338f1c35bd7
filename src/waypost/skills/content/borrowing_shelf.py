"""A shelf that also shows skills which stand elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from waypost.skills.content.ids import INDEX
from waypost.skills.content.ports import Data, Document, Kind, Shelf, Source
from waypost.skills.content.records import now


class BorrowingShelf:
    """What is kept on a shelf, and what sources have; of two under one id, the one that is kept."""

    def __init__(self, shelf: Shelf, sources: Sequence[Source]) -> None:
        self._shelf = shelf
        self._sources = sources
        self._seen: dict[str, Data] | None = None
        """What sources had last, and since when."""

    async def get(self, kind: Kind, key: str) -> Data | None:
        """What is kept under a key, or what a source has."""
        found = await self._shelf.get(kind, key)
        if found is not None or kind != "skills":
            return found
        return self._borrowed().get(key)

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        """Keep something, whatever was there before."""
        await self._shelf.put(kind, key, value)

    async def remove(self, kind: Kind, key: str) -> bool:
        """Keep it no more; whether there was anything."""
        return await self._shelf.remove(kind, key)

    async def all(self, kind: Kind) -> list[Data]:
        """Everything that is kept, and everything else that sources have."""
        kept = await self._shelf.all(kind)
        if kind != "skills":
            return kept
        known = {row.get("id") for row in kept}
        return kept + [row for key, row in self._borrowed().items() if key not in known]

    async def mark(self) -> object:
        """That of what is kept, and what sources have."""
        kept = await self._shelf.mark()
        return None if kept is None else (kept, [tuple(source.documents()) for source in self._sources])

    def _borrowed(self) -> dict[str, Data]:
        seen: dict[str, Data] = {}
        for source in self._sources:
            for document in source.documents():
                if document.id not in seen and document.id != INDEX:
                    seen[document.id] = self._row(document)
        self._seen = seen
        return seen

    def _row(self, document: Document) -> Data:
        before = (self._seen or {}).get(document.id)
        now_there = (document.body, document.owner, document.uri)
        if before is not None and (before["skill"], before["owner"], before["home"]) == now_there:
            return before
        return {
            "id": document.id,
            "skill": document.body,
            "registered_at": now(),
            "owner": document.owner,
            "borrowed": True,
            "home": document.uri,
        }
