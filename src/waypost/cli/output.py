"""What a command prints: JSON for programs, text and tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

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
            _write_line(json.dumps(self.data, indent=2, ensure_ascii=False), sys.stdout)
        elif isinstance(self.text, bytes):
            sys.stdout.buffer.write(self.text)
        else:
            _write_line(self.text, sys.stdout)
            _write_line(self.error, sys.stderr)


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
