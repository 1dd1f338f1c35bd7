"""Suggestions for an unknown id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.documents.desk import fuzzed
from waypost.documents.uris import did_you_mean, find_similar


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        ("resend/emial", ["resend/email"]),
        ("Resend", ["resend"]),
        ("email", ["resend/email"]),
        ("rsend", ["resend"]),
        ("worker9998/section/leaf9998", ["worker9998/section/leaf-9998"]),
        ("nothing-like-it", []),
        ("", []),
    ],
)
def test_the_nearest_of_many_are_found(wanted: str, near: list[str]) -> None:
    many = [f"worker{n}/section/leaf-{n}" for n in range(10_000)]

    assert find_similar(wanted, ["brain", "resend", "resend/email", *many])[: len(near) or 1] == near


def test_up_to_three_are_named() -> None:
    assert did_you_mean("ab", ["abc", "abd", "abe", "abf"]).count('"') == 6
    assert did_you_mean("abc", ["abd"]) == '; did you mean "abd"?'
    assert did_you_mean("abc", []) == ""


@fuzzed
@given(st.text(), st.lists(st.text()))
def test_any_text_gets_at_most_three_known_ids(wanted: str, known: list[str]) -> None:
    near = find_similar(wanted, known)

    assert len(near) <= 3
    assert set(near) <= set(known)
