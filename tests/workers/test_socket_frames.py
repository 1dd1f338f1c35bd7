"""Frames: what belongs together, judged by the frames of the library."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from tests.protocol.conftest import asynchronous
from waypost.workers.sockets import BYTES, TEXT, FrameSplitter, ReadQueue, frame_header

if TYPE_CHECKING:
    from waypost.loops import CorkedTransport

MOST = 200_000
SIZES = (0, 1, 125, 126, 127, 65_535, 65_536)

kinds = st.sampled_from([(Opcode.TEXT, True), (Opcode.TEXT, False), (Opcode.CONT, True), (Opcode.BINARY, True)])
frames = st.builds(
    lambda kind, size, letter: Frame(kind[0], bytes((letter,)) * size, kind[1]),
    kinds,
    st.sampled_from(SIZES) | st.integers(0, 300),
    st.integers(0, 255),
)
controls = st.builds(lambda data: Frame(Opcode.PING, data), st.binary(max_size=125))


def sent(frame: Frame) -> bytes:
    """A frame as a client sends it."""
    return frame.serialize(mask=True)


@given(st.lists(frames | controls, max_size=6), st.lists(st.integers(1, 4_000), max_size=40))
def test_frames_are_reassembled_from_any_pieces(sequence: list[Frame], cuts: list[int]) -> None:
    written = [sent(frame) for frame in sequence]
    data, splitter = b"".join(written), FrameSplitter(MOST)
    seen: list[tuple[bool, bytes]] = []
    for cut in cuts:
        seen += splitter.feed(data[:cut])
        data = data[cut:]
    seen += splitter.feed(data)

    expected = [
        (True, bytes(frame.data)) if frame.opcode is Opcode.TEXT and frame.fin else (False, raw)
        for frame, raw in zip(sequence, written, strict=True)
    ]
    assert seen == expected
    assert not splitter.is_lost


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("kind", "opcode"), [(TEXT, Opcode.TEXT), (BYTES, Opcode.BINARY)])
def test_a_frame_header_equals_that_of_the_library(kind: int, opcode: Opcode, size: int) -> None:
    message = b"x" * size

    assert frame_header(kind, size) + message == Frame(opcode, message).serialize(mask=False)


def test_bytes_of_a_large_frame_are_looked_at_once_it_is_there() -> None:
    splitter, raw = FrameSplitter(MOST), sent(Frame(Opcode.TEXT, b"x" * 150_000))
    pieces = [raw[at : at + 100] for at in range(0, len(raw), 100)]

    seen = [found for piece in pieces[:-1] for found in splitter.feed(piece)]
    assert seen == []
    assert list(splitter.feed(pieces[-1])) == [(True, b"x" * 150_000)]


def test_a_large_frame_is_in_memory_twice_while_it_is_unmasked() -> None:
    size = 4_000_000
    splitter, raw = FrameSplitter(2 * size), sent(Frame(Opcode.TEXT, b"x" * size))
    pieces = [raw[at : at + 250_000] for at in range(0, len(raw), 250_000)]
    tracemalloc.start()
    try:
        seen = [len(text) for piece in pieces for _, text in splitter.feed(piece)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen == [size]
    assert peak < 2.5 * size


class Transport:
    """Notes nothing."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@asynchronous
async def test_a_large_message_is_handled_in_a_turn_of_its_own() -> None:
    handled: list[list[int]] = []
    queue = ReadQueue(lambda frames: handled.append([len(text) for _, text in frames]))
    queue.transport = cast("CorkedTransport", Transport())
    queue.put(iter([(True, b"a"), (True, b"x" * 1_000_000)]))
    assert handled == []
    assert not queue.is_empty
    queue.put(iter([(True, b"bb")]))
    await asyncio.sleep(0)
    assert handled == [[1, 1_000_000]]
    await asyncio.sleep(0)
    assert handled == [[1, 1_000_000], [2]]
    assert queue.is_empty


def test_the_last_piece_of_a_large_frame_is_known_as_such() -> None:
    splitter = FrameSplitter(MOST)
    raw, small = sent(Frame(Opcode.TEXT, b"x" * 150_000)), sent(Frame(Opcode.TEXT, b"x" * 100))
    seen = []
    for piece in (raw[:10], raw[10:-5], raw[-5:] + small[:50], small[50:]):
        seen += [splitter.has_large_rest]
        list(splitter.feed(piece))
    assert seen == [False, True, True, False]


@pytest.mark.parametrize(
    "raw",
    [
        Frame(Opcode.TEXT, b"not masked").serialize(mask=False),
        sent(Frame(Opcode.TEXT, b"x" * (MOST + 1))),
        b"\x81\xff" + b"\xff" * 8,
    ],
    ids=["not masked", "too long", "absurd"],
)
def test_from_a_frame_against_the_rules_everything_is_handed_on_as_it_comes(raw: bytes) -> None:
    splitter = FrameSplitter(MOST)
    good = sent(Frame(Opcode.TEXT, b"good"))

    first, *rest = splitter.feed(good + raw)
    assert first == (True, b"good")
    assert not any(is_text for is_text, _ in rest)
    assert b"".join(piece for _, piece in rest) == raw
    assert splitter.is_lost
    assert list(splitter.feed(b"more")) == [(False, b"more")]
