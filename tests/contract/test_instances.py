"""Instances: starting, reserving, moving and querying them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.contract.conftest import on_store
from tests.contract.samples import NOW, instance
from waypost.errors import StaleVersion, StoreError
from waypost.stores.instances import PROXY, HistoryEntry, Note, Reservation
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord

MINE = Reservation("mine", NOW + 10, {"step": "pay"})
THEIRS = Reservation("theirs", NOW + 20)
REQUEST = RequestRecord("ada", "r1", "d1", {"version": 1})


@on_store
async def test_an_instance_starts_at_version_one_with_one_entry_in_its_history(store: Store) -> None:
    assert await store.instances.get("i1") is None

    await store.instances.start(instance(version=7), NOW, {"why": "asked"})

    assert await store.instances.get("i1") == instance(version=1)
    assert await store.instances.history("i1") == [HistoryEntry(1, NOW, {"why": "asked"})]


@on_store
async def test_an_id_that_is_taken_cannot_start_again(store: Store) -> None:
    await store.instances.start(instance(), NOW, "first")

    with pytest.raises(StaleVersion, match="already"):
        await store.instances.start(instance(state="other"), NOW, "second")
    with pytest.raises(StaleVersion, match="already"):
        await store.instances.start(instance(state="other"), NOW, "third", REQUEST)
    assert await store.instances.get("i1") == instance()
    assert [entry.value for entry in await store.instances.history("i1")] == ["first"]
    assert await store.requests.get("ada", "r1") is None


@on_store
async def test_a_move_changes_the_instance_and_adds_to_the_history(store: Store) -> None:
    await store.instances.start(instance(), NOW, "start")
    moved = instance(state="paid", status="done", due_at=NOW + 5, value={"n": 1})

    assert await store.instances.commit(moved, NOW + 1, {"event": "pay"}) == 2
    assert await store.instances.get("i1") == instance(
        version=2, state="paid", status="done", due_at=NOW + 5, value={"n": 1}
    )
    assert await store.instances.history("i1", after=1) == [HistoryEntry(2, NOW + 1, {"event": "pay"})]


@on_store
@pytest.mark.parametrize("request_", [None, REQUEST])
async def test_moves_that_keep_their_state_or_status_are_committed_as_others_are(
    store: Store, request_: RequestRecord | None
) -> None:
    at_first = instance()
    moves = {"same": (at_first.state, at_first.status), "state": ("next", at_first.status), "both": ("end", "done")}
    await asyncio.gather(*(store.instances.start(instance(id=name), NOW, 1) for name in moves))
    moved = [instance(id=name, state=to[0], status=to[1], value=name) for name, to in moves.items()]
    requests = [None if request_ is None else msgspec.structs.replace(request_, key=one.id) for one in moved]
    before = (at_first.state, at_first.status)

    versions = await asyncio.gather(
        *(store.instances.commit(one, NOW, 2, "", asked, before) for one, asked in zip(moved, requests, strict=True))
    )

    assert versions == [2, 2, 2]
    assert [await store.instances.get(one.id) for one in moved] == [
        msgspec.structs.replace(one, version=2) for one in moved
    ]
    assert [await store.requests.get("ada", name) for name in moves] == requests
    with pytest.raises(StaleVersion, match="version"):
        await store.instances.commit(moved[0], NOW, 3, "", None, before)

    unlike_stored = instance(id="both", version=2, state="resumed", status="done")
    assert await store.instances.commit(unlike_stored, NOW, 3, "", None, ("resumed", "done")) == 3
    assert await store.instances.get("both") == msgspec.structs.replace(unlike_stored, version=3)


@on_store
@pytest.mark.parametrize("version", [0, 1, 3, -1])
async def test_a_move_from_another_version_changes_nothing(store: Store, version: int) -> None:
    await store.instances.start(instance(), NOW, 1)
    await store.instances.commit(instance(state="second"), NOW, 2)

    with pytest.raises(StaleVersion, match="version"):
        await store.instances.commit(instance(version=version, state="third"), NOW, 3)
    with pytest.raises(StaleVersion, match="version"):
        await store.instances.commit(instance(version=version, state="third"), NOW, 3, request=REQUEST)
    assert await store.instances.get("i1") == instance(version=2, state="second")
    assert [entry.version for entry in await store.instances.history("i1")] == [1, 2]
    assert await store.requests.get("ada", "r1") is None
    assert await store.check() == []


@on_store
async def test_an_instance_that_is_not_there_cannot_be_moved_reserved_or_released(store: Store) -> None:
    with pytest.raises(StaleVersion):
        await store.instances.commit(instance(), NOW, 1)
    assert not await store.instances.reserve("i1", 1, MINE)
    assert not await store.instances.renew("i1", "mine", NOW)
    assert not await store.instances.release("i1", "mine")
    assert await store.instances.history("i1") == []


@on_store
async def test_a_reservation_is_shown_and_excludes_others(store: Store) -> None:
    await store.instances.start(instance(), NOW, 1)

    assert await store.instances.reserve("i1", 1, MINE)
    assert await store.instances.get("i1") == instance(reservation=MINE)
    assert not await store.instances.reserve("i1", 1, THEIRS)
    assert not await store.instances.reserve("i1", 1, THEIRS, instead_of="nobody")
    with pytest.raises(StaleVersion):
        await store.instances.commit(instance(), NOW, 2)
    with pytest.raises(StaleVersion):
        await store.instances.commit(instance(), NOW, 2, token="theirs")
    assert await store.instances.get("i1") == instance(reservation=MINE)


@on_store
@pytest.mark.parametrize("version", [0, 2])
async def test_a_reservation_is_bound_to_the_version(store: Store, version: int) -> None:
    await store.instances.start(instance(), NOW, 1)

    assert not await store.instances.reserve("i1", version, MINE)
    assert await store.instances.get("i1") == instance()


@on_store
async def test_a_move_by_the_holder_of_the_reservation_releases_it(store: Store) -> None:
    await store.instances.start(instance(), NOW, 1)
    await store.instances.reserve("i1", 1, MINE)

    assert await store.instances.commit(instance(state="paid"), NOW, 2, token="mine") == 2
    assert await store.instances.get("i1") == instance(version=2, state="paid")
    with pytest.raises(StaleVersion):
        await store.instances.commit(instance(state="again"), NOW, 3, token="mine")
    with pytest.raises(StaleVersion):
        await store.instances.commit(instance(version=2, state="again"), NOW, 3, token="mine")


@on_store
async def test_an_expired_reservation_is_taken_over_and_its_old_holder_is_refused(store: Store) -> None:
    await store.instances.start(instance(), NOW, 1)
    await store.instances.reserve("i1", 1, MINE)

    assert await store.instances.reserve("i1", 1, THEIRS, instead_of="mine")
    assert not await store.instances.reserve("i1", 1, MINE, instead_of="mine")
    assert not await store.instances.renew("i1", "mine", NOW + 99)
    assert not await store.instances.release("i1", "mine")
    with pytest.raises(StaleVersion):
        await store.instances.commit(instance(), NOW, 2, token="mine")
    assert await store.instances.get("i1") == instance(reservation=THEIRS)
    assert await store.instances.commit(instance(), NOW, 2, token="theirs") == 2


@on_store
async def test_a_reservation_is_renewed_and_released_by_its_token_only(store: Store) -> None:
    await store.instances.start(instance(), NOW, 1)
    await store.instances.reserve("i1", 1, MINE)

    assert not await store.instances.renew("i1", "theirs", NOW + 99)
    assert await store.instances.renew("i1", "mine", NOW + 99)
    assert await store.instances.get("i1") == instance(reservation=Reservation("mine", NOW + 99, MINE.value))
    assert not await store.instances.release("i1", "theirs")
    assert await store.instances.release("i1", "mine")
    assert not await store.instances.release("i1", "mine")
    assert await store.instances.get("i1") == instance()


@on_store
async def test_a_request_is_recorded_with_the_start_and_with_the_move_it_asked_for(store: Store) -> None:
    second = RequestRecord("ada", "r2", "d2", {"version": 2}, NOW + 60)

    await store.instances.start(instance(), NOW, 1, REQUEST)
    await store.instances.reserve("i1", 1, MINE)
    await store.instances.commit(instance(), NOW, 2, "mine", second)

    assert await store.requests.get("ada", "r1") == REQUEST
    assert await store.requests.get("ada", "r2") == second


@on_store
async def test_a_move_or_start_for_a_request_that_was_answered_does_not_happen(store: Store) -> None:
    await store.instances.start(instance(), NOW, 1, REQUEST)

    with pytest.raises(StoreError, match=r"requests|unique"):
        await store.instances.commit(instance(state="paid"), NOW, 2, request=REQUEST)
    with pytest.raises(StoreError, match=r"requests|unique"):
        await store.instances.start(instance(id="i2"), NOW, 1, REQUEST)
    assert await store.instances.get("i1") == instance()
    assert await store.instances.get("i2") is None
    assert len(await store.instances.history("i1")) == 1
    assert await store.instances.history("i2") == []


@on_store
async def test_instances_are_paged_all_or_by_principal_or_by_definition(store: Store) -> None:
    for number, (principal, definition) in enumerate(
        [("ada", "order"), ("bob", "order"), ("ada", "trip"), ("bob", "trip")]
    ):
        await store.instances.start(instance(id=f"i{number}", principal=principal, definition=definition), NOW, 1)

    async def ids(after: str = "", limit: int = 100, **which: str) -> list[str]:
        return [found.id for found in await store.instances.page(after, limit, **which)]

    assert await ids() == ["i0", "i1", "i2", "i3"]
    assert await ids("i0", 2) == ["i1", "i2"]
    assert await ids(principal="ada") == ["i0", "i2"]
    assert await ids("i0", principal="ada") == ["i2"]
    assert await ids(definition="trip") == ["i2", "i3"]
    assert await ids("i2", 1, definition="trip") == ["i3"]
    assert await ids(principal="eve") == await ids(definition="none") == await ids("i3") == []


@on_store
async def test_the_history_is_paged_by_version(store: Store) -> None:
    await store.instances.start(instance(), NOW, 1)
    for version in range(1, 12):
        await store.instances.commit(instance(version=version), NOW + version, version + 1)

    assert [entry.value for entry in await store.instances.history("i1")] == list(range(1, 13))
    assert [entry.version for entry in await store.instances.history("i1", 8, 3)] == [9, 10, 11]
    assert await store.instances.history("i1", 12) == []


@on_store
async def test_instances_that_are_due_come_the_longest_due_first(store: Store) -> None:
    for name, due_at in {"never": 0.0, "late": NOW - 5, "b": NOW, "a": NOW, "later": NOW + 1}.items():
        await store.instances.start(instance(id=name, due_at=due_at), NOW, 1)

    assert [found.id for found in await store.instances.due(NOW)] == ["late", "a", "b"]
    assert [found.id for found in await store.instances.due(NOW, 1)] == ["late"]
    assert await store.instances.due(NOW - 10) == []


@on_store
async def test_instances_with_an_expired_reservation_are_abandoned(store: Store) -> None:
    for name, until in {"free": 0.0, "long": NOW - 9, "short": NOW - 1, "held": NOW}.items():
        await store.instances.start(instance(id=name), NOW, 1)
        if until:
            await store.instances.reserve(name, 1, Reservation(f"by {name}", until))

    found = await store.instances.abandoned(NOW)
    assert [(one.id, one.reservation) for one in found] == [
        ("long", Reservation("by long", NOW - 9)),
        ("short", Reservation("by short", NOW - 1)),
    ]
    assert len(await store.instances.abandoned(NOW, 1)) == 1


@on_store
async def test_a_failed_move_releases_its_reservation_and_leaves_a_note(store: Store) -> None:
    await store.instances.start(instance(), NOW, 1)
    await store.instances.reserve("i1", 1, MINE)
    settled = instance(state="elsewhere", status="stuck", due_at=NOW + 9, value={"n": 2})

    await store.instances.settle(settled, NOW + 1, {"why": "no money"}, "mine", REQUEST)

    assert await store.instances.get("i1") == instance(status="stuck", due_at=NOW + 9, value={"n": 2})
    assert await store.instances.notes("i1") == [Note(NOW + 1, {"why": "no money"})]
    assert await store.instances.history("i1") == [HistoryEntry(1, NOW, 1)]
    assert await store.requests.get("ada", "r1") == REQUEST
    assert await store.instances.commit(instance(state="paid"), NOW + 2, 2) == 2
    assert await store.check() == []


@on_store
@pytest.mark.parametrize(("version", "token"), [(1, ""), (1, "theirs"), (2, "mine"), (0, "mine")])
async def test_only_the_holder_of_a_reservation_can_settle_a_move(store: Store, version: int, token: str) -> None:
    await store.instances.start(instance(), NOW, 1)
    await store.instances.reserve("i1", 1, MINE)

    with pytest.raises(StaleVersion, match="version"):
        await store.instances.settle(instance(version=version, status="stuck"), NOW, "late", token)
    with pytest.raises(StaleVersion, match="version"):
        await store.instances.settle(instance(version=version, status="stuck"), NOW, "late", token, REQUEST)
    assert await store.instances.get("i1") == instance(reservation=MINE)
    assert await store.instances.notes("i1") == []
    assert await store.requests.get("ada", "r1") is None


@on_store
async def test_an_unreserved_instance_can_be_settled_and_a_missing_one_cannot(store: Store) -> None:
    await store.instances.start(instance(), NOW, 1)

    await store.instances.settle(instance(status="stuck"), NOW, "halted")
    with pytest.raises(StaleVersion):
        await store.instances.settle(instance(id="i2"), NOW, "halted")

    assert await store.instances.get("i1") == instance(status="stuck")
    assert await store.instances.notes("i2") == []


@on_store
async def test_a_settlement_for_a_request_that_was_answered_does_not_happen(store: Store) -> None:
    await store.instances.start(instance(), NOW, 1, REQUEST)
    await store.instances.reserve("i1", 1, MINE)

    with pytest.raises(StoreError, match=r"requests|unique"):
        await store.instances.settle(instance(status="stuck"), NOW, "again", "mine", REQUEST)

    assert await store.instances.get("i1") == instance(reservation=MINE)
    assert await store.instances.notes("i1") == []


@on_store
async def test_notes_come_in_order_and_only_so_many(store: Store) -> None:
    for name in ("i1", "i2"):
        await store.instances.start(instance(id=name), NOW, 1)
    for number in range(5):
        await store.instances.settle(instance(), NOW + number, number)
    await store.instances.settle(instance(id="i2"), NOW, "theirs")

    assert [note.value for note in await store.instances.notes("i1")] == [0, 1, 2, 3, 4]
    assert [note.value for note in await store.instances.notes("i1", 2)] == [0, 1]
    assert await store.instances.notes("i2") == [Note(NOW, "theirs")]
    assert await store.instances.notes("i3") == []


@on_store
async def test_reserved_instances_come_in_the_order_of_their_ids(
    store: Store,
) -> None:
    for name in ("c", "a", "B", "free", "done"):
        await store.instances.start(instance(id=name), NOW, 1)
    for name, until in {"c": NOW - 9, "a": NOW + 9, "B": NOW + 99, "done": NOW}.items():
        await store.instances.reserve(name, 1, Reservation(f"by {name}", until))
    await store.instances.commit(instance(id="done"), NOW, 2, "by done")

    found = await store.instances.reserved()
    assert [one.id for one in found] == ["B", "a", "c"]
    assert found[1].reservation == Reservation("by a", NOW + 9)
    assert [one.id for one in await store.instances.reserved("B", 1)] == ["a"]
    assert await store.instances.reserved("c") == []


@on_store
async def test_a_reserved_instance_is_not_due_until_it_is_released(store: Store) -> None:
    await store.instances.start(instance(due_at=NOW), NOW, 1)
    await store.instances.reserve("i1", 1, MINE)
    assert await store.instances.due(NOW) == []

    await store.instances.release("i1", "mine")
    assert await store.instances.due(NOW) == [instance(due_at=NOW)]

    await store.instances.reserve("i1", 1, MINE)
    await store.instances.settle(instance(due_at=NOW + 1), NOW, "no", "mine")
    assert await store.instances.due(NOW) == []
    assert [found.id for found in await store.instances.due(NOW + 1)] == ["i1"]


@on_store
async def test_an_instance_that_starts_reserved_is_removed_only_under_its_reservation(store: Store) -> None:
    for name in ("i1", "i2"):
        await store.instances.start(instance(id=name, reservation=MINE), NOW, "start")
    assert await store.instances.get("i1") == instance(reservation=MINE)

    for name, token in (("i1", "theirs"), ("i1", ""), ("i3", "mine")):
        with pytest.raises(StaleVersion):
            await store.instances.remove_new(name, token)
    await store.instances.remove_new("i1", "mine")
    with pytest.raises(StaleVersion):
        await store.instances.remove_new("i1", "mine")
    assert (await store.instances.get("i1"), await store.instances.history("i1")) == (None, [])

    await store.instances.commit(instance(id="i2"), NOW, "moved", "mine")
    with pytest.raises(StaleVersion):
        await store.instances.remove_new("i2", "")
    assert await store.check() == []


@on_store
async def test_single_calls_are_swept_with_all_that_belongs_to_them(store: Store) -> None:
    old, new = f"wf_{int(NOW * 1000) - 1:012x}", f"wf_{int(NOW * 1000) + 1:012x}"
    for name in (f"{old}a", f"{old}b", f"{new}a"):
        await store.instances.start(instance(id=name, definition=PROXY), NOW, "start")
    await store.instances.start(instance(id=f"{old}c"), NOW, "another definition")
    await store.instances.start(instance(id=f"{old}d", definition=PROXY, reservation=MINE), NOW, "pending")
    request = RequestRecord(f"{old}a", "r1", "d1", {})
    await store.instances.settle(instance(id=f"{old}a", definition=PROXY), NOW, "failed", request=request)
    await store.instances.commit(instance(id=f"{old}a", definition=PROXY), NOW, "moved")

    assert await store.instances.sweep(NOW) == 2
    assert await store.instances.sweep(NOW) == 0

    assert [one.id for one in await store.instances.page()] == [f"{old}c", f"{old}d", f"{new}a"]
    assert (await store.instances.history(f"{old}a"), await store.instances.notes(f"{old}a")) == ([], [])
    assert await store.requests.get(f"{old}a", "r1") is None
    assert await store.check() == []
