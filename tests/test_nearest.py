"""Names that somebody who wrote another one may have meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.nearest import LONGEST, did_you_mean, likely, nearest

WORDS = ["string", "strings", "object", "boolean"]


@pytest.mark.parametrize(
    ("wanted", "most", "near"),
    [
        ("strng", 1, ["string"]),
        ("strng", 3, ["string", "strings"]),
        ("object", 3, ["object"]),
        ("zzz", 3, []),
        ("", 3, []),
    ],
)
def test_those_most_alike_come_first_and_nothing_else(wanted: str, most: int, near: list[str]) -> None:
    assert nearest(wanted, WORDS, most) == near


def test_how_much_alike_they_must_be_can_be_said() -> None:
    assert nearest("obj", WORDS, alike=0.7) == []
    assert nearest("obj", WORDS, alike=0.5) == ["object"]


def test_only_the_beginning_of_a_long_text_is_compared() -> None:
    name = "n" * LONGEST

    assert nearest(name + "m" * 10_000_000, [name, "m"]) == [name]


@given(st.text(), st.lists(st.text()))
def test_any_text_gets_at_most_so_many_of_the_known(wanted: str, known: list[str]) -> None:
    near = nearest(wanted, known, 2)

    assert len(near) <= 2
    assert set(near) <= set(known)


def test_the_question_names_the_nearest_in_the_quotes_of_whoever_asks() -> None:
    assert did_you_mean("strng", WORDS) == "did you mean 'string'?"
    assert did_you_mean("strng", WORDS, ", ") == ", did you mean 'string'?"
    assert did_you_mean("strng", WORDS, "; ", quoted=lambda name: f"`{name}`") == "; did you mean `string`?"


def test_nothing_is_asked_where_nothing_is_near() -> None:
    assert did_you_mean("zzz", WORDS, ", ") == ""
    assert did_you_mean("strng", []) == ""


def test_of_very_many_only_those_with_most_in_common_are_compared() -> None:
    many = [f"worker-{number}" for number in range(10_000)]
    found = likely("wroker-9998", many)

    assert len(found) == 100
    assert "worker-9998" in found
    assert likely("x", ["a", "b"]) == ["a", "b"]
