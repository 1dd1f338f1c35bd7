"""Characters that nobody sees but a model reads, and names that look alike."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

import msgspec

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
