"""Suggestions for unknown names."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.suggestions import (
    MAX_CANDIDATES,
    MAX_COMPARED_CHARACTERS,
    MAX_SCANNED_NAMES,
    did_you_mean,
    find_nearest,
    preselect,
)

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


def test_names_are_compared_without_regard_to_case() -> None:
    assert find_nearest("STRING", WORDS) == ["string"]
    assert find_nearest("mailsend", ["Mail.Send"]) == ["Mail.Send"]


def test_of_equally_similar_names_the_one_in_the_same_case_comes_first() -> None:
    assert find_nearest("hbu", ["Hub", "hub"], 2) == ["hub", "Hub"]
    assert find_nearest("Hbu", ["hub", "Hub"], 2) == ["Hub", "hub"]


def test_equally_similar_names_are_in_order() -> None:
    assert find_nearest("abc", ["abd", "abe", "aba"], limit=3) == ["aba", "abd", "abe"]


def test_only_the_beginning_of_long_names_is_compared() -> None:
    name = "n" * MAX_COMPARED_CHARACTERS
    long = name + "x" * 10_000_000

    assert find_nearest(name + "m" * 10_000_000, [name, "m"]) == [name]
    assert find_nearest(name, [long, "m"]) == [long]


def test_the_number_of_compared_characters_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[int] = []
    candidates: list[int] = []

    class Counting(SequenceMatcher[str]):
        def set_seq1(self, a: Sequence[str]) -> None:
            candidates.append(len(a))
            super().set_seq1(a)

        def set_seq2(self, b: Sequence[str]) -> None:
            wanted.append(len(b))
            super().set_seq2(b)

    monkeypatch.setattr(difflib, "SequenceMatcher", Counting)
    find_nearest("ab" * 2_000_000, [f"{number}{'ba' * 1000}" for number in range(1000)])

    assert wanted == [MAX_COMPARED_CHARACTERS]
    assert candidates == [0, *[MAX_COMPARED_CHARACTERS] * MAX_CANDIDATES]


def test_the_nearest_of_very_many_names_is_found_at_once() -> None:
    many = [f"customer.send_message_{number}" for number in range(10 * MAX_SCANNED_NAMES)]
    other = [f"{number}" for number in range(10 * MAX_SCANNED_NAMES)]
    began = time.thread_time()

    assert find_nearest("customer.send_mesage_17", many)
    assert find_nearest("custoner.send", [*other, "customer.send"]) == ["customer.send"]
    assert time.thread_time() - began < 5


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


def test_a_shared_prefix_does_not_make_names_more_similar() -> None:
    assert find_nearest("docs://gone", ["docs://logo", "docs://readme"]) == []
    assert find_nearest("docs://redme", ["docs://logo", "docs://readme"]) == ["docs://readme"]
    assert find_nearest("skil:hello", ["skill:hello"]) == ["skill:hello"]
