"""The benchmark of the search judges rankings as it says, and runs without data of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.retrieval import NoData, Tool, judge, main, measure, rankers, sets
from waypost.search.embeddings import is_installed

with_embeddings = pytest.mark.skipif(not is_installed(), reason="needs waypost[embeddings]")


@pytest.mark.parametrize(
    ("found", "gold", "recall", "ndcg", "mrr"),
    [
        ([1, 2, 3], {1}, 1.0, 1.0, 1.0),
        ([2, 1, 3], {1}, 1.0, 0.631, 0.5),
        ([9, 8, 7, 6, 5, 1], {1}, 0.0, 0.356, 0.167),
        ([1, 9, 2], {1, 2}, 1.0, 0.920, 1.0),
        ([], {1}, 0.0, 0.0, 0.0),
    ],
)
def test_an_answer_is_judged_by_where_the_right_tools_are(
    found: list[int], gold: set[int], recall: float, ndcg: float, mrr: float
) -> None:
    assert judge(found, gold) == pytest.approx((recall, ndcg, mrr), abs=0.001)


def test_hybrid_finds_more_in_our_own_set_than_the_others() -> None:
    own = sets(None)[0]
    recall = {name: measure(ranker, own.questions).recall for name, ranker in rankers(own.tools).items()}

    assert recall["hybrid words"] >= recall["fastmcp bm25"]
    assert recall["hybrid words"] > recall["weighted"]
    assert recall.get("hybrid", 1.0) > recall["fastmcp bm25"]


def test_the_gold_of_our_own_set_names_tools_of_it() -> None:
    for own in sets(None):
        ids = {tool.id for tool in own.tools}

        assert len(ids) == len(own.tools)
        assert all(question.gold and ids.issuperset(question.gold) for question in own.questions)


@pytest.mark.parametrize(
    ("ranker", "first", "among_three"),
    [("auto words", 8, 15), pytest.param("auto", 9, 17, marks=with_embeddings)],
)
def test_twenty_plain_questions_find_tools_of_five_servers(ranker: str, first: int, among_three: int) -> None:
    own = next(one for one in sets(None) if one.name == "servers")
    ask = rankers(own.tools)[ranker]
    places = [[tool in question.gold for tool in ask(question.query)[:3]] for question in own.questions]

    assert len(places) == 20
    assert sum(found[:1] == [True] for found in places) >= first
    assert sum(any(found) for found in places) >= among_three


def test_parameters_are_listed_with_their_descriptions() -> None:
    tool = Tool(1, "add", inputSchema={"properties": {"a": {"description": "The first"}, "b": {}, "c": True}})

    assert tool.parameters() == ["a", "The first", "b", "c"]


def test_a_folder_without_sets_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NoData, match="has no folder with"):
        sets(tmp_path)

    assert main(["--data", str(tmp_path)]) == 1
    assert "WAYPOST_RETRIEVAL_DATA" in capsys.readouterr().err
