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


def similarity(one: set[str], other: set[str]) -> float:
    """The Jaccard similarity of two sets; that of empty ones is zero."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


class Trigrams:
    """Looks words up by parts of them."""

    def __init__(self) -> None:
        self._words: dict[str, None] = {}
        self._having: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._words)

    def add(self, word: str) -> None:
        """Take in a word that is new."""
        self._words[word] = None
        for gram in trigrams(word):
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
        """The words whose similarity to a term is above the threshold, those that contain it left out."""
        if len(term) < FUZZY_FROM:
            return
        grams = trigrams(term)
        for word in self._sharing(grams):
            if term not in word:
                alike = similarity(grams, trigrams(word))
                if alike > THRESHOLD:
                    yield word, alike

    def _sharing(self, grams: set[str]) -> list[str]:
        """The words that share as many of these trigrams as similar words must, and perhaps a few others."""
        lists = sorted((self._having[gram] for gram in grams if gram in self._having), key=len)
        needed = int(THRESHOLD * len(grams)) + 1
        # A word that shares n of the lists shares n - 1 of the others when one is left out; the longest cost most.
        while needed > 1 and lists and len(lists[-1]) > _LONG_LIST:
            lists.pop()
            needed -= 1
        return [word for word, shared in Counter(chain.from_iterable(lists)).items() if shared >= needed]
