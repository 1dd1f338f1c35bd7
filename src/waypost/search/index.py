"""The search over the catalog: an index that is kept up to date document by document and asked for the best of them."""

from __future__ import annotations

from heapq import nlargest
from itertools import islice
from typing import Final

from waypost.search.documents import DEFAULT_LIMIT, MAX_RESULTS, Document, Found, Hit, Ranking
from waypost.search.embeddings import Embeddings
from waypost.search.signals import Hybrid
from waypost.search.slots import Bitmap, Slots
from waypost.search.weighted import Allowed, Weighted
from waypost.search.words import split_runs
from waypost.suggestions import MAX_CANDIDATES, MAX_COMPARED_CHARACTERS, find_nearest

MAX_KEYWORDS: Final = 3
"""With the ranking `auto`, a query of more terms is taken for a sentence."""

MAX_QUERY_CHARACTERS: Final = 4000
"""Further characters of a query are ignored."""

MAX_TERMS: Final = 32
"""Further terms of a query are left out of the weighted score, which costs the same for each."""

MAX_TERM_CHARACTERS: Final = 100
"""Further characters of a term are ignored: the weighted score looks up every trigram of a term."""

_ID_ONLY: Final = (0, 1, 0, 0, 0, 0)
_MAX_ID_TERMS: Final = 8
_MIN_SIMILARITY: Final = 0.5


class SearchIndex:
    """Finds documents by what is said about them; not to be used by several threads at a time."""

    def __init__(self, ranking: Ranking = "auto", embeddings: Embeddings | None = None) -> None:
        self.ranking = ranking
        self._embeddings = embeddings
        self._slots = Slots()
        self._documents: dict[str, Document] = {}
        self._weighted = Weighted(self._slots)
        self._hybrid = Hybrid(self._slots, embeddings)
        self._kinds: dict[str, Bitmap] = {}
        self._everything = Bitmap()

    def __len__(self) -> int:
        return len(self._documents)

    def __contains__(self, id: str) -> bool:
        return id in self._documents

    def add(self, document: Document) -> None:
        """Take in a document, in place of the one that has its id."""
        if document.id in self._documents:
            if self._documents[document.id] == document:
                return
            self.remove(document.id)
        slot = self._slots.take(document.id)
        self._documents[document.id] = document
        self._weighted.add(slot, document.fields)
        for signal in self._hybrid.signals:
            signal.add(slot, document)
        self._everything.append(slot)
        if document.kind not in self._kinds:
            self._kinds[document.kind] = Bitmap()
        self._kinds[document.kind].append(slot)

    def remove(self, id: str) -> bool:
        """Forget a document; false when there is none with that id."""
        document = self._documents.pop(id, None)
        if document is None:
            return False
        slot = self._slots.release(id)
        self._weighted.remove(slot, document.fields)
        for signal in self._hybrid.signals:
            signal.remove(slot, document)
        self._everything.remove(slot)
        self._kinds[document.kind].remove(slot)
        return True

    def search(
        self,
        query: str,
        kind: str | None = None,
        limit: int = DEFAULT_LIMIT,
        allowed: Allowed | None = None,
        ranking: Ranking | None = None,
    ) -> Found:
        """The best documents, score descending and ties by id; only those of a kind, and only those that are allowed.

        A query without terms lists everything with a score of 1.0. The limit is held between 1 and 100. A hybrid
        ranking that finds nothing, as when every word is misspelt, gives way to the weighted one.
        """
        limit = max(1, min(limit, MAX_RESULTS))
        within = self._within(kind)
        query = query[:MAX_QUERY_CHARACTERS]
        terms = _terms(query)
        if not terms:
            return Found("weighted", self._listed(within, limit, allowed))
        ranking = ranking or self.ranking
        if ranking == "hybrid" or (ranking == "auto" and len(terms) > MAX_KEYWORDS):
            hits = self._hybrid.top(query, limit, within, allowed)
            if hits:
                return Found("hybrid", hits)
        return Found("weighted", self._weighted.top(terms, limit, within, allowed))

    def find_nearest(self, id: str, limit: int = 3, allowed: Allowed | None = None) -> list[str]:
        """Return the ids that are most similar to an unknown one, best first."""
        terms = nlargest(_MAX_ID_TERMS, _terms(id[:MAX_COMPARED_CHARACTERS]), key=len)
        everything = self._within(None)
        candidates = {
            hit.id
            # By their beginnings too: a short word with one wrong letter shares too few trigrams with the right one.
            for tried in (terms, [term[:3] for term in terms])
            for hit in self._weighted.top(tried, MAX_CANDIDATES, everything, allowed, weights=_ID_ONLY)
        }
        return find_nearest(id, sorted(candidates), limit, _MIN_SIMILARITY)

    def close(self) -> None:
        """Stop what works in the background."""
        if self._embeddings is not None:
            self._embeddings.close()

    def _within(self, kind: str | None) -> int:
        if kind is None:
            return self._everything.bits
        known = self._kinds.get(kind)
        return known.bits if known is not None else 0

    def _listed(self, within: int, limit: int, allowed: Allowed | None) -> list[Hit]:
        ids = self._slots.by_id(within)
        return [Hit(1.0, found) for found in islice(filter(allowed, ids) if allowed else ids, limit)]


def _terms(query: str) -> list[str]:
    return [term[:MAX_TERM_CHARACTERS] for term in split_runs(query)[:MAX_TERMS]]
