"""Cursors: opaque texts that lead back to a key."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.errors import InvalidParams
from waypost.wire.params import decode_cursor, encode_cursor

KEYS = st.text(st.characters(exclude_categories=["Cs"]))


@given(KEYS)
def test_a_cursor_leads_back_to_its_key(key: str) -> None:
    assert decode_cursor(encode_cursor(key)) == key


@given(KEYS)
def test_a_cursor_can_stand_in_a_url(key: str) -> None:
    assert set(encode_cursor(key)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@given(KEYS, KEYS)
def test_different_keys_have_different_cursors(one: str, other: str) -> None:
    assert (encode_cursor(one) == encode_cursor(other)) == (one == other)


def test_no_cursor_is_the_beginning() -> None:
    assert decode_cursor(None) is None


@pytest.mark.parametrize(
    "cursor",
    ["", "a", "!!!", "ä", "Zm9v", base64.b64encode(b"before:a").decode(), base64.b64encode(b"after:\xff").decode()],
)
def test_an_invalid_cursor_is_refused_in_one_sentence(cursor: str) -> None:
    with pytest.raises(InvalidParams, match="Invalid cursor"):
        decode_cursor(cursor)


def test_a_long_cursor_is_not_repeated_whole() -> None:
    with pytest.raises(InvalidParams) as refused:
        decode_cursor("x" * 100_000)
    assert len(refused.value.message) < 120
