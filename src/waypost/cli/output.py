"""What a command prints: JSON for programs, text and tables for people, and progress at a terminal."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

import msgspec

if TYPE_CHECKING:
    from waypost.config import Finding


Row = Mapping[str, Any]
Columns = Mapping[str, str | Callable[[Any], Any]]
"""The heads of a table, each with a key of the rows or a function that computes the cell."""


class Output(msgspec.Struct, frozen=True):
    """What a command prints, and the status it exits with."""

    data: Any = None
    """What `--json` prints in place of the texts."""
    text: str | bytes = ""
    """For people, on stdout; bytes are written as they are."""
    error: str = ""
    """For people, on stderr."""
    status: int = 0

    def print(self, as_json: bool) -> None:
        """Print the data, or the texts, each with a line break at its end."""
        if as_json:
            _write_line(to_json(self.data), sys.stdout)
        elif isinstance(self.text, bytes):
            sys.stdout.buffer.write(self.text)
        else:
            _write_line(self.text, sys.stdout)
            _write_line(self.error, sys.stderr)


def to_json(data: Any) -> str:
    """JSON for people at a terminal, and on one line for programs."""
    return json.dumps(data, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False)


def format_text(text: str) -> str:
    """A text of a tool; one that is JSON is spread over lines at a terminal."""
    if sys.stdout.isatty() and text[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return to_json(json.loads(text))
    return text


def _write_line(text: str, stream: TextIO) -> None:
    if text:
        stream.write(text if text.endswith("\n") else f"{text}\n")


def format_findings(findings: Iterable[Finding]) -> str:
    """The findings of a configuration file, one a line."""
    return "\n".join(f"warning: {found}" if found.severity == "warning" else str(found) for found in findings)


def format_table(columns: Columns, rows: Iterable[Row]) -> str:
    """A table with a head and a line for each row; lists in cells are joined by commas."""
    table = [list(columns)]
    table += [
        [escape_control(_cell(row.get(key) if isinstance(key, str) else key(row))) for key in columns.values()]
        for row in rows
    ]
    if len(table) == 1:
        return "none"
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) for line in table)
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def to_second(key: str) -> Callable[[Row], str]:
    """A column with the time under a key, without fractions of a second and the zone."""
    return lambda row: str(row.get(key) or "")[:19]


def escape_control(text: str) -> str:
    """Replace control characters by their escapes, so that no text moves the cursor or hides what is printed."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


DELAY_S: Final = 1.0
_INTERVAL_S: Final = 0.1
_BAR_CHARACTERS: Final = 24
_SPINNER: Final = "|/-\\"
_CLEAR: Final = "\r\x1b[2K"


class Progress:
    """Draws one line on stderr while the block runs, and removes it; `measure` says which part is done, 0 to 1."""

    def __init__(self, label: str, measure: Callable[[], float] | None = None, stream: TextIO | None = None) -> None:
        self._label = label
        self._measure = measure
        self._stream = stream or sys.stderr
        self._ended = threading.Event()
        # A thread, because most of what takes long blocks this one, or an event loop of its own.
        self._thread = threading.Thread(target=self._draw_until_ended, daemon=True) if self._stream.isatty() else None

    def __enter__(self) -> Self:
        """Begin; nothing is drawn in the first second."""
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the line."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _draw_until_ended(self) -> None:
        begun = time.monotonic()
        if self._ended.wait(DELAY_S):
            return
        while not self._ended.wait(_INTERVAL_S):
            line = f"{self._label} {self._format(time.monotonic() - begun)}"
            self._stream.write(_CLEAR + line[: shutil.get_terminal_size().columns - 1])
            self._stream.flush()
        self._stream.write(_CLEAR)
        self._stream.flush()

    def _format(self, seconds: float) -> str:
        if self._measure is None:
            return f"{_SPINNER[int(seconds * 8) % 4]} {seconds:.0f} s"
        part = min(max(self._measure(), 0.0), 1.0)
        filled = round(part * _BAR_CHARACTERS)
        return f"[{'#' * filled}{'.' * (_BAR_CHARACTERS - filled)}] {part:.0%}"
