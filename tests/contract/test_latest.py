"""The newest instances first, page by page."""

from __future__ import annotations

import pytest

from tests.contract.conftest import on_store
from tests.contract.samples import NOW, instance
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
        found[-1] if found else "", 2, principal=principal, definition=definition
    ):
        found += [one.id for one in page]
    everything = await store.instances.page(limit=100)
    wanted = [
        one.id for one in everything if principal in (None, one.principal) and definition in (None, one.definition)
    ]
    assert found == wanted[::-1]


@pytest.mark.parametrize("name", ["a\0b", "n" * 513, ""])
@on_store
async def test_nobody_has_a_name_that_cannot_be_kept(store: Store, name: str) -> None:
    await filled(store)
    assert await store.instances.latest(principal=name) == []
    assert await store.instances.latest(definition=name) == []
