"""Words: the runs that the weighted score compares, and the stems that sentences are compared by."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

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
