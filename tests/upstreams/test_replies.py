"""Replies: answers of a server as a dict and as attributes in both spellings."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.upstreams.jsonrpc import Reply

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)

RESULT = Reply.of(
    {
        "content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "AA=="},
            {"type": "text", "text": "two"},
        ],
        "structuredContent": {"totalCount": 2, "rows": [{"firstName": "Ada"}]},
        "isError": True,
        "_meta": {"category": "Maths"},
        "nextCursor": "more",
    }
)


@pytest.mark.parametrize("spelling", ["structuredContent", "structured_content", "structured"])
def test_a_member_is_an_attribute_in_either_spelling(spelling: str) -> None:
    assert getattr(RESULT, spelling) == RESULT["structuredContent"]


@pytest.mark.parametrize("spelling", ["_meta", "meta"])
def test_the_meta_member_needs_no_underscore(spelling: str) -> None:
    assert getattr(RESULT, spelling) == {"category": "Maths"}


def test_nested_objects_are_replies_also_in_lists() -> None:
    assert RESULT.structured.total_count == 2
    assert RESULT.structured.rows[0].first_name == "Ada"
    assert RESULT.content[1].type == "image"


def test_a_missing_member_is_none_as_an_attribute_and_a_key_error_as_a_key() -> None:
    assert RESULT.ttl_ms is None
    with pytest.raises(KeyError):
        RESULT["ttlMs"]


@pytest.mark.parametrize(
    ("value", "expected"), [({"isError": True}, True), ({"isError": False}, False), ({"content": []}, False)]
)
def test_is_error_is_read_from_the_answer(value: dict[str, Any], expected: bool) -> None:
    reply = Reply.of(value)

    assert reply.is_error is expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"type": "text", "text": "alone"}, "alone"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"contents": [{"uri": "docs://x", "text": "read"}, {"uri": "docs://y", "blob": "AA=="}]}, "read"),
        ({"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]}, "hi"),
        ({"content": []}, ""),
        ({}, ""),
    ],
)
def test_the_text_of_an_answer_joins_its_blocks(value: dict[str, Any], text: str) -> None:
    assert Reply.of(value).text == text


def test_special_methods_are_not_members() -> None:
    assert not hasattr(RESULT, "__deepcopy__")
    assert copy.deepcopy(RESULT) == RESULT


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_a_reply_equals_its_source(value: dict[str, Any]) -> None:
    assert Reply.of(value) == value


@given(st.dictionaries(st.text(min_size=1), JSON, max_size=5), st.text(min_size=1))
def test_no_attribute_breaks_a_reply(value: dict[str, Any], name: str) -> None:
    reply = Reply.of(value)

    if not name.startswith("__") and not hasattr(dict, name) and name not in ("is_error", "text"):
        assert getattr(reply, name) == value.get(name) or name not in value
