"""The weighted score equals its definition, on any catalog and after any changes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway import naive
from tests.gateway.corpora import documents, query
from waypost.search.documents import Document
from waypost.search.index import SearchIndex

DEPLOY = Document(
    id="deploy_pipeline",
    kind="workflow",
    title="Deploy Pipeline",
    description="Lint, test, build, and deploy a service.",
    tags=("deploy", "pipeline"),
    text="lint run_lint test run_tests ready_to_deploy deploy abort deployed aborted",
)

texts = st.text(alphabet="abcABC019éß_. -", max_size=14)
few = st.tuples() | st.tuples(texts) | st.tuples(texts, texts)


@st.composite
def catalogs(draw: st.DrawFn) -> list[Document]:
    ids = draw(st.lists(st.text(alphabet="abcAB01_.", min_size=1, max_size=9), unique=True, max_size=12))
    kinds = st.sampled_from(["capability", "workflow"])
    return [Document(id, draw(kinds), draw(texts), draw(texts), draw(few), draw(few), draw(texts)) for id in ids]


def index_of(found: list[Document]) -> SearchIndex:
    index = SearchIndex("weighted")
    for document in found:
        index.add(document)
    return index


@pytest.mark.parametrize(
    ("asked", "score"),
    [
        ("deploy", 17.0),
        ("pipelin", 14.0),
        ("deplyo", 17 / 6),
        ("deployment", 4.25),
        ("dpeloy", None),
        ("DEPLOY!", 17.0),
        ("deploy deploy", 34.0),
        ("d", 17.0),
    ],
)
def test_a_deployment_pipeline_scores_as_the_documentation_says(asked: str, score: float | None) -> None:
    results = index_of([DEPLOY]).search(asked).results

    assert [found for found, _ in results] == ([] if score is None else pytest.approx([score]))


@given(catalogs(), texts, st.integers(1, 12))
def test_scores_and_order_are_those_of_the_definition(found: list[Document], asked: str, limit: int) -> None:
    assert index_of(found).search(asked, limit=limit).results == naive.search(asked, found, limit)


@settings(max_examples=50)
@given(catalogs(), catalogs(), catalogs(), texts)
def test_a_changed_index_gives_the_same_results_as_a_new_one(
    first: list[Document], second: list[Document], gone: list[Document], asked: str
) -> None:
    index = index_of(first)
    index.search(asked)
    for document in second:
        index.add(document)
    for document in gone:
        index.remove(document.id)
    left = {document.id: document for document in [*first, *second]}
    for document in gone:
        left.pop(document.id, None)

    assert index.search(asked, limit=100).results == naive.search(asked, left.values(), 100)
    assert len(index) == len(left)


def test_a_large_catalog_is_scored_like_a_small_one() -> None:
    found = documents(1500)
    index = index_of(found)
    chance = Random(1)

    for _ in range(40):
        asked, limit = query(chance), chance.choice([1, 10, 100])
        assert index.search(asked, limit=limit).results == naive.search(asked, found, limit), asked


def test_documents_are_added_and_removed_in_a_large_catalog() -> None:
    found = {document.id: document for document in documents(1200)}
    index = index_of(list(found.values()))
    chance = Random(2)
    for round in range(12):
        for id in chance.sample(sorted(found), 80):
            del found[id]
            assert index.remove(id)
        for document in documents(60, seed=round + 10):
            found[document.id] = document
            index.add(document)
        asked = query(chance)
        assert index.search(asked, limit=20).results == naive.search(asked, found.values(), 20), asked


def test_words_of_removed_documents_are_removed() -> None:
    index = SearchIndex("weighted")
    for number in range(3000):
        index.add(Document(f"tool{number:05}"))
    for number in range(2990):
        index.remove(f"tool{number:05}")

    assert len(index._weighted._postings) < 1500
    assert [id for _, id in index.search("tool0299", limit=100).results] == [f"tool{n:05}" for n in range(2990, 3000)]


def test_a_term_contained_in_thousands_of_words_is_found_in_all_of_them() -> None:
    found = [Document(f"tool{number}", title=f"Tool {number}") for number in range(6000)]
    index = index_of(found)

    assert index.search("tool123", limit=100).results == naive.search("tool123", found, 100)
    assert index.search("totol1234", limit=100).results == naive.search("totol1234", found, 100)
