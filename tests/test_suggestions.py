"""Suggestions for unknown names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.suggestions import MAX_CANDIDATES, MAX_COMPARED_CHARACTERS, did_you_mean, find_nearest, preselect

WORDS = ["string", "strings", "object", "boolean"]


@pytest.mark.parametrize(
    ("wanted", "limit", "near"),
    [
        ("strng", 1, ["string"]),
        ("strng", 3, ["string", "strings"]),
        ("object", 3, ["object"]),
        ("zzz", 3, []),
        ("", 3, []),
    ],
)
def test_only_similar_names_are_found_and_the_best_comes_first(wanted: str, limit: int, near: list[str]) -> None:
    assert find_nearest(wanted, WORDS, limit) == near


def test_the_cutoff_says_how_similar_a_name_must_be() -> None:
    assert find_nearest("obj", WORDS, cutoff=0.7) == []
    assert find_nearest("obj", WORDS, cutoff=0.5) == ["object"]


def test_only_the_beginning_of_a_long_text_is_compared() -> None:
    name = "n" * MAX_COMPARED_CHARACTERS

    assert find_nearest(name + "m" * 10_000_000, [name, "m"]) == [name]


@given(st.text(), st.lists(st.text()))
def test_any_text_finds_at_most_the_limit_and_only_known_names(wanted: str, known: list[str]) -> None:
    near = find_nearest(wanted, known, 2)

    assert len(near) <= 2
    assert set(near) <= set(known)


def test_the_question_names_the_nearest_in_the_given_quotes() -> None:
    assert did_you_mean("strng", WORDS) == "did you mean 'string'?"
    assert did_you_mean("strng", WORDS, ", ") == ", did you mean 'string'?"
    assert did_you_mean("strng", WORDS, "; ", quote=lambda name: f"`{name}`") == "; did you mean `string`?"


def test_there_is_no_question_when_no_name_is_near() -> None:
    assert did_you_mean("zzz", WORDS, ", ") == ""
    assert did_you_mean("strng", []) == ""


def test_of_many_names_those_that_share_most_pairs_are_preselected() -> None:
    many = [f"worker-{number}" for number in range(10_000)]
    found = preselect("wroker-9998", many)

    assert len(found) == MAX_CANDIDATES
    assert "worker-9998" in found
    assert preselect("x", ["a", "b"]) == ["a", "b"]
