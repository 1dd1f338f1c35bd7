"""Scores of all documents at once, as arrays; imported when embeddings, and numpy with them, are loaded."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from waypost.search.bm25 import SENTENCES_WEIGHT, Match
from waypost.search.embeddings import Vectors

Numbers: TypeAlias = NDArray[np.float64]

MAX_VISITED: Final = 50_000
_MEANING: Final = 0.6
_MIN_SIMILARITY: Final = 0.15
"""How similar a document must be that no other signal found."""

_MAX_COMPARED_ALL: Final = 20_000
_MAX_COMPARED: Final = 2000
"""In a larger catalog only these many documents are compared, the best by the signals before."""


def add_meaning(scores: Numbers, vectors: Vectors) -> Numbers:
    """Add how similar documents are in meaning, in place."""
    documents = vectors.documents[: len(scores)]
    if len(documents) <= _MAX_COMPARED_ALL:
        meaning = _compare(documents, vectors)
        part = scores[: len(documents)]
        part += _MEANING * np.where((part > 0) | (meaning >= _MIN_SIMILARITY), meaning, 0.0)
        return scores
    slots = np.flatnonzero(scores[: len(documents)])
    if len(slots) > _MAX_COMPARED:
        slots = slots[np.argpartition(scores[slots], -_MAX_COMPARED)[-_MAX_COMPARED:]]
    scores[slots] += _MEANING * _compare(documents[slots], vectors)
    return scores


def find_best(scores: Numbers, members: bytes, most: int) -> dict[int, float]:
    """The best documents of a set, `most` and those that are equal to the last."""
    size = len(scores)
    within = np.unpackbits(np.frombuffer(members, np.uint8), count=size, bitorder="little")
    scores = scores * within
    least = 0.0 if size <= most else float(np.partition(scores, -most)[-most])
    slots = np.flatnonzero((scores >= least) & (scores > 0))
    return dict(zip(slots.tolist(), scores[slots].tolist(), strict=True))


def score_words(found: list[list[Match]], size: int) -> Numbers:
    """What documents are worth by their words, like `bm25.sum_scores`."""
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


def _compare(documents: NDArray[np.float32], vectors: Vectors) -> Numbers:
    """How similar documents are to the whole query, and to its most similar sentence: the mean of both."""
    similar = documents @ vectors.queries.T
    # The last digits of a product depend on the row, but equal documents must have equal scores.
    rounded: Numbers = np.round((similar[:, 0] + similar.max(axis=1)) / 2, 5).astype(np.float64)
    return np.maximum(rounded, 0.0)
