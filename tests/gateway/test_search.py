"""The parameters of the search, and documents that it leaves out."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from msgspec.structs import replace

from tests.gateway.corpora import documents
from waypost.search.documents import Document, Ranking, View
from waypost.search.embeddings import Embeddings, is_installed
from waypost.search.index import SearchIndex

NEEDS_EMBEDDINGS = pytest.mark.skipif(not is_installed(), reason="needs waypost[embeddings]")
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


def view(index: SearchIndex, allowed: Callable[[str], bool]) -> View:
    """An up-to-date view of the documents that may be found."""
    found = index.view(allowed)
    for _ in found.update():
        pass
    return found


def ids(index: SearchIndex, query: str, kind: str | None = None) -> list[str]:
    return [found for _, found in index.search(query, kind).results]


@pytest.mark.parametrize("query", ["", "   ", "?!"])
def test_a_query_without_terms_lists_everything_by_id(index: SearchIndex, query: str) -> None:
    assert index.search(query).results == [(1.0, id) for id in sorted(document.id for document in CATALOG)]


def test_a_document_without_a_title_uses_its_id(index: SearchIndex) -> None:
    assert index.search("slack").results == [(11.0, "slack.post_message")]


def test_only_documents_of_the_kind_are_found(index: SearchIndex) -> None:
    assert ids(index, "", "workflow") == ["release"]
    assert ids(index, "issue", "workflow") == []
    assert ids(index, "build and publish my service", "workflow") == ["release"]
    assert ids(index, "build and publish my service", "capability") == []
    assert ids(index, "", "nothing of the kind") == []


def test_keywords_that_no_document_has_find_their_synonyms(index: SearchIndex) -> None:
    index.add(Document("fs.create_directory", description="Create a new directory."))
    found = index.search("make a folder")
    assert (found.ranking, found.signals, found.results[0].id) == ("hybrid", ["words"], "fs.create_directory")
    assert index.search("folder", view=view(index, lambda id: not id.startswith("fs."))).results == []
    assert index.search("folder", "workflow").results == []
    for ranking, query in (("weighted", "folder"), ("auto", "flrdoe")):
        index.ranking = cast(Ranking, ranking)
        nothing = index.search(query)
        assert (nothing.ranking, nothing.results) == ("weighted", [])


@pytest.mark.parametrize("query", ["", "issue", "please open a new issue in my repository"])
def test_a_denied_document_is_not_found(index: SearchIndex, query: str) -> None:
    found = index.search(query, view=view(index, lambda id: id != "github.create_issue")).results

    assert "github.list_issues" in [id for _, id in found]
    assert "github.create_issue" not in [id for _, id in found]


def test_denied_documents_do_not_reduce_the_number_of_results() -> None:
    index = SearchIndex()
    for document in documents(2000):
        index.add(document)
    mine = {document.id for document in documents(2000)[::9]}

    def found(query: str) -> list[str]:
        return [id for _, id in index.search(query, limit=5, view=view(index, mine.__contains__)).results]

    assert len(found("")) == len(found("list")) == len(found("list all the github issues of my project")) == 5
    assert mine.issuperset(found("list all the github issues of my project"))


@pytest.mark.parametrize(("limit", "count"), [(-1, 1), (0, 1), (1, 1), (7, 7), (100, 100), (1000, 100)])
@pytest.mark.parametrize("query", ["", "issue", "create or list an issue of the repository for me"])
def test_the_limit_is_clamped_between_one_and_a_hundred(limit: int, count: int, query: str) -> None:
    index = SearchIndex()
    for number in range(150):
        index.add(Document(f"issue_{number}", description="An issue of a repository."))

    assert len(index.search(query, limit=limit).results) == count
    assert len(index.search(query).results) == 10


def test_up_to_three_terms_are_weighted_and_more_are_hybrid(index: SearchIndex) -> None:
    assert index.search("list github issues").ranking == "weighted"
    assert index.search("list my github issues").ranking == "hybrid"


@pytest.mark.parametrize(
    ("query", "keywords"),
    [
        ("list the issues", "list issues"),
        ("an issue", "issue"),
        ("post, with a message", "post message"),
        ("roll back (the) release", "roll back release"),
    ],
)
def test_stop_words_are_never_terms(index: SearchIndex, query: str, keywords: str) -> None:
    assert index.search(query, ranking="weighted") == index.search(keywords, ranking="weighted")


def test_a_stop_word_does_not_turn_keywords_into_a_phrase(index: SearchIndex) -> None:
    assert index.search("list the issues") == index.search("list issues")
    assert index.search("list the issues").ranking == "weighted"


@pytest.mark.parametrize(
    "query",
    ["how do I list issues", "what's an issue", "issues?", "list my issues", "please post", "the issues of a project"],
)
def test_short_questions_and_phrases_are_hybrid(index: SearchIndex, query: str) -> None:
    assert index.search(query).ranking == "hybrid"


def test_stop_words_count_in_identifiers_and_in_queries_without_other_words() -> None:
    index = SearchIndex()
    for id in ("get_me", "get_issue", "what_is", "of"):
        index.add(Document(id))

    assert [hit.id for hit in index.search("get_me").results][:1] == ["get_me"]
    assert [hit.id for hit in index.search("of").results] == ["of"]
    assert [hit.id for hit in index.search("what is").results][:1] == ["what_is"]


def test_the_ranking_can_be_fixed_and_asked_for(index: SearchIndex) -> None:
    assert index.search("list my github issues", ranking="weighted").ranking == "weighted"
    assert index.search("issue", ranking="hybrid").ranking == "hybrid"
    assert SearchIndex("hybrid").ranking == "hybrid"


def test_a_sentence_without_a_word_of_the_catalog_is_weighted(index: SearchIndex) -> None:
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


def test_a_removed_document_is_not_found(index: SearchIndex) -> None:
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
def test_a_misspelt_id_has_the_right_one_as_its_nearest(index: SearchIndex, asked: str, near: str) -> None:
    assert index.find_nearest(asked)[:1] == [near]


def test_nonsense_has_no_nearest_ids_and_denied_ids_are_left_out(index: SearchIndex) -> None:
    assert index.find_nearest("zzz") == []
    assert index.find_nearest("") == []
    assert index.find_nearest("github.issues", limit=1) == ["github.list_issues"]
    assert index.find_nearest("github.issues", allowed=lambda id: "list" not in id) == ["github.create_issue"]


TASKS = [
    "please find the customer and send them the invoice",
    "Delete old files of the project. Then upload the report to the archive.",
    "create a calendar entry for the meeting with the team",
]


@pytest.mark.parametrize("kind", [None, "capability", "workflow"])
@pytest.mark.parametrize("ranking", ["weighted", "hybrid"])
@pytest.mark.parametrize("meaning", [False, pytest.param(True, marks=NEEDS_EMBEDDINGS)])
def test_scores_are_the_same_with_and_without_hidden_documents(
    ranking: Ranking, meaning: bool, kind: str | None
) -> None:
    with_hidden, without = (SearchIndex(ranking, Embeddings() if meaning else None) for _ in range(2))
    # The first 20 are hidden, so that the slots of the two indexes differ; a third of both are workflows.
    made = [replace(one, kind="workflow") if n % 3 == 0 else one for n, one in enumerate(documents(60))]
    mine = {document.id for document in made[20:]}
    for index, taken in ((with_hidden, made), (without, made[20:])):
        for document in taken:
            index.add(document)
        if index._embeddings is not None:
            index._embeddings.wait()

    seen = view(with_hidden, mine.__contains__)
    for query in TASKS:
        found, expected = with_hidden.search(query, kind, 100, seen), without.search(query, kind, 100)
        # The encoder's last digits depend on what else it encodes at the same time.
        assert {id: score for score, id in found.results} == pytest.approx(
            {id: score for score, id in expected.results}, abs=2e-4 if meaning else 0, rel=0
        )
        assert found.results and ("meaning" in found.signals) == (meaning and ranking == "hybrid")
    for index in (with_hidden, without):
        index.close()


def test_a_view_checks_only_changed_documents_and_rechecks_reused_slots() -> None:
    index = SearchIndex()
    for document in documents(1000):
        index.add(document)
    checked: list[str] = []
    mine = {document.id for document in documents(1000)}
    seen = index.view(lambda id: checked.append(id) or id in mine)  # type: ignore[func-returns-value]
    assert sum(1 for _ in seen.update()) == 5
    assert len(checked) == 1000
    list(seen.update())
    assert len(checked) == 1000

    index.remove(documents(1000)[7].id)
    index.add(Document("vault"))
    list(seen.update())
    assert checked[1000:] == ["vault", "vault"]
    assert index.search("vault", view=seen).results == []
    for number in range(10_000):
        index.add(Document("fleeting", description=str(number)))
    index.remove("fleeting")
    list(seen.update())
    assert index.search("", limit=100, view=seen) == index.search("", limit=100, view=view(index, mine.__contains__))


@pytest.mark.parametrize(
    "query", ["how do I use the {0} {0}_key and send", "Open the {0}, the {0}_key and the door. Send a mail to me now."]
)
def test_hidden_documents_do_not_change_scores(query: str) -> None:
    index = SearchIndex("hybrid")
    index.add(Document("mail.send", description="Send a mail to a person."))
    index.add(Document("vault_key", title="The key of the vault", description="Open the door of the vault."))

    hidden, absent = (
        index.search(query.format(name), view=view(index, lambda id: id == "mail.send")) for name in ("vault", "vaulx")
    )

    assert [hit.id for hit in hidden.results] == ["mail.send"]
    assert hidden == absent
