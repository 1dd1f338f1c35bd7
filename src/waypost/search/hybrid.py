"""Which ranking a query gets, and how the hybrid one puts words and meaning together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nlargest
from itertools import islice
from typing import Final

from waypost.search.bm25 import Bm25, scores, sentences
from waypost.search.documents import Hit, Ranked, Ranking
from waypost.search.embeddings import Embeddings
from waypost.search.slots import Slots, holds, packed

MOST_KEYWORDS: Final = 3
"""A query of more terms is taken for a sentence."""

_LOOKED_AT: Final = 400


def chosen(ranking: Ranking, terms: list[str]) -> Ranked:
    """The ranking that a query of these terms gets."""
    if ranking == "auto":
        return "weighted" if len(terms) <= MOST_KEYWORDS else "hybrid"
    return ranking


class Hybrid:
    """Ranks sentences: by the words they share with documents and, with embeddings, by what they mean."""

    def __init__(self, slots: Slots, embeddings: Embeddings | None) -> None:
        self._slots = slots
        self.words = Bm25()
        self._embeddings = embeddings

    def top(self, query: str, limit: int, within: int, allowed: Callable[[str], bool] | None) -> list[Hit]:
        """The best of a set of documents, score descending, ties by id."""
        parts = sentences(query)
        members = packed(within)
        compared = self._embeddings.compared(parts) if self._embeddings is not None else None
        if compared is None:
            worth = scores(self.words.matches(parts))
            if within.bit_count() < len(self._slots):
                worth = {slot: score for slot, score in worth.items() if holds(members, slot)}
            return self._first(limit, worth, allowed)
        from waypost.search import fusion

        size = within.bit_length()
        fused = fusion.fused(self.words.matches(parts, fusion.MOST_VISITED), compared, size)
        found = self._first(limit, fusion.best(fused, members, _LOOKED_AT), allowed)
        if len(found) < limit and allowed is not None:
            found = self._first(limit, fusion.best(fused, members, size), allowed)
        return found

    def _first(self, limit: int, worth: dict[int, float], allowed: Callable[[str], bool] | None) -> list[Hit]:
        hits = self._descending(worth, limit)
        return list(islice((hit for hit in hits if allowed is None or allowed(hit.id)), limit))

    def _descending(self, worth: dict[int, float], size: int) -> Iterator[Hit]:
        """All hits, best first; a few are sorted at a time, for most are never looked at."""
        while worth:
            least = nlargest(size, worth.values())[-1]
            best = [Hit(score, self._slots.id(slot)) for slot, score in worth.items() if score >= least]
            yield from sorted(best, key=lambda hit: (-hit.score, hit.id))
            worth = {slot: score for slot, score in worth.items() if score < least}
            size *= 8
