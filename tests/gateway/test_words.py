"""Words are split and stemmed so that a sentence matches an identifier."""

from __future__ import annotations

import pytest

from waypost.search.words import split_runs, split_stems, split_words, stem_word


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("List GitHub-issues!", ["list", "github", "issues"]),
        ("deploy_pipeline.v2", ["deploy", "pipeline", "v2"]),
        ("Straße, 東京 x1", ["straße", "東京", "x1"]),
        ("_ . -", []),
        ("x" * 300 + " y", ["x" * 256, "y"]),
    ],
)
def test_terms_are_the_lower_cased_alphanumeric_runs(text: str, found: list[str]) -> None:
    assert split_runs(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("github.list_issues", ["github", "list", "issues"]),
        ("getHTTPResponseCode", ["get", "http", "response", "code"]),
        ("PostMessage2", ["post", "message", "2"]),
        ("prüfeStraße", ["pr", "ü", "fe", "stra", "ß", "e"]),
    ],
)
def test_identifiers_are_split(text: str, found: list[str]) -> None:
    assert split_words(text) == found


@pytest.mark.parametrize(
    "family",
    [
        ("issue", "issues"),
        ("create", "creates", "created", "creating", "creation", "creator"),
        ("deploy", "deploys", "deployed", "deployment"),
        ("query", "queries"),
        ("plan", "planned", "planning"),
        ("translate", "translation", "translator"),
        ("box", "boxes"),
    ],
)
def test_forms_of_a_word_have_one_stem(family: tuple[str, ...]) -> None:
    assert len({stem_word(word) for word in family}) == 1


@pytest.mark.parametrize(
    ("one", "other"), [("bus", "bu"), ("sing", "s"), ("red", "r"), ("status", "statu"), ("5", "6")]
)
def test_short_and_unrelated_words_have_different_stems(one: str, other: str) -> None:
    assert stem_word(one) != stem_word(other)


def test_stop_words_are_left_out() -> None:
    assert split_stems("Please list all of the open issues for me") == [
        stem_word("list"),
        stem_word("open"),
        stem_word("issue"),
    ]
