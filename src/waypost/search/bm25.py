"""BM25F for whole sentences: rare words count more, long texts less, and identifiers are split into words.

A query of several sentences often asks for several things. So each sentence is scored by itself too, and what is best
for one of them comes up even where the others drown it.

Lengths are normalised by a usual length rather than by the average of the catalog: what a word is worth in a document
then depends on that document alone, and a change of one document touches no other.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from math import log
from typing import TYPE_CHECKING, Final, NamedTuple

from waypost.search.documents import Document, iterate_slots, to_bits
from waypost.search.words import SYNONYMS, split_stems

if TYPE_CHECKING:
    from waypost.search.index import Query, Scores

_MAX_SENTENCES: Final = 8
_MIN_STEMS: Final = 3
MAX_VISITED: Final = 3000
"""Postings that one query may visit, one at a time: the commonest words are left out when there are more."""

_SATURATION: Final = 1.6
SENTENCES_WEIGHT: Final = 0.5
_SYNONYM: Final = 0.3
_SYNONYM_OF_UNKNOWN: Final = 0.7
# Only at the beginning of a run of such characters: from every place in it, a long one would take its square.
_SENTENCE_END: Final = re.compile(r"(?<![.!?;])[.!?;]++\s+|\n+")


class _Field(NamedTuple):
    """How much a word counts in a field, how much length takes away, and what length takes nothing away."""

    weight: float
    slope: float
    usual: float


_NAME: Final = _Field(3.0, 0.4, 3)
_PLACE: Final = _Field(0.7, 0.3, 2)
_SYNONYMS: Final = _Field(2.0, 0.4, 4)
_DESCRIPTION: Final = _Field(1.5, 0.7, 8)
_PARAMETERS: Final = _Field(0.6, 0.6, 20)
_TEXT: Final = _Field(0.6, 0.6, 20)


class Postings:
    """The documents that have a stem, in the order of their slots, and what it is worth in each."""

    __slots__ = ("_bits", "slots", "worth")

    def __init__(self) -> None:
        self.slots = array("I")
        self.worth = array("f")
        self._bits = 0

    def add(self, slot: int, worth: float) -> None:
        """Add a document."""
        if not self.slots or self.slots[-1] < slot:
            self.slots.append(slot)
            self.worth.append(worth)
        else:
            at = bisect_left(self.slots, slot)
            self.slots.insert(at, slot)
            self.worth.insert(at, worth)
        self._bits = 0

    def remove(self, slot: int) -> None:
        """Remove a document."""
        at = bisect_left(self.slots, slot)
        del self.slots[at], self.worth[at]
        self._bits = 0

    def count(self, visible: int | None) -> int:
        """How many documents of a set have the stem."""
        return len(self.slots) if visible is None else (self._to_bits() & visible).bit_count()

    def find(self, members: int | None) -> Iterable[tuple[int, float]]:
        """The documents of a set that have the stem, and what it is worth in each."""
        if members is None:
            return zip(self.slots, self.worth, strict=True)
        found = iterate_slots(self._to_bits() & members)
        return ((slot, self.worth[bisect_left(self.slots, slot)]) for slot in found)

    def _to_bits(self) -> int:
        # Made when it is first needed: most stems are never asked for, and most callers see everything.
        if not self._bits:
            self._bits = to_bits(self.slots)
        return self._bits


class Match(NamedTuple):
    """A stem of a sentence: what it counts, the rarer the more, and the documents that have it."""

    rarity: float
    postings: Postings
    first: bool
    """Whether no earlier sentence has it."""


class Bm25:
    """The index of the sentences' score; documents are known by their slots."""

    def __init__(self) -> None:
        self._postings: dict[str, Postings] = {}
        self._count = 0

    def add(self, slot: int, document: Document) -> None:
        """Add a new document."""
        known = self._postings.get
        for stem, frequency in _frequencies(document).items():
            postings = known(stem)
            if postings is None:
                postings = self._postings[stem] = Postings()
            postings.add(slot, frequency / (_SATURATION + frequency))
        self._count += 1

    def remove(self, slot: int, document: Document) -> None:
        """Remove a document."""
        for stem in _frequencies(document):
            postings = self._postings[stem]
            postings.remove(slot)
            if not postings.slots:
                del self._postings[stem]
        self._count -= 1

    def matches(self, query: Query, most: int = MAX_VISITED) -> list[list[Match]]:
        """The matches of each sentence, by its rarest stems: at most `most` postings are visited.

        Only documents that the caller may find count, so that others do not show in the scores.
        """
        visible = query.visible
        wanted = [self._with_synonyms(set(split_stems(part)), visible) for part in query.sentences]
        known = self._affordable(set().union(*wanted), visible, most)
        total = self._count if visible is None else visible.bit_count()
        counted: set[str] = set()
        found: list[list[Match]] = []
        for part in wanted:
            matches: list[Match] = []
            # In a fixed order, so that equal documents get equal sums.
            for stem in sorted(part.keys() & known.keys()):
                rarity = log(1 + (total - known[stem] + 0.5) / (known[stem] + 0.5))
                matches.append(Match(rarity * part[stem], self._postings[stem], stem not in counted))
            found.append(matches)
            counted |= part.keys()
        return found

    def _with_synonyms(self, stems: set[str], visible: int | None) -> dict[str, float]:
        """What each stem counts: a synonym less than the word itself, and more where no document has that word."""
        weights = dict.fromkeys(stems, 1.0)
        for stem in sorted(stems & SYNONYMS.keys()):
            postings = self._postings.get(stem)
            is_known = postings is not None and postings.count(visible) > 0
            for synonym in SYNONYMS[stem]:
                weight = _SYNONYM if is_known else _SYNONYM_OF_UNKNOWN
                weights[synonym] = max(weight, weights.get(synonym, 0.0))
        return weights

    def _affordable(self, wanted: set[str], visible: int | None, most: int) -> dict[str, int]:
        """The rarest stems, with the number of documents that have them."""
        counts = ((self._postings[stem].count(visible), stem) for stem in wanted if stem in self._postings)
        chosen: dict[str, int] = {}
        visited = 0
        for count, stem in sorted(counts):
            visited += count
            # The rarest stem always counts, however many documents have it.
            if chosen and visited > most:
                break
            if count:
                chosen[stem] = count
        return chosen

    def score(self, query: Query, scores: Scores) -> Scores:
        """Score documents by the words that they share with the query."""
        if query.vectors is None:
            return sum_scores(self.matches(query), query.members)
        from waypost.search import embeddings  # lazy: it imports this module

        return embeddings.score_words(self.matches(query, embeddings.MAX_VISITED), query)


def sum_scores(found: list[list[Match]], members: int | None) -> dict[int, float]:
    """The score of each document of a set: all that matches, and half as much again for its best sentence."""
    total: dict[int, float] = {}
    best: dict[int, float] = {}
    for matches in found:
        sums: dict[int, float] = {}
        for rarity, postings, first in matches:
            for slot, each in postings.find(members):
                sums[slot] = sums.get(slot, 0.0) + rarity * each
                if first:
                    total[slot] = total.get(slot, 0.0) + rarity * each
        scale = SENTENCES_WEIGHT / max(sums.values(), default=1.0)
        for slot, score in sums.items():
            if score * scale > best.get(slot, 0.0):
                best[slot] = score * scale
    scale = 1.0 / max(total.values(), default=1.0)
    return {slot: score * scale + best[slot] for slot, score in total.items()}


def split_sentences(query: str) -> list[str]:
    """The sentences of a query that say something; the query itself when there are not several."""
    parts = _SENTENCE_END.split(query)
    saying = [part for part in parts if len(split_stems(part)) >= _MIN_STEMS]
    return saying[:_MAX_SENTENCES] if len(saying) > 1 else [query]


def _frequencies(document: Document) -> dict[str, float]:
    """How often each stem occurs, weighed by where."""
    frequencies: dict[str, float] = {}
    known = frequencies.get
    for (weight, slope, usual), found in _fields(document):
        if found:
            each = weight / (1 - slope + slope * len(found) / usual)
            for stem in found:
                frequencies[stem] = known(stem, 0.0) + each
    return frequencies


def _fields(document: Document) -> Iterator[tuple[_Field, list[str]]]:
    place, _, name = document.id.rpartition(".")
    named = split_stems(name)
    if document.title and document.title != document.id:
        named += [stem for stem in split_stems(document.title) if stem not in named]
    yield _NAME, named
    if place:
        yield _PLACE, split_stems(place)
    if document.tags or document.aliases:
        yield _SYNONYMS, split_stems(" ".join(document.tags + document.aliases))
    yield _DESCRIPTION, split_stems(document.description)
    if document.parameters:
        yield _PARAMETERS, split_stems(" ".join(document.parameters))
    if document.text != document.id:
        yield _TEXT, split_stems(document.text)
