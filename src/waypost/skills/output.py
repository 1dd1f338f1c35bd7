"""What a skill prints: into the log, line by line, up to a limit a call."""

from __future__ import annotations

import logging
import os
from typing import Final

from waypost.loops import running_loop

_log: Final = logging.getLogger(__name__)
_CHUNK: Final = 64 * 1024


class Output:
    """The hub's end of the pipe that a skill's process has as stdout and stderr."""

    def __init__(self, name: str, number: int, most: int) -> None:
        self._name = name
        self._number = number
        self._most = most
        self._left = most
        self._line = b""
        os.set_blocking(number, False)
        self._loop = running_loop()
        self._loop.add_reader(number, self._read)

    def renew(self) -> None:
        """A new call may print as much as the one before."""
        self._left = self._most

    def close(self) -> None:
        """Take what is left, and no more."""
        self._loop.remove_reader(self._number)
        while self._take():
            pass
        if self._line:
            self._write(self._line)
        os.close(self._number)

    def _read(self) -> None:
        if not self._take():
            self._loop.remove_reader(self._number)

    def _take(self) -> bool:
        try:
            data = os.read(self._number, _CHUNK)
        except BlockingIOError:
            return False
        if data and self._left > 0:
            kept = data[: self._left]
            *lines, self._line = (self._line + kept).split(b"\n")
            for line in lines:
                self._write(line)
        if 0 < self._left <= len(data):
            _log.warning("skill %s prints more than %d bytes; the rest is dropped", self._name, self._most)
        self._left -= len(data)
        return bool(data)

    def _write(self, line: bytes) -> None:
        _log.info("skill %s: %s", self._name, line.decode(errors="replace").rstrip("\r"))
