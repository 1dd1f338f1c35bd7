"""Documents of six kinds, state, and stored answers to requests."""

from __future__ import annotations

import pytest

from tests.contract.conftest import on_store
from tests.contract.samples import NOW
from waypost.errors import StaleVersion
from waypost.stores.records import Document, Documents, Entry
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord

KINDS = ("skills", "prompts", "executables", "definitions", "keys")


def of_kind(store: Store, kind: str) -> Documents:
    found = getattr(store, kind)
    assert isinstance(found, Documents)
    return found


@on_store
@pytest.mark.parametrize("kind", KINDS)
async def test_a_document_is_added_changed_and_removed_by_its_version(store: Store, kind: str) -> None:
    documents = of_kind(store, kind)
    assert await documents.get("a") is None

    assert await documents.put("a", {"n": 1}) == Document("a", 1, {"n": 1})
    assert await documents.put("a", {"n": 2}, 1) == Document("a", 2, {"n": 2})
    assert await documents.get("a") == Document("a", 2, {"n": 2})
    for version in (0, 1, 3):
        with pytest.raises(StaleVersion, match="a was changed"):
            await documents.put("a", "late", version)
    for version in (0, 1, 3):
        with pytest.raises(StaleVersion, match="a was changed"):
            await documents.remove("a", version)
    assert await documents.get("a") == Document("a", 2, {"n": 2})

    await documents.remove("a", 2)
    assert await documents.get("a") is None
    with pytest.raises(StaleVersion):
        await documents.remove("a", 2)
    with pytest.raises(StaleVersion):
        await documents.put("a", "late", 2)
    assert await documents.put("a", "again") == Document("a", 1, "again")


@on_store
async def test_kinds_of_documents_are_apart_even_when_they_change_together(store: Store) -> None:
    for kind in KINDS:
        await of_kind(store, kind).put("same", kind)

    for kind in KINDS:
        assert await of_kind(store, kind).page() == [Document("same", 1, kind)]


@on_store
async def test_documents_are_paged_in_the_order_of_their_ids(store: Store) -> None:
    for name in ("c", "a", "B"):
        await store.skills.put(name, name)

    assert [found.id for found in await store.skills.page()] == ["B", "a", "c"]
    assert await store.skills.page("a", 1) == [Document("c", 1, "c")]
    assert await store.skills.page("c") == []


@on_store
async def test_a_value_is_added_changed_and_removed_by_its_version(store: Store) -> None:
    assert await store.state.get("s", "k") is None

    assert await store.state.put("s", "k", [1]) == Entry("s", "k", 1, [1])
    assert await store.state.put("s", "k", [2], 1) == Entry("s", "k", 2, [2])
    for version in (0, 1, 3):
        with pytest.raises(StaleVersion, match="s/k"):
            await store.state.put("s", "k", "late", version)
        with pytest.raises(StaleVersion, match="s/k"):
            await store.state.remove("s", "k", version)
    assert await store.state.get("s", "k") == Entry("s", "k", 2, [2])

    await store.state.remove("s", "k", 2)
    assert await store.state.get("s", "k") is None
    with pytest.raises(StaleVersion):
        await store.state.remove("s", "k", 2)


@on_store
async def test_values_are_paged_by_scope_and_scopes_are_listed(store: Store) -> None:
    for scope, key in (("b", "2"), ("a", "1"), ("b", "1"), ("B", "9"), ("a", "10")):
        await store.state.put(scope, key, scope + key)

    assert await store.state.scopes() == ["B", "a", "b"]
    assert await store.state.scopes("B", 1) == ["a"]
    assert [entry.key for entry in await store.state.page("a")] == ["1", "10"]
    assert await store.state.page("b", "1") == [Entry("b", "2", 1, "b2")]
    assert await store.state.page("b", "", 1) == [Entry("b", "1", 1, "b1")]
    assert await store.state.page("c") == []


@on_store
async def test_the_first_answer_to_a_request_stays(store: Store) -> None:
    first = RequestRecord("ada", "r1", "d1", {"answer": 42}, NOW)

    assert await store.requests.get("ada", "r1") is None
    assert await store.requests.put(first)
    assert not await store.requests.put(RequestRecord("ada", "r1", "d2", "other"))
    assert await store.requests.put(RequestRecord("bob", "r1", "d2", "other"))
    assert await store.requests.get("ada", "r1") == first
    assert await store.requests.get("ada", "r2") is None


@on_store
async def test_an_answer_is_replaced_on_request(store: Store) -> None:
    later = RequestRecord("ada", "r1", "d2", {"answer": 43}, NOW + 1)

    await store.requests.put(RequestRecord("ada", "r1", "d1", {"answer": 42}, NOW))
    await store.requests.put(RequestRecord("bob", "r1", "d1", "theirs"))
    await store.requests.replace(later)
    await store.requests.replace(RequestRecord("ada", "r2", "d3", "new"))

    assert await store.requests.get("ada", "r1") == later
    assert await store.requests.get("bob", "r1") == RequestRecord("bob", "r1", "d1", "theirs")
    assert await store.requests.get("ada", "r2") == RequestRecord("ada", "r2", "d3", "new")


@on_store
async def test_answers_are_swept_after_their_expiry_and_those_without_one_stay(store: Store) -> None:
    for key, expires_at in {"old": NOW, "new": NOW + 10, "ever": 0.0}.items():
        await store.requests.put(RequestRecord("ada", key, "d", None, expires_at))

    assert await store.requests.sweep(NOW + 5) == 1
    assert [await store.requests.get("ada", key) is None for key in ("old", "new", "ever")] == [True, False, False]
