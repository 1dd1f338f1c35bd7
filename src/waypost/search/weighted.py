"""The weighted score: every term against every field, by the best of containment, prefix and trigram similarity.

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
from itertools import islice
from math import ceil
from typing import Final, NamedTuple, TypeAlias

from waypost.search.documents import FIELDS, WEIGHTS, Bitmap, Hit, Planes, Reason, Slots, Texts, to_bits
from waypost.search.words import Trigrams, split_runs

Allowed: TypeAlias = Callable[[str], bool]
Posting: TypeAlias = int | list[int] | Bitmap | None
"""The documents that have a word in a field: one, a few, many or none."""

Level: TypeAlias = tuple[float, int]

_UNITS: Final = 16
_FEW: Final = 64
_SETTLE_EVERY: Final = 4096
_TERMS_KEPT: Final = 128


class _Column(NamedTuple):
    """What one term comes to in one field: the documents by factor, largest first."""

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
        """Take in the texts of a new document."""
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
        """Forget a document, of which these were the texts."""
        self._matches.clear()
        for field, text in enumerate(texts):
            for word in set(split_runs(text)):
                postings = self._postings[word]
                postings[field] = _without(postings[field], slot)
                self._emptied += _is_unused(postings)
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
