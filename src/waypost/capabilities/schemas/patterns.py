"""How much a regular expression costs, estimated from its text.

The engine needs time linear in the text it searches, but the constant is the number of positions in the pattern that
can match at once: `^[01]*1[01]{1000}x$` takes 15 µs a character.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

_QUANTIFIER: Final = re.compile(r"([*+])|\?|\{\s*(\d{1,9})\s*(?:(,)\s*(\d{1,9})?\s*)?\}|\{\s*,\s*(\d{1,9})\s*\}")
# What follows a backslash and belongs to it: \p{L}, \x{61}, \u0061, \k<name>.
_ESCAPE: Final = re.compile(r"\\(?:[pPxuU]\{[^}]*\}|k<[^>]*>|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_LITERALS: Final = re.compile(r"[^\\\[\](){}|*+?^$.]{2,}")
_CLASS: Final = re.compile(r"\[\^?(?:\\.|[^\]\\])*\]?", re.DOTALL)

# Measured in the engine: a position of ASCII takes 72 bytes, one of any character 1 KB, a Unicode class 43 KB.
_ANY_CHARACTER_UNITS: Final = 4
_UNICODE_CLASS_UNITS: Final = 250
_HARMLESS_POSITIONS: Final = 12
"""So few positions have at most 4,096 combinations, which the engine remembers all."""


class PatternSize(NamedTuple):
    """What a pattern takes: `units` to compile it, and `checks` to search one character."""

    units: int
    checks: int


@dataclass(slots=True)
class _Run:
    """Elements in a row; `loose` counts the positions in and after the first loop, which can all match at once."""

    units: int = 0
    positions: int = 0
    loose: int = 0

    def add(self, other: _Run) -> None:
        self.units += other.units
        self.positions += other.positions
        self.loose = self.loose + other.positions if self.loose else other.loose

    def repeat(self, most: int | None, least: int) -> None:
        count = max(least if most is None else most, 1)
        self.units *= count
        self.positions *= count
        if most is None or self.loose:
            self.loose = self.positions


class _Group:
    """An open group: its alternatives so far, the current one, and the element that a quantifier may follow."""

    def __init__(self) -> None:
        self.whole, self.current, self.last = _Run(), _Run(), _Run()
        self.is_anchored = False

    def put(self, element: _Run) -> None:
        self.current.add(self.last)
        self.last = element

    def end_alternative(self, *, is_outermost: bool) -> None:
        self.put(_Run())
        if is_outermost and not self.is_anchored:  # it is searched from every character
            self.current.loose = self.current.positions
        self.whole = _Run(
            self.whole.units + self.current.units,
            self.whole.positions + self.current.positions,
            self.whole.loose + self.current.loose,
        )
        self.current, self.is_anchored = _Run(), False


@lru_cache(maxsize=512)
def measure_pattern(pattern: str) -> PatternSize:
    """Estimate an upper bound of a pattern's size; unknown syntax counts as ordinary characters."""
    groups = [_Group()]
    at = 0
    while at < len(pattern):
        group, sign = groups[-1], pattern[at]
        if quantifier := _QUANTIFIER.match(pattern, at):
            _quantify(group.last, quantifier)
            at = quantifier.end()
            continue
        if literals := _LITERALS.match(pattern, at):  # a quantifier is for the last of them
            at = literals.end() - 1
            count = at - literals.start()
            units = count if literals.group().isascii() else count * _ANY_CHARACTER_UNITS
            group.put(_Run(units, count, 0))
            sign = pattern[at]
        at += 1
        if sign == "(":
            groups.append(_Group())
        elif sign == ")" and len(groups) > 1:
            group.end_alternative(is_outermost=False)
            groups.pop()
            groups[-1].put(group.whole)
        elif sign == "|":
            group.end_alternative(is_outermost=len(groups) == 1)
        elif sign == "^":
            group.is_anchored = group.is_anchored or not (group.current.positions or group.last.positions)
        elif sign != "$":
            found = (_CLASS if sign == "[" else _ESCAPE).match(pattern, at - 1) if sign in "[\\" else None
            text = found.group() if found else sign
            at += len(text) - 1
            group.put(_Run(_units(text), 1, 0))
    while len(groups) > 1:
        group = groups.pop()
        group.end_alternative(is_outermost=False)
        groups[-1].put(group.whole)
    groups[0].end_alternative(is_outermost=True)
    whole = groups[0].whole
    # Letters in both cases, some of which have further forms.
    units = whole.units * 4 if "(?" in pattern and re.search(r"\(\?[a-zA-Z]*i", pattern) else whole.units
    return PatternSize(units, 75 + whole.loose if whole.loose > _HARMLESS_POSITIONS else 1)


def _quantify(element: _Run, quantifier: re.Match[str]) -> None:
    loop, least, comma, most, only_most = quantifier.groups()
    if loop:
        element.repeat(None, 1)
    elif least or only_most:
        is_endless = comma and not most
        element.repeat(None if is_endless else int(only_most or most or least), int(least or 0))
        element.units += len(quantifier.group())  # where braces mean themselves


def _units(text: str) -> int:
    """What an element takes, in positions of ASCII."""
    if classes := text.count("\\p") + text.count("\\P"):
        return _UNICODE_CLASS_UNITS * classes
    is_wide = text == "." or text.startswith("[^") or not text.isascii() or any(f"\\{one}" in text for one in "DSWsuUx")
    return (_ANY_CHARACTER_UNITS if is_wide else 1) * (1 + len(text) // 8)
