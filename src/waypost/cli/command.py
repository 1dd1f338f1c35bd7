"""How a command is declared: what it runs, its description, its example and its arguments.

The file of a command declares it as `COMMAND`: a `Command`, or a `Group` of them. The table in `main.py` names it.
"""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace, _ActionsContainer
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from waypost.cli.output import Output
from waypost.errors import WaypostError

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
