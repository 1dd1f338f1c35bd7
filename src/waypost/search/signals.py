"""The hybrid ranking: signals that score documents for a sentence, and the table of them.

A signal is one class in one module and one row in `SIGNALS`. Signals score in the order of the table, each on top of
those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from waypost.search.bm25 import Bm25, split_sentences
from waypost.search.documents import Document, Hit
from waypost.search.embeddings import Embeddings, Vectors
from waypost.search.slots import Slots, has_slot, pack_bits

if TYPE_CHECKING:
    from waypost.search.fusion import Numbers

Scores: TypeAlias = "dict[int, float] | Numbers"
"""What documents are worth, by their slots: a dict without numpy, else an array of all documents."""
_MAX_CHECKED: Final = 400
"""How many of the best documents are checked for permission before all of them are."""


class Query(NamedTuple):
    """A query as signals see it."""

    sentences: list[str]
    size: int
    """Slots of documents are below this."""
    vectors: Vectors | None
    """The vectors of documents and sentences, once there are any; from then on scores are an array."""


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


def raise_scores(scores: Scores, gains: Mapping[int, float]) -> Scores:
    """Add to the scores of some documents, in place."""
    for slot, gain in gains.items():
        if isinstance(scores, dict):
            scores[slot] = scores.get(slot, 0.0) + gain
        elif slot < len(scores):
            scores[slot] += gain
    return scores


class Hybrid:
    """Ranks documents for sentences by all signals."""

    def __init__(self, slots: Slots, embeddings: Embeddings | None) -> None:
        self._slots = slots
        self._embeddings = embeddings
        built = (build(embeddings) for build in SIGNALS.values())
        self.signals = [signal for signal in built if signal is not None]

    def top(self, query: str, limit: int, within: int, allowed: Callable[[str], bool] | None) -> list[Hit]:
        """The best of a set of documents, score descending, ties by id."""
        sentences = split_sentences(query)
        vectors = None if self._embeddings is None else self._embeddings.embed(sentences)
        asked = Query(sentences, within.bit_length(), vectors)
        scores: Scores = {}
        for signal in self.signals:
            scores = signal.score(asked, scores)
        members = pack_bits(within)
        if isinstance(scores, dict):
            if within.bit_count() < len(self._slots):
                scores = {slot: score for slot, score in scores.items() if has_slot(members, slot)}
            return self._pick(limit, scores, allowed)
        from waypost.search import fusion

        found = self._pick(limit, fusion.find_best(scores, members, _MAX_CHECKED), allowed)
        if len(found) < limit and allowed is not None:
            found = self._pick(limit, fusion.find_best(scores, members, asked.size), allowed)
        return found

    def _pick(self, limit: int, scores: dict[int, float], allowed: Callable[[str], bool] | None) -> list[Hit]:
        hits = self._descend(scores, limit)
        return list(islice((hit for hit in hits if allowed is None or allowed(hit.id)), limit))

    def _descend(self, scores: dict[int, float], size: int) -> Iterator[Hit]:
        """All hits, best first; sorted in growing portions, because most are never looked at."""
        while scores:
            least = nlargest(size, scores.values())[-1]
            best = [Hit(score, self._slots.id(slot)) for slot, score in scores.items() if score >= least]
            yield from sorted(best, key=lambda hit: (-hit.score, hit.id))
            scores = {slot: score for slot, score in scores.items() if score < least}
            size *= 8
