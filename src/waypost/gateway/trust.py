"""Trust in what other servers say about what they offer: pinned at first sight, compared ever after."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from waypost.gateway.characters import escaped

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
