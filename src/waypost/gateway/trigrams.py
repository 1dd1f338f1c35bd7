"""The words of the catalog by their trigrams: which contain a term, and which are similar to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Final

FUZZY_FROM: Final = 4
"""Shorter terms are not compared by trigrams."""

THRESHOLD: Final = 0.3
_LONG_LIST: Final = 4096


def trigrams(word: str) -> set[str]:
    """A word's trigrams, unpadded."""
    return {word[start : start + 3] for start in range(len(word) - 2)}


class Trigrams:
    """Looks words up by parts of them."""

    def __init__(self) -> None:
        self._words: dict[str, int] = {}
        """Every word with the number of its trigrams."""
        self._having: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._words)

    def add(self, word: str) -> None:
        """Take in a word that is new."""
        grams = trigrams(word)
        self._words[word] = len(grams)
        for gram in grams:
            having = self._having.get(gram)
            if having is None:
                self._having[gram] = [word]
            else:
                having.append(word)

    def containing(self, term: str) -> list[str]:
        """The words that a term is a part of."""
        if len(term) < 3:
            return [word for word in self._words if term in word]
        candidates = min((self._having.get(gram, []) for gram in trigrams(term)), key=len)
        return [word for word in candidates if term in word]

    def similar(self, term: str) -> Iterator[tuple[str, float]]:
        """The words whose Jaccard similarity to a term is above the threshold, those that contain it left out."""
        if len(term) < FUZZY_FROM:
            return
        grams = trigrams(term)
        for word, shared in self._sharing(grams):
            alike = shared / (len(grams) + self._words[word] - shared)
            if alike > THRESHOLD and term not in word:
                yield word, alike

    def _sharing(self, grams: set[str]) -> list[tuple[str, int]]:
        """The words that share as many of these trigrams as similar words must, with how many they share."""
        having = self._having
        known = sorted((gram for gram in grams if gram in having), key=lambda gram: len(having[gram]))
        needed = int(THRESHOLD * len(grams)) + 1
        common: list[str] = []
        # A word that shares n of the lists shares n - 1 of the others when one is left out; the longest cost most.
        while needed > 1 and known and len(having[known[-1]]) > _LONG_LIST:
            common.append(known.pop())
            needed -= 1
        shared = Counter(chain.from_iterable(having[gram] for gram in known))
        found = [(word, count) for word, count in shared.items() if count >= needed]
        return [(word, count + sum(gram in word for gram in common)) for word, count in found] if common else found
