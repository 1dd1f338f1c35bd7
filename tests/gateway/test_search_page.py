"""The page about the search is correct."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.docs.pages import DOCS, blocks
from waypost.search.documents import DEFAULT_LIMIT, MAX_RESULTS, WEIGHTS, Document
from waypost.search.index import MAX_KEYWORDS, SearchIndex

PAGE = DOCS / "search.md"
EXAMPLE = msgspec.json.decode(
    next(block.text for block in blocks("json") if block.page == PAGE), type=Document, strict=True
)
SCORES = re.findall(r"^\| `([^`]+)` \| ([\d.]+) \|", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("query", "score"), SCORES)
def test_the_example_scores_as_the_page_says(query: str, score: str) -> None:
    index = SearchIndex("weighted")
    index.add(EXAMPLE)
    found = index.search(query).results

    assert f"{found[0].score if found else 0:.3f}" == score


def test_the_page_has_the_weights_of_the_fields() -> None:
    assert len(SCORES) == 6
    assert tuple(map(int, re.findall(r"\| (\d) \|$", PAGE.read_text(), re.MULTILINE))) == WEIGHTS


def test_the_page_has_the_limits() -> None:
    assert f"(by default {DEFAULT_LIMIT}, from 1 to {MAX_RESULTS})" in " ".join(PAGE.read_text().split())
    assert MAX_KEYWORDS == 3
