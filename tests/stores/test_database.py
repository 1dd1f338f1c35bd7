"""How writes that wait are sorted into rounds."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from waypost.stores import schema
from waypost.stores.database import INTEGER, Change, Write, delete, delete_where, insert, split_into_rounds, update

CHANGES = (
    Change(insert(schema.SKILLS, "skip")),
    Change(update(schema.SKILLS, ["version"], ["body"])),
    Change(delete(schema.SKILLS, ["version"])),
    Change(insert(schema.STATE, "skip")),
    Change(update(schema.STATE, ["version"], ["value"])),
    Change(insert(schema.EVENTS, "skip")),
    Change(delete_where(schema.EVENTS, "number < ?", [INTEGER])),
)
ROWS = st.tuples(st.sampled_from("ab"), st.sampled_from("ab"), st.integers(1, 2))
LOOP = asyncio.new_event_loop()
NEVER: asyncio.Future[int] = LOOP.create_future()
LOOP.close()


@given(st.lists(st.tuples(st.sampled_from(CHANGES), ROWS), max_size=40))
def test_no_round_touches_a_row_twice_and_each_rows_writes_keep_their_order(asked: list[tuple[Change, Any]]) -> None:
    batch = [Write(change, (row,), NEVER, 0.0) for change, row in asked]

    found = split_into_rounds(batch)

    def key(write: Write) -> Any:
        return write.change.key_of(write.rows[0])

    in_rounds = [[write for writes in turn.values() for write in writes] for turn in found]
    assert all(write.change is change for turn in found for change, writes in turn.items() for write in writes)
    for some in in_rounds:
        assert len({key(write) for write in some}) == len(some)
    flat = [write for some in in_rounds for write in some]
    assert sorted(map(id, flat)) == sorted(map(id, batch))
    for one in {key(write) for write in batch}:
        assert [write for write in flat if key(write) == one] == [write for write in batch if key(write) == one]
    most = max((sum(key(other) == key(write) for other in batch) for write in batch), default=1)
    assert len(found) == most
