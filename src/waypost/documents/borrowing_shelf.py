"""A shelf that also shows skills which stand elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from waypost.documents.access import OPERATOR
from waypost.documents.ports import Data, DocumentStore, Kind, Source, SourceDocument
from waypost.documents.records import now
from waypost.documents.uris import INDEX

_log: Final = logging.getLogger(__name__)


class LayeredDocumentStore:
    """What is kept on a shelf, and what sources have.

    Of two under one id the source's is shown, unless an operator put the other there.
    """

    def __init__(self, shelf: DocumentStore, sources: Sequence[Source]) -> None:
        self._shelf = shelf
        self._sources = sources
        self._seen: dict[str, Data] | None = None
        """What sources had last, and since when."""
        self._left_out: set[str] = set()

    async def get(self, kind: Kind, key: str) -> Data | None:
        """What a source has under a key, or what is kept."""
        found = await self._shelf.get(kind, key)
        if kind != "skills" or _is_operators(found) or not self._has(key):
            return found
        return self._borrowed().get(key, found)

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        """Keep something, whatever was there before."""
        await self._shelf.put(kind, key, value)

    async def remove(self, kind: Kind, key: str) -> bool:
        """Keep it no more; whether there was anything."""
        return await self._shelf.remove(kind, key)

    async def all(self, kind: Kind) -> list[Data]:
        """Everything that sources have, and everything else that is kept."""
        kept = await self._shelf.all(kind)
        if kind != "skills":
            return kept
        borrowed = self._borrowed()
        left_out = {key for row in kept if (key := row.get("id")) in borrowed and not _is_operators(row)}
        for key in sorted(left_out - self._left_out):
            _log.warning("skills: %s is left out as long as the hub itself has another of that name", key)
        self._left_out = left_out
        kept = [row for row in kept if row.get("id") not in left_out]
        known = {row.get("id") for row in kept}
        return kept + [row for key, row in borrowed.items() if key not in known]

    async def mark(self) -> object:
        """That of what is kept, and what sources have."""
        kept = await self._shelf.mark()
        return None if kept is None else (kept, [tuple(source.documents()) for source in self._sources])

    def _has(self, key: str) -> bool:
        return any(document.id == key for source in self._sources for document in source.documents())

    def _borrowed(self) -> dict[str, Data]:
        seen: dict[str, Data] = {}
        for source in self._sources:
            for document in source.documents():
                if document.id not in seen and document.id != INDEX:
                    seen[document.id] = self._row(document)
        self._seen = seen
        return seen

    def _row(self, document: SourceDocument) -> Data:
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


def _is_operators(row: Data | None) -> bool:
    return row is not None and row.get("owner") == OPERATOR
