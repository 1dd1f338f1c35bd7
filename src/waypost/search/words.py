"""Words: the runs that the weighted score compares, and the stems that sentences are compared by."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

_RUN: Final = re.compile(r"([^\W_]{1,256})[^\W_]*")
"""Of a longer run only the beginning counts: all trigrams of a word of many thousand letters would take too long."""
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_a-zA-Z0-9]+")
_APOSTROPHE: Final = re.compile(r"['\u2019].*")
_PUNCTUATION: Final = ".,;:!?()[]{}\"'\u2018\u2019\u201c\u201d"
_LONG_NUMBER: Final = 4
_MAX_REMEMBERED_CHARACTERS: Final = 64
_VOWEL: Final = re.compile("[aeiouy]")

_CONNECTIVES: Final = frozenset(
    _RUN.findall("a an and any as at but by for from if in into of on or so some than the to with")
)
_SPOKEN: Final = frozenset(
    _RUN.findall(
        "am are be been can could did do does had has have he her his how i is it its me my need our please she should"
        " that their them then there these they this those us want was we were what when where which who whose why will"
        " would you your"
    )
)
"""Words by which people ask and say what they want."""
STOP_WORDS: Final = _CONNECTIVES | _SPOKEN | {"about", "all", "also", "just", "like", "up", "use", "using"}


class Wording(NamedTuple):
    """A query as the weighted score reads it."""

    terms: list[str]
    is_spoken: bool
    """Whether it is phrased as people talk, so that it is more than keywords however short it is."""


def read_wording(query: str) -> Wording:
    """The terms of a query: its runs without connectives and spoken words, unless it has no others.

    Only words that stand alone are left out: of an identifier such as `get_me` or `log-in` all runs are terms.
    """
    terms: list[str] = []
    connectives = 0
    is_spoken = query.rstrip().endswith("?")
    for word in query.split():
        plain = _APOSTROPHE.sub("", word.lower().strip(_PUNCTUATION))  # `what's` is `what`
        if plain in _SPOKEN:
            is_spoken = True
        elif plain in _CONNECTIVES:
            connectives += 1
        else:
            terms += split_runs(word)
    return Wording(terms, is_spoken or connectives > 1) if terms else Wording(split_runs(query), False)


def split_runs(text: str) -> list[str]:
    """The lower-cased alphanumeric runs of a text, in their order."""
    return _RUN.findall(text.lower())


def split_stems(text: str) -> list[str]:
    """The stems of a text's words, identifiers split; words that say nothing and long numbers are left out."""
    found: list[str] = []
    for run in _RUN.findall(text):
        # A long number is a value and names nothing; so many different ones would crowd out the words that are kept.
        if len(run) < _LONG_NUMBER or not run.isdigit():
            found += _remembered_stems(run) if len(run) <= _MAX_REMEMBERED_CHARACTERS else _stems_of_run(run)
    return found


def _stems_of_run(run: str) -> tuple[str, ...]:
    return tuple(stem_word(part) for part in split_words(run) if part not in STOP_WORDS)


_remembered_stems: Final = lru_cache(maxsize=65_536)(_stems_of_run)


def split_words(text: str) -> list[str]:
    """The lower-cased words of a text, identifiers split at underscores, dots, digits and capitals."""
    return [part.lower() for part in _PART.findall(text)]


def stem_word(word: str) -> str:
    """A word without its commonest endings: plurals, -ed, -ing, -ly, -ion and the like; never shorter than three."""
    if len(word) < 4 or not word.isascii():
        return word
    word = _singular(word)
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and _VOWEL.search(word[: -len(ending)]):
            return _tidy(word[: -len(ending)] + instead)
    return _tidy(word)


_ENDINGS: Final = (
    ("ization", "iz"),
    ("isation", "iz"),
    ("ation", "at"),
    ("ition", "it"),
    ("ator", "at"),
    ("ing", ""),
    ("ion", ""),
    ("ed", ""),
    ("er", ""),
    ("or", ""),
    ("ly", ""),
    ("ment", ""),
)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "ches", "shes", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _tidy(word: str) -> str:
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeioulsz":
        return word[:-1]
    if len(word) > 3 and word.endswith("e"):
        return word[:-1]
    if len(word) > 3 and word.endswith("y"):
        return word[:-1] + "i"
    return word


_GROUPS: Final = """
    folder directory, picture image photo, delete remove erase forget, create make, find search, repair fix,
    download fetch retrieve, show display view list, edit change modify update, copy duplicate clone, email mail,
    website webpage page url, send post, buy purchase order, begin start launch, stop end, run execute, cost price,
    calculate compute, film movie, song music track, remember store save
"""
SYNONYMS: Final = {
    stem_word(word): tuple(stem_word(other) for other in group.split() if other != word)
    for group in _GROUPS.split(",")
    for word in group.split()
}
"""The other words, as stems, that tools are described with where people say one of these."""

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
        """Add a new word."""
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
        # Each word with the term has all of its trigrams, so that the rarest one leads to all of them.
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
