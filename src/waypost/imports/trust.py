"""Trust in definitions of upstream servers: pins of what was approved, and characters that a reader does not see."""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

TOOL: Final = "tool"
PINNED: Final = {
    TOOL: ("name", "title", "description", "inputSchema", "outputSchema", "annotations"),
    "prompt": ("name", "title", "description", "arguments"),
    "resource": ("uri", "name", "title", "description", "mimeType"),
    "template": ("uriTemplate", "name", "title", "description", "mimeType"),
}
"""The entries of a definition that a pin covers, by what it defines: all that a model is told, and what is checked.

The first tells it from others.
"""
NAMED_BY: Final = {noun: entries[0] for noun, entries in PINNED.items()}
"""The entry of a definition that tells it from others."""
MARK: Final = "waypost/trust"
"""The entry of `_meta` that marks a definition which changed and was not approved."""

_MOST_LINES: Final = 400
_LONGEST_LINE: Final = 400
_encode: Final = msgspec.json.Encoder(order="sorted").encode

Data = dict[str, Any]
Why = Literal["new", "changed"]


class Pin(msgspec.Struct, frozen=True):
    """A definition as it was when it was first seen or approved."""

    sha256: str
    definition: Data


class Held(msgspec.Struct, frozen=True):
    """A definition that nobody approved yet."""

    why: Why
    sha256: str


def key_of(noun: str, name: str) -> str:
    """What a definition is pinned under: a tool under its name, which has no blank in it."""
    return name if noun == TOOL else f"{noun} {name}"


def noun_of(key: str) -> str:
    """What is pinned under a key."""
    noun, blank, _ = key.partition(" ")
    return noun if blank and noun in PINNED else TOOL


def covered(definition: Mapping[str, Any], noun: str = TOOL) -> Data:
    """The part of a definition that is pinned."""
    return {key: definition[key] for key in PINNED[noun] if definition.get(key) is not None}


def fingerprint(definition: Mapping[str, Any], noun: str = TOOL) -> str:
    """The SHA-256 of a definition's canonical JSON."""
    return hashlib.sha256(_encode(covered(definition, noun))).hexdigest()


def pinned(definition: Mapping[str, Any], noun: str = TOOL) -> Pin:
    """The pin of a definition."""
    return Pin(fingerprint(definition, noun), covered(definition, noun))


def pin_of_all(pins: Mapping[str, Pin]) -> str:
    """One SHA-256 for a whole set of definitions."""
    return hashlib.sha256(_encode({name: pin.sha256 for name, pin in pins.items()})).hexdigest()


def judged(offered: Mapping[str, Data], pins: Mapping[str, Pin]) -> dict[str, Held]:
    """What of a server's definitions is not what was pinned, by key."""
    held: dict[str, Held] = {}
    for key, definition in offered.items():
        digest, pin = fingerprint(definition, noun_of(key)), pins.get(key)
        if pin is None or pin.sha256 != digest:
            held[key] = Held("new" if pin is None else "changed", digest)
    return held


def difference(old: Mapping[str, Any] | None, new: Mapping[str, Any], noun: str = TOOL) -> list[str]:
    """What became of a definition, as lines that begin with `-`, `+` or a blank."""
    lines = difflib.unified_diff(_lines(old or {}, noun), _lines(new, noun), n=1, lineterm="")
    return [line for line in lines if not line.startswith(("--- ", "+++ ", "@@"))]


def _lines(definition: Mapping[str, Any], noun: str) -> list[str]:
    lines: list[str] = []
    for key in PINNED[noun][1:]:
        value = definition.get(key)
        if value is None:
            continue
        text = value if isinstance(value, str) else msgspec.json.format(_encode(value), indent=2).decode()
        lines += [f"{key}: {escaped(line)[:_LONGEST_LINE]}" for line in text.splitlines()]
    more = len(lines) - _MOST_LINES
    return lines if more <= 0 else [*lines[:_MOST_LINES], f"and {more} more lines"]


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
