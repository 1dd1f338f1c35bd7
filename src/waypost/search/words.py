"""Words: the runs that the weighted score compares, and the stems that sentences are compared by."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import msgspec

_RUN: Final = re.compile(r"[^\W_]+")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_a-zA-Z0-9]+")
_LONG_NUMBER: Final = 4
_MAX_REMEMBERED_CHARACTERS: Final = 64
_VOWEL: Final = re.compile("[aeiouy]")

STOP_WORDS: Final = frozenset(
    _RUN.findall(
        "a about all also am an and any are as at be been but by can could did do does for from had has have he her"
        " his how i if in into is it its just like me my need of on or our please she should so some than that the"
        " their them then there these they this those to up us use using want was we were what when where which who"
        " will with would you your"
    )
)


def runs(text: str) -> list[str]:
    """The lower-cased alphanumeric runs of a text, in their order."""
    return _RUN.findall(text.lower())


def stems(text: str) -> list[str]:
    """The stems of a text's words, identifiers split; words that say nothing and long numbers are left out."""
    found: list[str] = []
    for run in _RUN.findall(text):
        # A long number is a value and names nothing; so many different ones would crowd out the words that are kept.
        if len(run) < _LONG_NUMBER or not run.isdigit():
            found += _remembered_stems(run) if len(run) <= _MAX_REMEMBERED_CHARACTERS else _stems_of_run(run)
    return found


def _stems_of_run(run: str) -> tuple[str, ...]:
    return tuple(stem(part) for part in parts(run) if part not in STOP_WORDS)


_remembered_stems: Final = lru_cache(maxsize=65_536)(_stems_of_run)


def parts(text: str) -> list[str]:
    """The lower-cased words of a text, identifiers split at underscores, dots, digits and capitals."""
    return [part.lower() for part in _PART.findall(text)]


def stem(word: str) -> str:
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


_PLAIN: Final = frozenset("\n\r\t")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that are drawn as nothing."""
_JOINER: Final = "\u200d"
_EMOJI: Final = frozenset({"So", "Sk"})
_DEEPEST: Final = 64
_ESCAPES: Final = re.compile(rb"\\[ubf]|\x7f")
TOLD: Final = ("description", "title")
"""The entries of a definition, and of its schemas, that are prose for a model."""


def is_unseen(letter: str) -> bool:
    """Whether a character is drawn as nothing, or changes how others are drawn."""
    if letter in _PLAIN:
        return False
    if letter in _BLANK or "\ufe00" <= letter <= "\ufe0e" or "\U000e0000" <= letter <= "\U000e0fff":
        return True
    return not letter.isprintable() and unicodedata.category(letter) in _UNSEEN


def unseen(text: str) -> list[int]:
    """Where characters stand that nobody sees; those that join emoji are seen."""
    if text.isascii() and text.isprintable():
        return []
    return [place for place, letter in enumerate(text) if is_unseen(letter) and not _joins(text, place)]


def _joins(text: str, place: int) -> bool:
    """Whether the character at a place makes one picture of two."""
    if text[place] != _JOINER or not 0 < place < len(text) - 1:
        return False
    before, after = text[place - 1], text[place + 1]
    return (before == "\ufe0f" or unicodedata.category(before) in _EMOJI) and unicodedata.category(after) in _EMOJI


def escaped(text: str) -> str:
    """A text in which what nobody sees is spelled out, such as `<U+200B>`."""
    places = set(unseen(text))
    if not places:
        return text
    return "".join(f"<U+{ord(letter):04X}>" if place in places else letter for place, letter in enumerate(text))


def told(definition: dict[str, Any]) -> Any:
    """A definition whose prose has nothing hidden in it; whatever a call depends on stays as it is."""
    written = msgspec.json.encode(definition)
    # Most are plain: as JSON they have neither letters of other scripts nor escapes but those of quotes and lines.
    return definition if written.isascii() and _ESCAPES.search(written) is None else _told(definition)


def _told(value: Any, depth: int = 0) -> Any:
    if isinstance(value, list):
        return [_told(item, depth + 1) for item in value] if depth < _DEEPEST else value
    if not isinstance(value, dict) or depth >= _DEEPEST:
        return value
    return {
        key: escaped(member) if key in TOLD and isinstance(member, str) else _told(member, depth + 1)
        for key, member in value.items()
    }


def hidden_characters(value: Any) -> list[str]:
    """The names of all characters in a definition that nobody sees, each once."""
    found = {text[place] for text in _texts(value) for place in unseen(text)}
    return [f"U+{ord(letter):04X} {unicodedata.name(letter, 'control character')}" for letter in sorted(found)]


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < _DEEPEST:
        for item in value:
            yield from _texts(item, depth + 1)
    elif isinstance(value, dict) and depth < _DEEPEST:
        for key, member in value.items():
            yield key
            yield from _texts(member, depth + 1)


def folded(name: str) -> str:
    """What a name looks like at a glance: two names that fold to one are taken for each other."""
    if name.isascii():
        return name.casefold()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
