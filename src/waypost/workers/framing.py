"""Frames of a WebSocket: which bytes belong together, and the plain ones taken apart at once.

Nearly all that workers send are whole messages of text. Those are unmasked here; everything else is handed to the
library as it came, frame by frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask

TEXT: Final = 0x81
BYTES: Final = 0x82
"""The first byte of a whole message of its kind."""
_MASKED: Final = 0x80
_SHORT: Final = 126
_MEDIUM: Final = 65_536
_KEY: Final = 4
_PIECE: Final = 128
"""Bytes that are handed on in one go where nobody knows what they are."""


def head(kind: int, length: int) -> bytes:
    """What stands before a whole message of so many bytes."""
    if length < _SHORT:
        return bytes((kind, length))
    if length < _MEDIUM:
        return bytes((kind, _SHORT)) + length.to_bytes(2, "big")
    return bytes((kind, _SHORT + 1)) + length.to_bytes(8, "big")


class Splitter:
    """Puts the bytes of a connection together to frames."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()
        self._needed = 0
        """How many bytes there must be before another look is worth it."""
        self.is_lost = False
        """Whether a frame is against the rules; from there on everything is handed on as it comes."""

    def feed(self, data: bytes) -> Iterator[tuple[bool, bytes]]:
        """Every frame that is whole by now: a message of text, or, with false, a frame as it came."""
        if self._rest or self.is_lost:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest.clear()
        at = 0
        while at < len(data) and not self.is_lost and (found := self._next(data, at)) is not None:
            start, end = found
            if data[at] == TEXT:
                yield True, apply_mask(data[start:end], data[start - _KEY : start])
            else:
                yield False, data[at:end]
            at = end
        if self.is_lost:
            self._needed = 0
            yield from ((False, data[start : start + _PIECE]) for start in range(at, len(data), _PIECE))
        elif at < len(data):
            self._rest += data[at:]
            self._needed -= at

    def _next(self, data: bytes, at: int) -> tuple[int, int] | None:
        """Where the payload of the frame at a place begins and ends; nothing until all of it is there."""
        self._needed = at + 2
        if len(data) < self._needed:
            return None
        second = data[at + 1]
        length, start = second & 0x7F, at + 2
        if length >= _SHORT:
            size = 2 if length == _SHORT else 8
            self._needed = start + size
            if len(data) < self._needed:
                return None
            length, start = int.from_bytes(data[start : start + size], "big"), start + size
        if not second & _MASKED or length > self._most:
            self.is_lost = True
            return None
        end = start + _KEY + length
        self._needed = end
        return (start + _KEY, end) if len(data) >= end else None
