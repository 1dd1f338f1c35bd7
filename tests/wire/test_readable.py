from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.wire.content import Text
from waypost.wire.messages import encode_lossy, replace_surrogates


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain", "plain"),
        ("\ufeffmark", "\ufeffmark"),
        ("\udc80", "\ufffd"),
        ("a\ud800b", "a\ufffdb"),
        ("\ud83d\ude00", "\U0001f600"),
        ("end\ud800", "end\ufffd"),
    ],
)
def test_halves_of_pairs_that_stand_alone_are_replaced(text: str, shown: str) -> None:
    assert replace_surrogates(text) == shown


@given(st.text())
def test_text_that_can_be_sent_is_left_alone(text: str) -> None:
    assert replace_surrogates(text) == text


def test_data_is_looked_through() -> None:
    assert replace_surrogates({"\ud800": ["\udc80", 1, None]}) == {"\ufffd": ["\ufffd", 1, None]}


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (Text("x"), {"type": "text", "text": "x"}),
        ([Text("\udc80")], [{"type": "text", "text": "\ufffd"}]),
        ({"a": b"\x00"}, {"a": "AA=="}),
    ],
)
def test_data_with_any_text_is_encoded(value: Any, sent: Any) -> None:
    assert msgspec.json.decode(encode_lossy(value)) == sent
