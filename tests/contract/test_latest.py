"""The newest instances first, page by page."""

from __future__ import annotations

import pytest

from tests.contract.conftest import on_store
from tests.contract.samples import NOW, instance
from waypost.stores.instances import InstanceFilter, Reservation
from waypost.stores.store import Store

IDS = [f"wf_{number:04d}" for number in range(9)]


async def filled(store: Store) -> None:
    for number, name in enumerate(IDS):
        who, what = ("ada", "bob")[number % 2], ("pay", "ship", "pay")[number % 3]
        await store.instances.start(instance(id=name, principal=who, definition=what), NOW, "started")


@pytest.mark.parametrize(
    ("principal", "definition"), [(None, None), ("ada", None), (None, "pay"), ("bob", "ship"), ("eve", None)]
)
@on_store
async def test_every_instance_comes_once_with_the_newest_first(
    store: Store, principal: str | None, definition: str | None
) -> None:
    await filled(store)
    found: list[str] = []
    while page := await store.instances.latest(
        found[-1] if found else "", 2, InstanceFilter(principal=principal, definition=definition)
    ):
        found += [one.id for one in page]
    everything = await store.instances.page(limit=100)
    wanted = [
        one.id for one in everything if principal in (None, one.principal) and definition in (None, one.definition)
    ]
    assert found == wanted[::-1]


@pytest.mark.parametrize("name", ["a\0b", "n" * 513, ""])
@on_store
async def test_a_filter_by_a_name_that_cannot_be_stored_finds_nothing(store: Store, name: str) -> None:
    await filled(store)
    assert await store.instances.latest(found_by=InstanceFilter(principal=name)) == []
    assert await store.instances.latest(found_by=InstanceFilter(definition=name)) == []


@pytest.mark.parametrize(
    ("found_by", "wanted"),
    [
        (InstanceFilter(status="waiting"), ["f5", "f2", "f1"]),
        (InstanceFilter(pending="approval"), ["f4"]),
        (InstanceFilter(pending="unknown"), ["f3"]),
        (InstanceFilter(definition="pay", state="open"), ["f3", "f1"]),
        (InstanceFilter(definition="pay", state="open", status="waiting"), ["f1"]),
        (InstanceFilter(since="f3", status="waiting"), ["f5"]),
        (InstanceFilter(text='SHOP "A"'), ["f2"]),
        (InstanceFilter(text="100%"), ["f5"]),
        (InstanceFilter(text="F4"), ["f4"]),
        (InstanceFilter(text="_"), []),
        (InstanceFilter(text="\\"), []),
    ],
)
@on_store
async def test_instances_are_filtered_by_definition_state_status_and_text(
    store: Store, found_by: InstanceFilter, wanted: list[str]
) -> None:
    for record in (
        instance(id="f1", definition="pay", state="open", status="waiting"),
        instance(id="f2", definition="ship", state="open", status="waiting", value={"name": 'the shop "a"'}),
        instance(id="f3", definition="pay", state="open", status="waiting", reservation=_pending("unknown")),
        instance(id="f4", definition="pay", state="shut", status="waiting", reservation=_pending("approval")),
        instance(id="f5", definition="pay", state="shut", status="waiting", value="100%"),
    ):
        await store.instances.start(record, NOW, None)
    assert [one.id for one in await store.instances.latest(found_by=found_by)] == wanted
    assert await store.instances.count_by_state("pay") == {"open": 2, "shut": 2}
    assert await store.instances.search_end("", found_by) == ""


def _pending(kind: str) -> Reservation:
    return Reservation(kind, NOW + 10, {"kind": kind, "move": "pay"})


@on_store
async def test_the_history_and_the_notes_are_read_from_their_end(store: Store) -> None:
    await store.instances.start(instance(), NOW, 1)
    for version in range(1, 5):
        await store.instances.commit(instance(version=version), NOW + version, version + 1)
        await store.instances.settle(instance(version=version + 1), NOW + version + 0.5, f"note {version}")
    assert [one.version for one in await store.instances.latest_history("i1", 6, 2)] == [5, 4]
    assert [one.version for one in await store.instances.latest_history("i1", 4, 9)] == [3, 2, 1]
    notes = await store.instances.latest_notes("i1", NOW + 2, NOW + 4, 9)
    assert [note.value for note in notes] == ["note 3", "note 2"]
