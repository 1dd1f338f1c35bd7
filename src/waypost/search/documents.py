"""Documents as the search knows them, what it answers, and sets of documents as the bits of integers.

Set operations on 100,000 documents take half a microsecond. A document is a slot, the number of its bit. `Planes` adds
up weights for all documents at once: plane `i` holds bit `i` of every document's sum, and a weight is added to a set of
documents by carrying from plane to plane.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

Ranking: TypeAlias = Literal["auto", "weighted", "hybrid"]
Ranked: TypeAlias = Literal["weighted", "hybrid"]
Texts: TypeAlias = tuple[str, str, str, str, str, str]

DEFAULT_LIMIT: Final = 10
MAX_RESULTS: Final = 100


# `gc=False`: a document holds only texts, so that the collector need not visit it.
class Document(msgspec.Struct, frozen=True, gc=False):
    """An item of the catalog as it is searched; without a title, its id is its title."""

    id: str
    kind: str = "capability"
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    text: str = ""
    parameters: tuple[str, ...] = ()
    """Names of parameters, and what is said about them; only the hybrid ranking reads these."""

    @property
    def fields(self) -> Texts:
        """The texts that are weighed, in the order of `WEIGHTS`."""
        return (
            self.title or self.id,
            self.id,
            " ".join(self.tags),
            " ".join(self.aliases),
            self.description,
            self.text,
        )


WEIGHTS: Final = (6, 5, 3, 3, 2, 1)
"""What a match counts in the title, the id, the tags, the aliases, the description and the text."""
FIELDS: Final = ("title", "id", "tags", "aliases", "description", "text")
"""The names of these texts."""


class Hit(NamedTuple):
    """One item that was found."""

    score: float
    id: str


class Reason(NamedTuple):
    """A term of a query, the text of an item that it was found in, and the points that it adds to a weighted score."""

    term: str
    field: str
    points: float


class Found(NamedTuple):
    """What a search found, best first, and by which ranking."""

    ranking: Ranked
    results: list[Hit]
    signals: Sequence[str] = ()
    """The signals of a hybrid ranking that took part: `words`, and `meaning` where embeddings are used."""


_SCATTERED: Final = 16
# The regular expression skips empty bytes faster than a loop in Python.
_BYTE: Final = re.compile(rb"[^\0]")
_BIT: Final = tuple(1 << bit for bit in range(8))
_BITS_OF: Final = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]


def to_bits(slots: Collection[int]) -> int:
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


def iterate_slots(bits: int) -> Iterator[int]:
    """The members of a set, smallest first."""
    # Of a few members, arithmetic on the whole integer costs less than looking through its bytes.
    if bits.bit_count() <= _SCATTERED:
        while bits:
            lowest = bits & -bits
            yield lowest.bit_length() - 1
            bits ^= lowest
        return
    for found in _BYTE.finditer(pack_bits(bits)):
        first = found.start() * 8
        for bit in _BITS_OF[found[0][0]]:
            yield first + bit


def pack_bits(bits: int) -> bytes:
    """A set as bytes, to look up single slots in."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def has_slot(members: bytes, slot: int) -> bool:
    """Whether a set as bytes has a slot."""
    byte = slot >> 3
    return byte < len(members) and bool(members[byte] >> (slot & 7) & 1)


class Bitmap:
    """A set that changes slot by slot, and is asked for as a whole."""

    __slots__ = ("_buffer", "_new", "_whole", "append")

    def __init__(self, slots: list[int] | None = None) -> None:
        self._buffer = bytearray()
        # New slots are put in together when the set is asked for: the integer is as long as the catalog, and made anew.
        self._new = slots or []
        self._whole = 0
        self.append = self._new.append
        """Add a slot that is not a member."""

    def remove(self, slot: int) -> None:
        """Remove a slot that is a member."""
        self.apply_new()
        self._buffer[slot >> 3] &= ~_BIT[slot & 7]
        self._whole = 0

    def apply_new(self) -> None:
        """Apply the slots that were added, so that the next read need not."""
        if self._new:
            _include(self._buffer, self._new)
            self._new.clear()
            self._whole = 0

    @property
    def bits(self) -> int:
        """The set as an integer."""
        self.apply_new()
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
            # The larger sums last: the stack gives them out first.
            waiting.append((place, total, bits ^ upper))
            waiting.append((place, total | 1 << place, upper))


_CHUNK: Final = 512
_SPREAD: Final = 48
_REMEMBERED: Final = 4096
"""Changes that are kept at least, and as many as there are documents: a view goes through all when it missed more."""
_PORTION: Final = 200


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
        self._changed: list[int] = []
        self._first = 0
        """The revision before the first of the changes that are kept."""

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, found: str) -> bool:
        return found in self._slot_of

    def id(self, slot: int) -> str:
        """The id of the document in a slot."""
        return self._ids[slot]

    def slot(self, found: str) -> int:
        """The slot of a document; it is an error when there is none."""
        return self._slot_of[found]

    @property
    def size(self) -> int:
        """All slots are below this."""
        return len(self._ids)

    @property
    def revision(self) -> int:
        """The number of documents that were added and removed."""
        return self._first + len(self._changed)

    def changed_since(self, revision: int) -> Sequence[int]:
        """The slots that were taken or given up since a revision; all slots when that is not kept any longer."""
        return range(len(self._ids)) if revision < self._first else self._changed[revision - self._first :]

    def get_id(self, slot: int) -> str | None:
        """The id of the document in a slot, if there is one."""
        found = self._ids[slot]
        return found if self._slot_of.get(found) == slot else None

    def _note(self, slot: int) -> None:
        self._changed.append(slot)
        kept = max(_REMEMBERED, len(self._ids))
        # Half of them at once, so that it is not done with every change.
        if len(self._changed) > 2 * kept:
            self._first += len(self._changed) - kept
            del self._changed[:-kept]

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
        self._note(slot)
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
        self._note(slot)
        return slot

    def by_id(self, bits: int) -> Iterator[str]:
        """The ids of a set of documents in order; the first ones are found without looking at all."""
        if bits.bit_count() <= _SPREAD:
            yield from sorted(map(self._ids.__getitem__, iterate_slots(bits)))
            return
        members = pack_bits(bits)
        for chunk in self._chunks:
            if bits & chunk.slots.bits:
                for found in chunk.ids:
                    if has_slot(members, self._slot_of[found]):
                        yield found


class View:
    """The documents that one caller may find, as a set that is brought up to date before each search.

    Only what changed since the last search is checked, so a search costs the same in a large catalog.
    """

    def __init__(self, slots: Slots, allowed: Callable[[str], bool]) -> None:
        self._slots = slots
        self._allowed = allowed
        self._revision = -1
        self.bits = 0

    def update(self) -> Iterator[None]:
        """Check what changed, in portions: others may go on between them, and change more."""
        slots = self._slots
        while self._revision < slots.revision:
            revision = slots.revision
            changed = slots.changed_since(self._revision)
            for first in range(0, len(changed), _PORTION):
                portion = changed[first : first + _PORTION]
                # A second search of the same caller may do the same meanwhile, so every step is right by itself.
                found = [slot for slot in portion if (id := slots.get_id(slot)) is not None and self._allowed(id)]
                self.bits = self.bits & ~to_bits(portion) | to_bits(found)
                yield
            self._revision = max(self._revision, revision)
