"""What may be asked of the search, and what it leaves out."""

from __future__ import annotations

import pytest

from tests.gateway.corpora import documents
from waypost.search.documents import Document
from waypost.search.index import SearchIndex

CATALOG = [
    Document("github.list_issues", title="List GitHub issues", description="List issues of a repository."),
    Document("github.create_issue", title="Create an issue", description="Open a new issue in a repository."),
    Document("slack.post_message", description="Send a message to a channel.", aliases=("notify", "chat")),
    Document("release", "workflow", "Release a service", "Build, test and publish a service."),
]


@pytest.fixture
def index() -> SearchIndex:
    index = SearchIndex()
    for document in CATALOG:
        index.add(document)
    return index


def ids(index: SearchIndex, query: str, kind: str | None = None) -> list[str]:
    return [found for _, found in index.search(query, kind).results]


@pytest.mark.parametrize("query", ["", "   ", "?!"])
def test_a_query_without_terms_lists_everything_by_id(index: SearchIndex, query: str) -> None:
    assert index.search(query).results == [(1.0, id) for id in sorted(document.id for document in CATALOG)]


def test_a_document_without_a_title_has_its_id_for_one(index: SearchIndex) -> None:
    assert index.search("slack").results == [(11.0, "slack.post_message")]


def test_only_documents_of_the_kind_are_found(index: SearchIndex) -> None:
    assert ids(index, "", "workflow") == ["release"]
    assert ids(index, "issue", "workflow") == []
    assert ids(index, "build and publish my service", "workflow") == ["release"]
    assert ids(index, "build and publish my service", "capability") == []
    assert ids(index, "", "nothing of the kind") == []


@pytest.mark.parametrize("query", ["", "issue", "please open a new issue in my repository"])
def test_nobody_finds_what_is_not_allowed(index: SearchIndex, query: str) -> None:
    found = index.search(query, allowed=lambda id: id != "github.create_issue").results

    assert "github.list_issues" in [id for _, id in found]
    assert "github.create_issue" not in [id for _, id in found]


def test_what_is_not_allowed_takes_no_place_from_what_is() -> None:
    index = SearchIndex()
    for document in documents(2000):
        index.add(document)
    mine = {document.id for document in documents(2000)[::9]}

    def found(query: str) -> list[str]:
        return [id for _, id in index.search(query, limit=5, allowed=mine.__contains__).results]

    assert len(found("")) == len(found("list")) == len(found("list all the github issues of my project")) == 5
    assert mine.issuperset(found("list all the github issues of my project"))


@pytest.mark.parametrize(("limit", "count"), [(-1, 1), (0, 1), (1, 1), (7, 7), (100, 100), (1000, 100)])
@pytest.mark.parametrize("query", ["", "issue", "create or list an issue of the repository for me"])
def test_the_limit_is_held_between_one_and_a_hundred(limit: int, count: int, query: str) -> None:
    index = SearchIndex()
    for number in range(150):
        index.add(Document(f"issue_{number}", description="An issue of a repository."))

    assert len(index.search(query, limit=limit).results) == count
    assert len(index.search(query).results) == 10


def test_up_to_three_terms_are_weighted_and_more_are_a_sentence(index: SearchIndex) -> None:
    assert index.search("list github issues").ranking == "weighted"
    assert index.search("list my github issues").ranking == "hybrid"


def test_the_ranking_can_be_fixed_and_asked_for(index: SearchIndex) -> None:
    assert index.search("list my github issues", ranking="weighted").ranking == "weighted"
    assert index.search("issue", ranking="hybrid").ranking == "hybrid"
    assert SearchIndex("hybrid").ranking == "hybrid"


def test_a_sentence_without_a_word_of_the_catalog_is_weighted_after_all(index: SearchIndex) -> None:
    found = index.search("gthub isues repositry creaet")

    assert found.ranking == "weighted"
    assert {id for _, id in found.results} == {"github.create_issue", "github.list_issues"}


def test_a_document_is_replaced_by_one_with_its_id(index: SearchIndex) -> None:
    index.add(Document("release", "skill", "Roll back a service"))

    assert ids(index, "publish") == []
    assert ids(index, "roll back") == ["release"]
    assert ids(index, "please roll back this service", "skill") == ["release"]
    assert ids(index, "", "workflow") == []
    assert len(index) == len(CATALOG)


def test_a_document_that_is_gone_is_not_found(index: SearchIndex) -> None:
    assert index.remove("slack.post_message")
    assert not index.remove("slack.post_message")

    assert "slack.post_message" not in index
    assert ids(index, "slack") == []
    assert ids(index, "send somebody else some messages") == []
    assert "release" in index


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("github.list_issue", "github.list_issues"),
        ("github_list_issues", "github.list_issues"),
        ("gihtub.create_isue", "github.create_issue"),
        ("Slack.PostMessage", "slack.post_message"),
        ("relaese", "release"),
    ],
)
def test_the_nearest_ids_are_those_that_were_meant(index: SearchIndex, asked: str, near: str) -> None:
    assert index.find_nearest(asked)[:1] == [near]


def test_there_are_no_near_ids_to_nonsense_and_none_that_are_not_allowed(index: SearchIndex) -> None:
    assert index.find_nearest("zzz") == []
    assert index.find_nearest("") == []
    assert index.find_nearest("github.issues", limit=1) == ["github.list_issues"]
    assert index.find_nearest("github.issues", allowed=lambda id: "list" not in id) == ["github.create_issue"]
