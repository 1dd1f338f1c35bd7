"""Bit sets of documents, and sums over them, equal plain sets and sums."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from waypost.search.documents import Bitmap, Planes, has_slot, iterate_slots, pack_bits, to_bits

slots = st.sets(st.integers(0, 400), max_size=60)


@given(slots)
def test_a_bit_set_lists_its_members_in_order(members: set[int]) -> None:
    bits = to_bits(members)

    assert list(iterate_slots(bits)) == sorted(members)
    assert [slot for slot in range(410) if has_slot(pack_bits(bits), slot)] == sorted(members)


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
            assert bitmap.bits == to_bits(members)

    assert bitmap.bits == to_bits(members)


@given(st.lists(st.tuples(st.integers(1, 96), slots), max_size=12), slots)
def test_planes_give_the_sums_in_descending_order(added: list[tuple[int, set[int]]], within: set[int]) -> None:
    planes = Planes()
    for weight, members in added:
        planes.add(weight, to_bits(members))
    sums = {slot: sum(weight for weight, members in added if slot in members) for slot in within}

    found = [(total, set(iterate_slots(bits))) for total, bits in planes.descending(to_bits(within))]

    assert found == [
        (total, {slot for slot in within if sums[slot] == total})
        for total in sorted({total for total in sums.values() if total}, reverse=True)
    ]
