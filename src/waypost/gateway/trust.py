"""Trust in what other servers say about their tools: pinned at first sight, compared ever after."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from waypost.gateway.characters import escaped

PINNED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""The entries of a definition that a pin covers: all that a model is told, and what is checked."""
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


def covered(definition: Mapping[str, Any]) -> Data:
    """The part of a definition that is pinned."""
    return {key: definition[key] for key in PINNED if definition.get(key) is not None}


def fingerprint(definition: Mapping[str, Any]) -> str:
    """The SHA-256 of a definition's canonical JSON."""
    return hashlib.sha256(_encode(covered(definition))).hexdigest()


def pinned(definition: Mapping[str, Any]) -> Pin:
    """The pin of a definition."""
    return Pin(fingerprint(definition), covered(definition))


def pin_of_all(pins: Mapping[str, Pin]) -> str:
    """One SHA-256 for a whole set of tools."""
    return hashlib.sha256(_encode({name: pin.sha256 for name, pin in pins.items()})).hexdigest()


def judged(tools: Iterable[Data], pins: Mapping[str, Pin]) -> dict[str, Held]:
    """What of a server's tools is not what was pinned, by name."""
    held: dict[str, Held] = {}
    for tool in tools:
        name, digest = tool["name"], fingerprint(tool)
        pin = pins.get(name)
        if pin is None or pin.sha256 != digest:
            held[name] = Held("new" if pin is None else "changed", digest)
    return held


def difference(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> list[str]:
    """What became of a definition, as lines that begin with `-`, `+` or a blank."""
    lines = difflib.unified_diff(_lines(old or {}), _lines(new), n=1, lineterm="")
    return [line for line in lines if not line.startswith(("--- ", "+++ ", "@@"))]


def _lines(definition: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for key in PINNED[1:]:
        value = definition.get(key)
        if value is None:
            continue
        text = value if isinstance(value, str) else msgspec.json.format(_encode(value), indent=2).decode()
        lines += [f"{key}: {escaped(line)[:_LONGEST_LINE]}" for line in text.splitlines()]
    more = len(lines) - _MOST_LINES
    return lines if more <= 0 else [*lines[:_MOST_LINES], f"and {more} more lines"]
