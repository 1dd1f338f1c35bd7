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
    TOOL: ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta"),
    "prompt": ("name", "title", "description", "arguments", "_meta"),
    "resource": ("uri", "name", "title", "description", "mimeType", "_meta"),
    "template": ("uriTemplate", "name", "title", "description", "mimeType", "_meta"),
}
"""The entries that a pin covers: all that a model reads, what is checked, and `_meta`, which names a page that clients
show for a tool. The first identifies a definition."""
RECIPE: Final = 2
"""How pins are made; those of recipe 1 do not cover `_meta`."""
NAMED_BY: Final = {noun: entries[0] for noun, entries in PINNED.items()}
"""The entry that identifies a definition among those of its kind."""
MARK: Final = "waypost/trust"
"""The entry of `_meta` that marks a definition which changed and is not approved."""

_MAX_LINES: Final = 400
_MAX_LINE_CHARACTERS: Final = 400
_encode: Final = msgspec.json.Encoder(order="sorted").encode

Data = dict[str, Any]
Why = Literal["new", "changed"]


class Pin(msgspec.Struct, frozen=True):
    """A definition as it was when it was first listed or approved."""

    sha256: str
    definition: Data
    recipe: int = 1


class Held(msgspec.Struct, frozen=True):
    """A definition that is not approved yet."""

    why: Why
    sha256: str
    """As it will be pinned when it is approved."""


def pin_key(noun: str, name: str) -> str:
    """The key that a definition is pinned under: the name of a tool, which has no blank, else its noun and its name."""
    return name if noun == TOOL else f"{noun} {name}"


def noun_of_key(key: str) -> str:
    """What the definition under a key defines."""
    noun, blank, _ = key.partition(" ")
    return noun if blank and noun in PINNED else TOOL


def pinned_part(definition: Mapping[str, Any], noun: str = TOOL, recipe: int = RECIPE) -> Data:
    """The entries of a definition that its pin covers."""
    entries = PINNED[noun] if recipe > 1 else PINNED[noun][:-1]
    return {key: definition[key] for key in entries if definition.get(key) is not None}


def fingerprint(definition: Mapping[str, Any], noun: str = TOOL, recipe: int = RECIPE) -> str:
    """The SHA-256 of a definition's canonical JSON."""
    return hashlib.sha256(_encode(pinned_part(definition, noun, recipe))).hexdigest()


def make_pin(definition: Mapping[str, Any], noun: str = TOOL) -> Pin:
    """Pin a definition as it is."""
    return Pin(fingerprint(definition, noun), pinned_part(definition, noun), RECIPE)


def renew_pins(pins: Mapping[str, Pin], known: Mapping[str, Data]) -> dict[str, Pin]:
    """The pins by the current recipe, where an older one covers a definition as it is known.

    What an older recipe does not cover is taken as it is known: otherwise every definition would be held at once.
    """
    return {
        key: make_pin(known[key], noun_of_key(key))
        if pin.recipe < RECIPE and key in known and _fits(pin, known[key], noun_of_key(key))
        else pin
        for key, pin in pins.items()
    }


def _fits(pin: Pin, definition: Mapping[str, Any], noun: str) -> bool:
    return pin.sha256 == fingerprint(definition, noun, pin.recipe)


def hash_pins(pins: Mapping[str, Pin]) -> str:
    """One SHA-256 for a whole set of definitions."""
    return hashlib.sha256(_encode({name: pin.sha256 for name, pin in pins.items()})).hexdigest()


def find_held(offered: Mapping[str, Data], pins: Mapping[str, Pin]) -> dict[str, Held]:
    """The definitions that differ from their pins or have none, by key."""
    held: dict[str, Held] = {}
    for key, definition in offered.items():
        noun, pin = noun_of_key(key), pins.get(key)
        if pin is None or not _fits(pin, definition, noun):
            held[key] = Held("new" if pin is None else "changed", fingerprint(definition, noun))
    return held


def diff_definitions(old: Mapping[str, Any] | None, new: Mapping[str, Any], noun: str = TOOL) -> list[str]:
    """How a definition changed, as lines that begin with `-`, `+` or a blank."""
    lines = difflib.unified_diff(_to_lines(old or {}, noun), _to_lines(new, noun), n=1, lineterm="")
    return [line for line in lines if not line.startswith(("--- ", "+++ ", "@@"))]


def _to_lines(definition: Mapping[str, Any], noun: str) -> list[str]:
    lines: list[str] = []
    for key in PINNED[noun][1:]:
        value = definition.get(key)
        if value is None:
            continue
        text = value if isinstance(value, str) else msgspec.json.format(_encode(value), indent=2).decode()
        lines += [f"{key}: {escape_hidden(line)[:_MAX_LINE_CHARACTERS]}" for line in text.splitlines()]
    more = len(lines) - _MAX_LINES
    return lines if more <= 0 else [*lines[:_MAX_LINES], f"and {more} more lines"]


_PLAIN: Final = frozenset("\n\r\t")
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that are drawn as nothing."""
_JOINER: Final = "\u200d"
_EMOJI: Final = frozenset({"So", "Sk"})
_MAX_DEPTH: Final = 64
_ESCAPES: Final = re.compile(rb"\\[ubf]|\x7f")
PROSE: Final = ("description", "title")
"""The entries of a definition, and of its schemas, that are prose for a model."""


def is_hidden(letter: str) -> bool:
    """Whether a character is drawn as nothing, or changes how others are drawn."""
    if letter in _PLAIN:
        return False
    if letter in _BLANK or "\ufe00" <= letter <= "\ufe0e" or "\U000e0000" <= letter <= "\U000e0fff":
        return True
    return not letter.isprintable() and unicodedata.category(letter) in _HIDDEN_CATEGORIES


def find_hidden(text: str) -> list[int]:
    """The positions of hidden characters; a joiner between emoji is visible."""
    if text.isascii() and text.isprintable():
        return []
    return [place for place, letter in enumerate(text) if is_hidden(letter) and not _joins_emoji(text, place)]


def _joins_emoji(text: str, place: int) -> bool:
    """Whether the character joins two emoji into one."""
    if text[place] != _JOINER or not 0 < place < len(text) - 1:
        return False
    before, after = text[place - 1], text[place + 1]
    return (before == "\ufe0f" or unicodedata.category(before) in _EMOJI) and unicodedata.category(after) in _EMOJI


def escape_hidden(text: str) -> str:
    """A text with its hidden characters spelled out, such as `<U+200B>`."""
    places = set(find_hidden(text))
    if not places:
        return text
    return "".join(f"<U+{ord(letter):04X}>" if place in places else letter for place, letter in enumerate(text))


def escape_prose(definition: dict[str, Any]) -> Any:
    """A definition without hidden characters in its prose; what a call depends on stays as it is."""
    written = msgspec.json.encode(definition)
    # Most are plain: as JSON they have neither letters of other scripts nor escapes but those of quotes and lines.
    return definition if written.isascii() and _ESCAPES.search(written) is None else _escape_prose(definition)


def _escape_prose(value: Any, depth: int = 0) -> Any:
    if isinstance(value, list):
        return [_escape_prose(item, depth + 1) for item in value] if depth < _MAX_DEPTH else value
    if not isinstance(value, dict) or depth >= _MAX_DEPTH:
        return value
    return {
        key: escape_hidden(member) if key in PROSE and isinstance(member, str) else _escape_prose(member, depth + 1)
        for key, member in value.items()
    }


def name_hidden(value: Any) -> list[str]:
    """The names of the hidden characters in a definition, each once."""
    found = {text[place] for text in _iterate_texts(value) for place in find_hidden(text)}
    return [f"U+{ord(letter):04X} {unicodedata.name(letter, 'control character')}" for letter in sorted(found)]


def _iterate_texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < _MAX_DEPTH:
        for item in value:
            yield from _iterate_texts(item, depth + 1)
    elif isinstance(value, dict) and depth < _MAX_DEPTH:
        for key, member in value.items():
            yield key
            yield from _iterate_texts(member, depth + 1)
