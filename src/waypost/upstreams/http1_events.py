"""Server-sent events, read as their bytes come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from waypost.upstreams.http1_connection import MOST_BODY, TooLarge

_BOM: Final = b"\xef\xbb\xbf"


class Events:
    """Hands on the data of each event; the time it takes is linear in the bytes, however they are cut."""

    def __init__(self, receive: Callable[[bytes], None], most: int = MOST_BODY) -> None:
        self._receive = receive
        self._most = most
        self._line = bytearray()
        self._data: list[bytes] = []
        self._kept = 0
        self._is_first = True
        self._is_after_return = False

    def feed(self, piece: bytes) -> None:
        """Take the next bytes; an event that is too large is refused."""
        if self._is_after_return or b"\r" in piece:
            piece = self._with_one_line_end(piece)
        *lines, rest = piece.split(b"\n")
        for line in lines:
            if self._line:
                self._line += line
                line = bytes(self._line)
                self._line.clear()
            self._take(line)
        self._line += rest
        if self._kept + len(self._line) > self._most:
            raise TooLarge(self._most)

    def _with_one_line_end(self, piece: bytes) -> bytes:
        """The bytes with line feeds only; the two halves of one line end may come in different pieces."""
        if self._is_after_return:
            piece = piece.removeprefix(b"\n")
        self._is_after_return = piece.endswith(b"\r") or (self._is_after_return and not piece)
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take(self, line: bytes) -> None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._kept += len(line)
        elif not line and self._data:
            body = b"\n".join(self._data)
            self._data.clear()
            self._kept = 0
            if body:
                self._receive(body)
