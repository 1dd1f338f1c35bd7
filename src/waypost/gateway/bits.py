"""Sets of documents as the bits of integers: set operations on 100,000 documents take half a microsecond.

A document is a slot, the number of its bit. `Planes` adds up weights for all documents at once: plane `i` holds bit `i`
of every document's sum, and a weight is added to a set of documents by carrying from plane to plane.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

_SCATTERED: Final = 16
_BYTE: Final = re.compile(rb"[^\0]")
_BIT: Final = tuple(1 << bit for bit in range(8))
_BITS_OF: Final = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]


def bits_of(slots: Collection[int]) -> int:
    """The set of these slots."""
    buffer = bytearray()
    _include(buffer, slots)
    return int.from_bytes(buffer, "little")


def _include(buffer: bytearray, slots: Collection[int]) -> None:
    if not slots:
        return
    missing = (max(slots) >> 3) + 1 - len(buffer)
    if missing > 0:
        buffer.extend(bytes(missing))
    for slot in slots:
        buffer[slot >> 3] |= _BIT[slot & 7]


def slots_of(bits: int) -> Iterator[int]:
    """The members of a set, smallest first."""
    if bits.bit_count() <= _SCATTERED:
        while bits:
            lowest = bits & -bits
            yield lowest.bit_length() - 1
            bits ^= lowest
        return
    for found in _BYTE.finditer(packed(bits)):
        first = found.start() * 8
        for bit in _BITS_OF[found[0][0]]:
            yield first + bit


def packed(bits: int) -> bytes:
    """A set as bytes, to look up single slots in."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def holds(members: bytes, slot: int) -> bool:
    """Whether a set as bytes has a slot."""
    byte = slot >> 3
    return byte < len(members) and bool(members[byte] >> (slot & 7) & 1)


class Bitmap:
    """A set that changes slot by slot, and is asked for as a whole."""

    __slots__ = ("_buffer", "_new", "_whole", "append")

    def __init__(self, slots: list[int] | None = None) -> None:
        self._buffer = bytearray()
        self._new = slots or []
        self._whole = 0
        self.append = self._new.append
        """Take in a slot that is not a member."""

    def remove(self, slot: int) -> None:
        """Leave out a slot that is a member."""
        self.settle()
        self._buffer[slot >> 3] &= ~_BIT[slot & 7]
        self._whole = 0

    def settle(self) -> None:
        """Put what was taken in where it belongs, so that the next question need not."""
        if self._new:
            _include(self._buffer, self._new)
            self._new.clear()
            self._whole = 0

    @property
    def bits(self) -> int:
        """The set as an integer."""
        self.settle()
        if not self._whole:
            self._whole = int.from_bytes(self._buffer, "little")
        return self._whole


class Planes:
    """A sum for every document."""

    __slots__ = ("_planes",)

    def __init__(self) -> None:
        self._planes: list[int] = []

    def add(self, weight: int, bits: int) -> None:
        """Add a weight to the sum of each document of a set."""
        place = 0
        while weight:
            if weight & 1:
                self._carry(place, bits)
            weight >>= 1
            place += 1

    def _carry(self, place: int, carry: int) -> None:
        planes = self._planes
        planes.extend([0] * (place + 1 - len(planes)))
        while carry:
            if place == len(planes):
                planes.append(carry)
                return
            plane = planes[place]
            planes[place] = plane ^ carry
            carry &= plane
            place += 1

    def descending(self, within: int) -> Iterator[tuple[int, int]]:
        """Sums above zero that documents have, largest first, each with the documents that have it."""
        waiting = [(len(self._planes), 0, within)]
        while waiting:
            place, total, bits = waiting.pop()
            if not bits:
                continue
            if place == 0:
                if total:
                    yield total, bits
                continue
            place -= 1
            upper = bits & self._planes[place]
            waiting.append((place, total, bits ^ upper))
            waiting.append((place, total | 1 << place, upper))
