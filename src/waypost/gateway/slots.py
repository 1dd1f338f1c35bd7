"""Which document has which slot, and which come first by their ids."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final

from waypost.gateway.bits import Bitmap, holds, packed, slots_of

_CHUNK: Final = 512
_SCATTERED: Final = 48


class _Chunk:
    """Neighbours by id: their ids in order, and their slots as a set."""

    __slots__ = ("ids", "slots")

    def __init__(self, ids: list[str], slots: Bitmap) -> None:
        self.ids = ids
        self.slots = slots


class Slots:
    """Gives every document a small number; numbers of documents that are gone are given again."""

    def __init__(self) -> None:
        self._slot_of: dict[str, int] = {}
        self._ids: list[str] = []
        self._free: list[int] = []
        self._chunks = [_Chunk([], Bitmap())]
        self._from = [""]
        """The least id that a chunk may have."""

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, found: str) -> bool:
        return found in self._slot_of

    def id(self, slot: int) -> str:
        """The id of the document in a slot."""
        return self._ids[slot]

    def take(self, found: str) -> int:
        """A slot for a new document."""
        if self._free:
            slot = self._free.pop()
            self._ids[slot] = found
        else:
            slot = len(self._ids)
            self._ids.append(found)
        self._slot_of[found] = slot
        place = bisect_right(self._from, found) - 1
        chunk = self._chunks[place]
        insort(chunk.ids, found)
        chunk.slots.append(slot)
        if len(chunk.ids) > _CHUNK:
            self._split(place)
        return slot

    def _split(self, place: int) -> None:
        ids = self._chunks[place].ids
        middle = len(ids) // 2
        halves = [
            _Chunk(half, Bitmap([self._slot_of[found] for found in half])) for half in (ids[:middle], ids[middle:])
        ]
        self._chunks[place : place + 1] = halves
        self._from.insert(place + 1, ids[middle])

    def release(self, found: str) -> int:
        """Give up the slot of a document; it is an error when there is none."""
        slot = self._slot_of.pop(found)
        self._free.append(slot)
        place = bisect_right(self._from, found) - 1
        chunk = self._chunks[place]
        del chunk.ids[bisect_left(chunk.ids, found)]
        chunk.slots.remove(slot)
        if not chunk.ids and place:
            del self._chunks[place], self._from[place]
        return slot

    def by_id(self, bits: int) -> Iterator[str]:
        """The ids of a set of documents in order; the first ones are found without looking at all."""
        if bits.bit_count() <= _SCATTERED:
            yield from sorted(map(self._ids.__getitem__, slots_of(bits)))
            return
        members = packed(bits)
        for chunk in self._chunks:
            if bits & chunk.slots.bits:
                for found in chunk.ids:
                    if holds(members, self._slot_of[found]):
                        yield found
