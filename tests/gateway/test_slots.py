"""Slots are taken, released and reused, and ids stay in order."""

from __future__ import annotations

from random import Random

import pytest

from waypost.search.documents import Slots, to_bits


def test_a_released_slot_is_reused() -> None:
    slots = Slots()
    taken = [slots.take(name) for name in ("b", "a", "c")]

    assert slots.release("a") == taken[1]
    assert slots.take("d") == taken[1]
    assert slots.id(taken[1]) == "d"
    assert len(slots) == 3
    assert "a" not in slots


def test_an_id_without_a_slot_cannot_be_released() -> None:
    with pytest.raises(KeyError):
        Slots().release("nobody")


@pytest.mark.parametrize("share", [1, 3, 50, 700])
def test_the_ids_of_a_set_of_any_size_are_in_order(share: int) -> None:
    slots = Slots()
    chance = Random(share)
    ids = [f"tool{number}" for number in range(3000)]
    chance.shuffle(ids)
    taken = {id: slots.take(id) for id in ids}
    for id in chance.sample(ids, 1500):
        slots.release(id)
        del taken[id]
    wanted = [id for id in taken if chance.randrange(share) == 0]

    assert list(slots.by_id(to_bits([taken[id] for id in wanted]))) == sorted(wanted)
