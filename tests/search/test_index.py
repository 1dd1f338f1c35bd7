"""A signal of the hybrid ranking is one class and one row of a table, and may come from another package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from waypost.search.documents import Document
from waypost.search.embeddings import Embeddings, is_installed
from waypost.search.index import SIGNALS, Query, Scores, SearchIndex

QUERY = "please order a large pizza for tonight"


class Favourites:
    """A toy signal: documents with the tag `favourite` are worth more."""

    def __init__(self) -> None:
        self.slots: set[int] = set()

    def add(self, slot: int, document: Document) -> None:
        if "favourite" in document.tags:
            self.slots.add(slot)

    def remove(self, slot: int, document: Document) -> None:
        self.slots.discard(slot)

    def score(self, query: Query, scores: Scores) -> Scores:
        for slot in self.slots:
            if isinstance(scores, dict):
                scores[slot] = scores.get(slot, 0.0) + 5.0
            elif slot < len(scores):
                scores[slot] += 5.0
        return scores


@pytest.fixture
def favourites(monkeypatch: pytest.MonkeyPatch) -> Iterator[Favourites]:
    signal = Favourites()
    monkeypatch.setitem(SIGNALS, "favourites", lambda _: signal)
    yield signal


@pytest.fixture(
    params=[None, pytest.param(True, marks=pytest.mark.skipif(not is_installed(), reason="needs waypost[embeddings]"))],
    ids=["words", "meaning"],
)
def index(request: pytest.FixtureRequest, favourites: Favourites) -> Iterator[SearchIndex]:
    embeddings = Embeddings() if request.param else None
    index = SearchIndex("hybrid", embeddings)
    index.add(Document("shop1.order_pizza", description="Order a pizza."))
    index.add(Document("shop2.order_pizza", description="Order a pizza.", tags=("favourite",)))
    if embeddings is not None:
        embeddings.wait()
    yield index
    index.close()


def test_a_signal_from_outside_ranks_documents_with_the_others(index: SearchIndex) -> None:
    found = index.search(QUERY)
    assert found.ranking == "hybrid"
    assert [hit.id for hit in found.results] == ["shop2.order_pizza", "shop1.order_pizza"]
    assert found.results[0].score > 5.0 > found.results[1].score > 0.0


def test_a_signal_gets_added_and_removed_documents(index: SearchIndex, favourites: Favourites) -> None:
    index.remove("shop2.order_pizza")
    assert favourites.slots == set()
    index.add(Document("shop1.order_pizza", description="Order a pizza.", tags=("favourite",)))
    assert [hit.id for hit in index.search(QUERY).results] == ["shop1.order_pizza"]
    assert index.search(QUERY).results[0].score > 5.0


def test_an_index_without_the_row_has_no_such_signal() -> None:
    index = SearchIndex("hybrid")
    for number in (1, 2):
        tags = ("favourite",) if number == 2 else ()
        index.add(Document(f"shop{number}.order_pizza", description="Order a pizza.", tags=tags))
    assert index.search(QUERY).results[0].id == "shop1.order_pizza"


@pytest.mark.parametrize(("given", "meant"), [("psh", "push"), ("ecko", "echo"), ("slwo", "slow"), ("bug", "big")])
def test_a_typing_error_in_a_short_id_is_answered_with_the_id(given: str, meant: str) -> None:
    index = SearchIndex("weighted")
    for id in ("push", "echo", "slow", "big", *(f"mail.number_{n}" for n in range(20))):
        index.add(Document(id))
    assert index.find_nearest(given)[0] == meant
    assert meant not in index.find_nearest(given, allowed=lambda id: id != meant)
