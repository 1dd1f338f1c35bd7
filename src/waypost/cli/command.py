"""How a command is declared, and what it prints: JSON for programs, text and tables for people, progress at a terminal.

The file of a command declares it as `COMMAND`: a `Command`, or a `Group` of them. The table in `main.py` names it.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace, _ActionsContainer
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

import msgspec

from waypost.errors import WaypostError

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
            # One column stays free: at the end of a full line, terminals may go on to the next.
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


MAX_PORT: Final = 65535
MAX_NAME_CHARACTERS: Final = 128
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,127}")


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ArgumentTypeError(f"not a JSON object: {error}") from None


def parse_json(text: str) -> Any:
    """Any JSON value."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ArgumentTypeError(f"{text!r} is not JSON") from None


def parse_count(text: str) -> int:
    """A whole number from 1 on."""
    # `isdigit` alone is also true for characters such as `²`, which `int` refuses.
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def parse_port(text: str) -> int:
    """A port to listen on; 0 takes a free one."""
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_PORT):
        raise ArgumentTypeError(f"{text!r} is not a port; use 0 to {MAX_PORT}")
    return int(text)


def parse_key_id(text: str) -> str:
    """The id of a principal that has a key."""
    if not _ID.fullmatch(text):
        raise ArgumentTypeError(
            f"{text!r} is not an id; use up to 128 letters, digits and . _ @ : + -, a letter or digit first"
        )
    return text


def parse_name(text: str) -> str:
    """The name of a role, permission or scope."""
    if not 0 < len(text) <= MAX_NAME_CHARACTERS:
        raise ArgumentTypeError(
            f"{text[:MAX_NAME_CHARACTERS]!r} is not a name; use 1 to {MAX_NAME_CHARACTERS} characters"
        )
    return text


class WrongUsage(WaypostError):
    """The arguments of a command do not fit together; the program exits with status 2."""


class Argument:
    """An argument or option, with the parameters of `ArgumentParser.add_argument`."""

    def __init__(self, *names: str, **options: Any) -> None:
        self._names = names
        self._options = options

    def add_to(self, parser: _ActionsContainer) -> None:
        """Add the argument to a parser."""
        parser.add_argument(*self._names, **self._options)


class OneOf:
    """Arguments of which a call has exactly one."""

    def __init__(self, *arguments: Argument) -> None:
        self._arguments = arguments

    def add_to(self, parser: _ActionsContainer) -> None:
        """Add the arguments to a parser."""
        group = parser.add_mutually_exclusive_group(required=True)
        for argument in self._arguments:
            argument.add_to(group)


JSON: Final = Argument("--json", action="store_true", help="print JSON")


class Command:
    """A command, or an action of a group."""

    def __init__(
        self, run: Callable[[Namespace], Output], description: str, example: str, *arguments: Argument | OneOf
    ) -> None:
        self.run = run
        self.description = description
        self.example = example
        self.arguments = arguments

    def declare(self, parser: ArgumentParser) -> None:
        """Declare the command to its parser."""
        _describe(self, parser)
        for argument in self.arguments:
            argument.add_to(parser)
        parser.set_defaults(run=self.run, refuse=parser.error)


class Group:
    """A command that has actions, such as `waypost keys list`."""

    def __init__(self, description: str, example: str, actions: Mapping[str, Command | Group]) -> None:
        self.description = description
        self.example = example
        self.actions = actions

    def declare(self, parser: ArgumentParser) -> None:
        """Declare the actions to the parser of the group."""
        _describe(self, parser)
        parsers = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
        for name, action in self.actions.items():
            summary = action.description[0].lower() + action.description[1:].removesuffix(".")
            action.declare(parsers.add_parser(name, help=summary))


def _describe(command: Command | Group, parser: ArgumentParser) -> None:
    parser.description = command.description
    parser.epilog = f"example: {command.example}"
