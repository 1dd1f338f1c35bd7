"""Server-sent events with any line ends, split at any place."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from waypost.outbound.http1 import EventStream, TooLarge

STREAM = (
    b"\xef\xbb\xbf: hello\nid: 1\nretry: 5\ndata:\n\nevent: message\ndata:one\n\n\n"
    b"data: two\ndata:  and a half\n\n:\ndata: three\n\ndata: never ended\n"
)
FOUND = [b"one", b"two\n and a half", b"three"]


def found(pieces: list[bytes]) -> list[bytes]:
    seen: list[bytes] = []
    events = EventStream(seen.append)
    for piece in pieces:
        events.feed(piece)
    return seen


@given(st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, 200)))
def test_events_can_be_split_into_any_pieces(line_end: bytes, places: list[int]) -> None:
    data = STREAM.replace(b"\n", line_end)
    edges = [0, *sorted({place % len(data) for place in places}), len(data)]

    assert found([data[start:end] for start, end in itertools.pairwise(edges)]) == FOUND


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_events_are_found_byte_by_byte(line_end: bytes) -> None:
    data = STREAM.replace(b"\n", line_end)

    assert found([bytes([byte]) for byte in data]) == FOUND


@example([b"data:x", b"\r", b"\n", b"\n"])
@given(st.lists(st.sampled_from([b"data:x", b"\r", b"\n", b"\r\n", b""])))
def test_line_ends_of_all_kinds_give_the_same_events_in_one_piece_or_in_many(pieces: list[bytes]) -> None:
    assert found(pieces) == found([b"".join(pieces)])


@given(st.lists(st.binary(max_size=30)))
def test_any_bytes_give_the_same_events_in_one_piece_or_in_many(pieces: list[bytes]) -> None:
    assert found(pieces) == found([b"".join(pieces)])


@pytest.mark.parametrize(
    "pieces",
    [[b"data: " + b"x" * 200], [b"data: 1\n"] * 100, [b"x"] * 200],
    ids=["one line", "many lines", "a line that never ends"],
)
def test_an_event_over_the_limit_is_refused(pieces: list[bytes]) -> None:
    events = EventStream(lambda _: None, max_bytes=100)

    with pytest.raises(TooLarge, match="more than 100 bytes"):
        for piece in pieces:
            events.feed(piece)


def test_a_stream_of_small_events_has_no_limit() -> None:
    seen: list[bytes] = []
    events = EventStream(seen.append, max_bytes=100)

    for _ in range(1000):
        events.feed(b": still here\n")
        events.feed(b"data: something\n\n")

    assert len(seen) == 1000
