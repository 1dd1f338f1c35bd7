"""The commands that pages name exist, with the arguments that the pages give them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import waypost.console
from waypost.cli.completion import walk
from waypost.cli.main import COMMANDS, build_parser

FOLDER = Path(waypost.console.__file__).parent
_COMMAND = re.compile(r"(?:<code>|`)(waypost [a-z][^<`]*)(?:</code>|`)")


def find_commands() -> Iterator[tuple[str, str]]:
    """Each command with the file that names it; a name stands for what a page fills in."""
    for file in sorted([*FOLDER.rglob("*.html"), *FOLDER.rglob("*.py")]):
        for command in _COMMAND.findall(file.read_text()):
            yield file.name, re.sub(r"{{.*?}}", "name", command)


@pytest.mark.parametrize(("file", "command"), [*dict.fromkeys(find_commands())])
def test_a_command_that_a_page_names_can_be_run(file: str, command: str) -> None:
    words = shlex.split(command)[1:]
    parser = build_parser(words[0])
    if " ".join(words) in dict(walk(parser)):
        return  # it is only named, as in "`waypost check` finds nothing wrong"
    _, unknown = parser.parse_known_args(words)
    assert unknown == []


def test_commands_are_found() -> None:
    named = {command.split()[1] for _, command in find_commands()}
    assert {"graph", "upstreams", "console"} <= named <= set(COMMANDS)
