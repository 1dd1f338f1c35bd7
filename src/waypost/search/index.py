"""The search over the catalog: an index that is kept up to date document by document and asked for the best of them.

The hybrid ranking scores by signals. A signal is one class in one module and one row in `SIGNALS`. Signals score in the
order of the table, each on top of those before it.

The weighted score: every term against every field, by the best of containment, prefix and trigram similarity.

A field that contains the term counts its whole weight. A word that starts with the term contains it too, so the 0.7 of
a prefix never comes to bear. Else a word that is similar to the term counts half the weight times its similarity, the
best word of the field. A score is the sum over the terms in their order and, within a term, over the fields in theirs.

Terms are alphanumeric, so they can only match within a word. A term is matched against the words of the catalog, not
against its documents; what it comes to in a field is a set of documents for each distinct factor. The sets are added up
as `Planes` of upper bounds in sixteenths. For documents without similar words the bound is the score; sets of others
are split by factor, from the largest bound down, until no bound is left that could change the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from waypost.search.bm25 import Bm25, split_sentences
from waypost.search.documents import (
    DEFAULT_LIMIT,
    FIELDS,
    MAX_RESULTS,
    WEIGHTS,
    Bitmap,
    Document,
    Found,
    Hit,
    Planes,
    Ranking,
    Reason,
    Slots,
    Texts,
    View,
    to_bits,
)
from waypost.search.embeddings import Embeddings, Vectors, find_best
from waypost.search.words import Trigrams, read_wording, split_runs
from waypost.suggestions import MAX_CANDIDATES, MAX_COMPARED_CHARACTERS, find_nearest

if TYPE_CHECKING:
    from waypost.search.embeddings import Matrix, Numbers


Allowed: TypeAlias = Callable[[str], bool]
Posting: TypeAlias = int | list[int] | Bitmap | None
"""The documents that have a word in a field: one, a few, many or none."""

Level: TypeAlias = tuple[float, int]

_UNITS: Final = 16
_FEW: Final = 64
_SETTLE_EVERY: Final = 4096
_TERMS_KEPT: Final = 128


class _Column(NamedTuple):
    """The matches of one term in one field: the documents by factor, largest first."""

    weight: int
    levels: list[Level]


class Weighted:
    """The index of the weighted score; documents are known by their slots."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._postings: dict[str, list[Posting]] = {}
        self._dense: list[Bitmap] = []
        self._trigrams = Trigrams()
        self._matches: dict[str, list[list[Level]]] = {}
        self._added = 0
        self._emptied = 0

    def add(self, slot: int, texts: Texts) -> None:
        """Add the texts of a new document."""
        # The matches are sets of slots as they were.
        self._matches.clear()
        known = self._postings.get
        most = max(_FEW, len(self._slots) >> 6)
        seen: dict[str, set[str]] = {}
        for field, text in enumerate(texts):
            words = seen.get(text)
            if words is None:
                words = seen[text] = set(split_runs(text))
            for word in words:
                postings = known(word) or self._new(word)
                posting = postings[field]
                if isinstance(posting, Bitmap):
                    posting.append(slot)
                elif posting is None:
                    postings[field] = slot
                elif isinstance(posting, int):
                    postings[field] = [posting, slot]
                else:
                    posting.append(slot)
                    # From here on a bit for every slot takes less room than a pointer for every member.
                    if len(posting) > most:
                        postings[field] = bitmap = Bitmap(posting)
                        self._dense.append(bitmap)
        self._added += 1
        if self._added % _SETTLE_EVERY == 0:
            for bitmap in self._dense:
                bitmap.apply_new()

    def _new(self, word: str) -> list[Posting]:
        self._trigrams.add(word)
        postings = self._postings[word] = [None] * len(WEIGHTS)
        return postings

    def remove(self, slot: int, texts: Texts) -> None:
        """Remove a document; `texts` are those that it was added with."""
        self._matches.clear()
        for field, text in enumerate(texts):
            for word in set(split_runs(text)):
                postings = self._postings[word]
                postings[field] = _without(postings[field], slot)
                self._emptied += _is_unused(postings)
        # Building the trigrams again costs as much as indexing all words, so only when most of them are unused.
        if self._emptied > 1000 and self._emptied * 2 > len(self._postings):
            self._forget_unused()

    def _forget_unused(self) -> None:
        self._postings = {word: postings for word, postings in self._postings.items() if not _is_unused(postings)}
        rows = self._postings.values()
        self._dense = [posting for row in rows for posting in row if isinstance(posting, Bitmap)]
        self._trigrams = Trigrams()
        for word in self._postings:
            self._trigrams.add(word)
        self._emptied = 0

    def top(
        self,
        terms: list[str],
        limit: int,
        within: int,
        allowed: Allowed | None = None,
        weights: tuple[int, ...] = WEIGHTS,
    ) -> list[Hit]:
        """The best of a set of documents, score descending, ties by id."""
        columns = [
            _Column(weight, levels)
            for term in terms
            for weight, levels in zip(weights, self._match(term), strict=True)
            if weight and levels
        ]
        planes, fuzzy = _bounds(columns)
        best: list[tuple[float, str]] = []
        for bound, bits in planes.descending(within):
            # No later bound reaches the last of the best; equal ones still count, because ties are ordered by id.
            if len(best) == limit and -best[-1][0] > bound / _UNITS:
                break
            for score, group in _scored(bound / _UNITS, bits, fuzzy, columns):
                ids = self._slots.by_id(group)
                best += ((-score, found) for found in islice(filter(allowed, ids) if allowed else ids, limit))
            best.sort()
            del best[limit:]
        return [Hit(-negative, found) for negative, found in best]

    def explain(self, terms: list[str], slot: int) -> list[Reason]:
        """Which terms a document has in which of its texts; their points add up to its score."""
        return [
            Reason(term, field, weight * factor)
            for term in terms
            for field, weight, levels in zip(FIELDS, WEIGHTS, self._match(term), strict=True)
            for factor, bits in levels
            if bits >> slot & 1
        ]

    def _match(self, term: str) -> list[list[Level]]:
        """For each field, the documents that have the term there, by factor."""
        match = self._matches.get(term)
        if match is not None:
            return match
        by_factor = {1.0: [self._postings[word] for word in self._trigrams.containing(term)]}
        for word, similarity in self._trigrams.similar(term):
            by_factor.setdefault(0.5 * similarity, []).append(self._postings[word])
        ordered = sorted(by_factor.items(), reverse=True, key=lambda level: level[0])
        if len(self._matches) >= _TERMS_KEPT:
            self._matches.pop(next(iter(self._matches)))
        match = self._matches[term] = [_levels(field, ordered) for field in range(len(WEIGHTS))]
        return match


def _levels(field: int, ordered: list[tuple[float, list[list[Posting]]]]) -> list[Level]:
    """The documents of each factor in a field; a document is where its best word puts it."""
    levels: list[Level] = []
    better = 0
    for factor, rows in ordered:
        bits = _union(row[field] for row in rows)
        new = bits & ~better if better else bits
        if new:
            levels.append((factor, new))
            better |= new
    return levels


def _union(postings: Iterable[Posting]) -> int:
    bits = 0
    few: set[int] = set()
    for posting in postings:
        if isinstance(posting, int):
            few.add(posting)
        elif isinstance(posting, Bitmap):
            bits |= posting.bits
        elif posting is not None:
            few.update(posting)
    return bits | to_bits(few)


def _without(posting: Posting, slot: int) -> Posting:
    if posting is None or isinstance(posting, int):
        return None
    posting.remove(slot)
    if isinstance(posting, Bitmap):
        return posting if posting.bits else None
    return posting or None


def _is_unused(postings: list[Posting]) -> bool:
    return postings.count(None) == len(postings)


def _bounds(columns: list[_Column]) -> tuple[Planes, int]:
    """An upper bound of every document's score, in units, and the documents whose bound may be too large."""
    planes = Planes()
    fuzzy = 0
    for weight, levels in columns:
        for factor, bits in levels:
            planes.add(ceil(weight * factor * _UNITS), bits)
            if factor < 1.0:
                fuzzy |= bits
    return planes, fuzzy


def _scored(bound: float, bits: int, fuzzy: int, columns: list[_Column]) -> Iterator[tuple[float, int]]:
    """Documents of one bound by their scores."""
    exact = bits & ~fuzzy
    if exact:
        yield bound, exact
    if exact == bits:
        return
    groups = [(0.0, bits & fuzzy)]
    for weight, levels in columns:
        groups = [(score + weight * factor, part) for score, group in groups for factor, part in _split(group, levels)]
    yield from groups


def _split(group: int, levels: list[Level]) -> Iterator[Level]:
    for factor, bits in levels:
        part = group & bits
        if part:
            yield factor, part
            group ^= part
            if not group:
                return
    yield 0.0, group


Scores: TypeAlias = "dict[int, float] | Numbers"
"""The scores of documents by their slots: a dict without numpy, else an array of all documents."""


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

    def top(
        self,
        query: str,
        limit: int,
        within: int,
        visible: int | None,
        embedded: Matrix | None,
        *,
        by_meaning: bool = True,
    ) -> Found:
        """The best of a set of documents, score descending, ties by id, and the names of the signals that ranked."""
        members = within if visible is None else within & visible
        if by_meaning and embedded is None:
            embedded = self.embed(query)
        vectors = None
        if by_meaning and self._embeddings is not None and embedded is not None:
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
            found = find_best(scores, members, limit)
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
_MAX_COMPARED_IDS: Final = 1000


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
        """Add a document, in place of the one that has its id."""
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
        """Remove a document; false when there is none with that id."""
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
        ranking that finds nothing, as when every word is misspelt, gives way to the weighted one; keywords that no
        document has are looked up in their other forms and synonyms. The vectors of the query are made here where they
        are not given.
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
        shown = within if visible is None else within & visible
        if not terms:
            return Found("weighted", [Hit(1.0, id) for id in islice(self._slots.by_id(shown), limit)])
        hits = self._weighted.top(terms, limit, shown)
        if not hits and not is_hybrid and (ranking or self.ranking) == "auto":
            # Not by meaning: anything is a little like everything, and such keywords are often typing errors.
            found = self._hybrid.top(query[:MAX_QUERY_CHARACTERS], limit, within, visible, None, by_meaning=False)
            if found.results:
                return found
        return Found("weighted", hits)

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
        if everything.bit_count() <= _MAX_COMPARED_IDS:
            # Few enough to compare all: a typing error in an id of four letters leaves no trigram to find it by.
            candidates.update(found for found in self._slots.by_id(everything) if allowed is None or allowed(found))
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
