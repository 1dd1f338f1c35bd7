"""Words and meaning together, for all documents at once; imported when embeddings, and numpy with them, are loaded."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from waypost.search.bm25 import SENTENCES_WEIGHT, Match
from waypost.search.embeddings import Compared

Numbers: TypeAlias = NDArray[np.float64]

MOST_VISITED: Final = 50_000
_MEANING: Final = 0.6
_LIKE: Final = 0.15
"""How similar a document must be that shares no word with the query."""

_ALL_AT_ONCE: Final = 20_000
_FOUND: Final = 2000
"""In a larger catalog, what this many mean is compared, those that were found best by their words."""


def fused(found: list[list[Match]], compared: Compared, size: int) -> Numbers:
    """What each document is worth: by its words as `bm25.scores` says, and by what it means."""
    scores = _by_words(found, size)
    documents = compared.documents[:size]
    if len(documents) <= _ALL_AT_ONCE:
        meaning = _by_meaning(documents, compared)
        part = scores[: len(documents)]
        part += _MEANING * np.where((part > 0) | (meaning >= _LIKE), meaning, 0.0)
        return scores
    slots = np.flatnonzero(scores[: len(documents)])
    if len(slots) > _FOUND:
        slots = slots[np.argpartition(scores[slots], -_FOUND)[-_FOUND:]]
    scores[slots] += _MEANING * _by_meaning(documents[slots], compared)
    return scores


def best(scores: Numbers, members: bytes, most: int) -> dict[int, float]:
    """The best documents of a set, as many as this and those that are equal to the last."""
    size = len(scores)
    within = np.unpackbits(np.frombuffer(members, np.uint8), count=size, bitorder="little")
    scores = scores * within
    least = 0.0 if size <= most else float(np.partition(scores, -most)[-most])
    slots = np.flatnonzero((scores >= least) & (scores > 0))
    return dict(zip(slots.tolist(), scores[slots].tolist(), strict=True))


def _by_words(found: list[list[Match]], size: int) -> Numbers:
    total: Numbers = np.zeros(size)
    best: Numbers = np.zeros(size)
    for matches in found:
        sums: Numbers = np.zeros(size)
        for rarity, slots, worth, first in matches:
            places = np.frombuffer(slots, np.uint32)
            added = rarity * np.frombuffer(worth, np.float32).astype(np.float64)
            sums[places] += added
            if first:
                total[places] += added
        np.maximum(best, sums * (SENTENCES_WEIGHT / (sums.max(initial=0.0) or 1.0)), out=best)
    return total / (total.max(initial=0.0) or 1.0) + best


def _by_meaning(documents: NDArray[np.float32], compared: Compared) -> Numbers:
    """How similar documents are to the whole query, and to its most similar sentence: the mean of both."""
    similar = documents @ compared.queries.T
    # Equal documents are to be equal whatever row they are in, which the last digits are not.
    rounded: Numbers = np.round((similar[:, 0] + similar.max(axis=1)) / 2, 5).astype(np.float64)
    return np.maximum(rounded, 0.0)
