"""The hybrid ranking: signals that score documents for a sentence, and the table of them.

A signal is one class in one module and one row in `SIGNALS`. Signals score in the order of the table, each on top of
those before it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nlargest
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from waypost.search.bm25 import Bm25, split_sentences
from waypost.search.documents import Document, Found, Hit
from waypost.search.embeddings import Embeddings, Vectors
from waypost.search.slots import Slots

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
