"""Responses in one piece."""

from __future__ import annotations

import pytest

from waypost.transports.http.fast_uvicorn import _head


def test_the_head_of_a_response_ends_where_the_length_stands() -> None:
    assert _head(200, ((b"Content-Type", b"a/b"),)) == b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: "


@pytest.mark.parametrize("header", [(b"x", b"a\r\nb: c"), (b"a b", b"x")])
def test_a_header_that_would_be_two_is_not_sent_that_way(header: tuple[bytes, bytes]) -> None:
    assert _head(200, (header,)) is None
