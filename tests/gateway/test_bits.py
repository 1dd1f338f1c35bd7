"""Sets of documents and sums over them are what plain sets and sums are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from waypost.search.slots import Bitmap, Planes, bits_of, holds, packed, slots_of

slots = st.sets(st.integers(0, 400), max_size=60)


@given(slots)
def test_a_set_gives_back_its_members_in_order(members: set[int]) -> None:
    bits = bits_of(members)

    assert list(slots_of(bits)) == sorted(members)
    assert [slot for slot in range(410) if holds(packed(bits), slot)] == sorted(members)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 200), st.booleans())))
def test_a_bitmap_changes_slot_by_slot(changes: list[tuple[bool, int, bool]]) -> None:
    bitmap = Bitmap()
    members: set[int] = set()
    for adds, slot, asks in changes:
        if adds and slot not in members:
            bitmap.append(slot)
            members.add(slot)
        elif not adds and slot in members:
            bitmap.remove(slot)
            members.remove(slot)
        if asks:
            assert bitmap.bits == bits_of(members)

    assert bitmap.bits == bits_of(members)


@given(st.lists(st.tuples(st.integers(1, 96), slots), max_size=12), slots)
def test_planes_add_up_and_come_down_from_the_largest_sum(added: list[tuple[int, set[int]]], within: set[int]) -> None:
    planes = Planes()
    for weight, members in added:
        planes.add(weight, bits_of(members))
    sums = {slot: sum(weight for weight, members in added if slot in members) for slot in within}

    found = [(total, set(slots_of(bits))) for total, bits in planes.descending(bits_of(within))]

    assert found == [
        (total, {slot for slot in within if sums[slot] == total})
        for total in sorted({total for total in sums.values() if total}, reverse=True)
    ]
