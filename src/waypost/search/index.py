"""The search over the catalog: an index that is kept up to date document by document and asked for the best of them.

The hybrid ranking scores by signals. A signal is one class in one module and one row in `SIGNALS`. Signals score in the
order of the table, each on top of those before it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from waypost.search.bm25 import Bm25, split_sentences
from waypost.search.documents import (
    DEFAULT_LIMIT,
    MAX_RESULTS,
    Bitmap,
    Document,
    Found,
    Hit,
    Ranking,
    Reason,
    Slots,
    View,
)
from waypost.search.embeddings import Embeddings, Vectors
from waypost.search.weighted import Allowed, Weighted
from waypost.search.words import read_wording, split_runs
from waypost.suggestions import MAX_CANDIDATES, MAX_COMPARED_CHARACTERS, find_nearest

if TYPE_CHECKING:
    from waypost.search.embeddings import Matrix
    from waypost.search.fusion import Numbers


Scores: TypeAlias = "dict[int, float] | Numbers"
"""What documents are worth, by their slots: a dict without numpy, else an array of all documents."""


class Query(NamedTuple):
    """A query as signals see it."""

    sentences: list[str]
    size: int
    """Slots of documents are below this."""
    vectors: Vectors | None
    """The vectors of documents and sentences, if all documents have one; then scores are an array."""
    visible: int | None
    """The documents that the caller may find, all if None: others must not show in the scores of those it finds."""
    members: int | None
    """Those of them that are asked for, all if None."""


class Signal(Protocol):
    """One reason to rank documents; they are known by their slots."""

    def add(self, slot: int, document: Document) -> None:
        """Index a new document."""

    def remove(self, slot: int, document: Document) -> None:
        """Remove a document from the index."""

    def score(self, query: Query, scores: Scores) -> Scores:
        """The scores with what this signal adds; may change them in place."""


SIGNALS: Final[dict[str, Callable[[Embeddings | None], Signal | None]]] = {
    "words": lambda _: Bm25(),
    "meaning": lambda embeddings: embeddings,
}
"""How each signal is built, by its name; one that cannot be used is `None`."""


class Hybrid:
    """Ranks documents for sentences by all signals."""

    def __init__(self, slots: Slots, embeddings: Embeddings | None) -> None:
        self._slots = slots
        self._embeddings = embeddings
        built = ((name, build(embeddings)) for name, build in SIGNALS.items())
        self.signals = {name: signal for name, signal in built if signal is not None}

    def embed(self, query: str) -> Matrix | None:
        """The vectors of a query's sentences; takes milliseconds, and may be called in another thread."""
        return None if self._embeddings is None else self._embeddings.encode(split_sentences(query))

    def top(self, query: str, limit: int, within: int, visible: int | None, embedded: Matrix | None) -> Found:
        """The best of a set of documents, score descending, ties by id, and the names of the signals that ranked."""
        members = within if visible is None else within & visible
        embedded = self.embed(query) if embedded is None else embedded
        vectors = None
        if self._embeddings is not None and embedded is not None:
            vectors = self._embeddings.match(embedded, visible)
        is_all = members.bit_count() == len(self._slots)
        asked = Query(split_sentences(query), self._slots.size, vectors, visible, None if is_all else members)
        scores: Scores = {}
        used: list[str] = []
        for name, signal in self.signals.items():
            if signal is not self._embeddings or vectors is not None:
                scores = signal.score(asked, scores)
                used.append(name)
        if isinstance(scores, dict):
            # A signal from elsewhere may have scored documents that were not asked for.
            found = scores if is_all else {slot: score for slot, score in scores.items() if members >> slot & 1}
        else:
            from waypost.search import fusion

            found = fusion.find_best(scores, members, limit)
        # Most documents are far from the best, and are neither named nor sorted.
        least = min(nlargest(limit, found.values()), default=0.0)
        hits = [Hit(score, self._slots.id(slot)) for slot, score in found.items() if score >= least]
        return Found("hybrid", sorted(hits, key=lambda hit: (-hit.score, hit.id))[:limit], used)


MAX_KEYWORDS: Final = 3
"""With the ranking `auto`, a query of more terms is taken for a phrase, and so is one that is spoken."""

MAX_QUERY_CHARACTERS: Final = 4000
"""Further characters of a query are ignored."""

MAX_TERMS: Final = 32
"""Further terms of a query are left out of the weighted score, which costs the same for each."""

MAX_TERM_CHARACTERS: Final = 100
"""Further characters of a term are ignored: the weighted score looks up every trigram of a term."""

_MAX_WAIT_S: Final = 0.1
"""How long a search waits for the vectors of new documents."""
_ID_ONLY: Final = (0, 1, 0, 0, 0, 0)
_MAX_ID_TERMS: Final = 8
_MIN_SIMILARITY: Final = 0.5


class _Read(NamedTuple):
    """The terms of a query, and whether it is ranked as a phrase."""

    terms: list[str]
    is_hybrid: bool


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
        for signal in self._hybrid.signals.values():
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
        for signal in self._hybrid.signals.values():
            signal.remove(slot, document)
        self._everything.remove(slot)
        self._kinds[document.kind].remove(slot)
        return True

    def view(self, allowed: Allowed) -> View:
        """The documents that are allowed, as a set for `search` that follows this index."""
        return View(self._slots, allowed)

    def needs_vectors(self, query: str) -> bool:
        """Whether the ranking of a query needs its vectors; those of new documents are begun then."""
        needs = self._embeddings is not None and self._embeddings.is_loaded and self._read(query, None).is_hybrid
        return needs and self.start()

    def embed(self, query: str) -> Matrix | None:
        """The vectors of a query, for `search`, after those of new documents, if these are few.

        This takes milliseconds: another thread may call it, and only it.
        """
        if self._embeddings is not None:
            self._embeddings.wait_until_idle(_MAX_WAIT_S)
        return self._hybrid.embed(query[:MAX_QUERY_CHARACTERS])

    def search(
        self,
        query: str,
        kind: str | None = None,
        limit: int = DEFAULT_LIMIT,
        view: View | None = None,
        ranking: Ranking | None = None,
        embedded: Matrix | None = None,
    ) -> Found:
        """The best documents, score descending and ties by id; only those of a kind, and only those in a view.

        A query without terms lists everything with a score of 1.0. The limit is held between 1 and 100. A hybrid
        ranking that finds nothing, as when every word is misspelt, gives way to the weighted one. The vectors of the
        query are made here where they are not given.
        """
        limit = max(1, min(limit, MAX_RESULTS))
        within = self._within(kind)
        visible = None if view is None else view.bits
        terms, is_hybrid = self._read(query, ranking)
        if is_hybrid:
            self.start()
            found = self._hybrid.top(query[:MAX_QUERY_CHARACTERS], limit, within, visible, embedded)
            if found.results:
                return found
        if visible is not None:
            within &= visible
        if not terms:
            return Found("weighted", [Hit(1.0, id) for id in islice(self._slots.by_id(within), limit)])
        return Found("weighted", self._weighted.top(terms, limit, within))

    def explain(self, query: str, id: str) -> list[Reason]:
        """Where a document has the terms of a query; the points are those of the weighted ranking."""
        return self._weighted.explain(self._read(query, None).terms, self._slots.slot(id))

    def _read(self, query: str, ranking: Ranking | None) -> _Read:
        wording = read_wording(query[:MAX_QUERY_CHARACTERS])
        terms = _cut(wording.terms)
        ranking = ranking or self.ranking
        is_phrase = len(terms) > MAX_KEYWORDS or wording.is_spoken
        return _Read(terms, bool(terms) and (ranking == "hybrid" or (ranking == "auto" and is_phrase)))

    def find_nearest(self, id: str, limit: int = 3, allowed: Allowed | None = None) -> list[str]:
        """Return the ids that are most similar to an unknown one, best first."""
        terms = nlargest(_MAX_ID_TERMS, _cut(split_runs(id[:MAX_COMPARED_CHARACTERS])), key=len)
        everything = self._within(None)
        candidates = {
            hit.id
            # By their beginnings too: a short word with one wrong letter shares too few trigrams with the right one.
            for tried in (terms, [term[:3] for term in terms])
            for hit in self._weighted.top(tried, MAX_CANDIDATES, everything, allowed, weights=_ID_ONLY)
        }
        return find_nearest(id, sorted(candidates), limit, _MIN_SIMILARITY)

    def start(self) -> bool:
        """Load embeddings and make missing vectors in the background; return whether there are embeddings."""
        if self._embeddings is None:
            return False
        self._embeddings.start()
        return True

    def close(self) -> None:
        """Stop what works in the background."""
        if self._embeddings is not None:
            self._embeddings.close()

    def _within(self, kind: str | None) -> int:
        if kind is None:
            return self._everything.bits
        known = self._kinds.get(kind)
        return known.bits if known is not None else 0


def _cut(terms: list[str]) -> list[str]:
    return [term[:MAX_TERM_CHARACTERS] for term in terms[:MAX_TERMS]]
