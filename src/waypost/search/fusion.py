"""Scores of all documents at once, as arrays; imported when embeddings, and numpy with them, are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from waypost.search.bm25 import SENTENCES_WEIGHT, Match
from waypost.search.documents import pack_bits
from waypost.search.embeddings import Vectors

if TYPE_CHECKING:
    from waypost.search.index import Query

Numbers: TypeAlias = NDArray[np.float64]

MAX_VISITED: Final = 50_000
_MEANING: Final = 0.9
_MIN_SIMILARITY: Final = 0.1
"""How similar a document must be that no other signal found."""


def add_meaning(scores: Numbers, vectors: Vectors) -> Numbers:
    """Add how similar documents are in meaning, in place."""
    documents = vectors.documents[: len(scores)]
    similar = documents @ vectors.queries.T
    # The whole query, and its most similar sentence: the mean of both. The last digits of a product depend on the row,
    # but equal documents must have equal scores.
    rounded: Numbers = np.round((similar[:, 0] + similar.max(axis=1)) / 2, 4).astype(np.float64)
    meaning = np.maximum(rounded, 0.0)
    part = scores[: len(documents)]
    part += _MEANING * np.where((part > 0) | (meaning >= _MIN_SIMILARITY), meaning, 0.0)
    return scores


def find_best(scores: Numbers, members: int, most: int) -> dict[int, float]:
    """The best documents of a set, `most` and those that are equal to the last."""
    size = len(scores)
    scores = scores * _to_mask(members, size)
    least = 0.0 if size <= most else float(np.partition(scores, -most)[-most])
    slots = np.flatnonzero((scores >= least) & (scores > 0))
    return dict(zip(slots.tolist(), scores[slots].tolist(), strict=True))


def score_words(found: list[list[Match]], query: Query) -> Numbers:
    """What documents are worth by their words, like `bm25.sum_scores`."""
    size = query.size
    mask = None if query.members is None else _to_mask(query.members, size)
    total: Numbers = np.zeros(size)
    best: Numbers = np.zeros(size)
    for matches in found:
        sums: Numbers = np.zeros(size)
        for rarity, postings, first in matches:
            places = np.frombuffer(postings.slots, np.uint32)
            added = rarity * np.frombuffer(postings.worth, np.float32).astype(np.float64)
            sums[places] += added
            if first:
                total[places] += added
        if mask is not None:
            sums *= mask
        np.maximum(best, sums * (SENTENCES_WEIGHT / (sums.max(initial=0.0) or 1.0)), out=best)
    if mask is not None:
        total *= mask
    scores: Numbers = total / (total.max(initial=0.0) or 1.0) + best
    return scores


def _to_mask(members: int, size: int) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(pack_bits(members), np.uint8), count=size, bitorder="little")
