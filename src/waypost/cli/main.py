"""The `waypost` command: the table of all commands, and what happens when one of them fails."""

from __future__ import annotations

import os
import sys
from argparse import Action, ArgumentError, ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NoReturn

from waypost.cli.command import Command, Group, Output, WrongUsage, format_findings
from waypost.errors import ConfigError, WaypostError
from waypost.suggestions import did_you_mean
from waypost.version import __version__

FAILED, USAGE, INTERRUPTED = 1, 2, 130

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "serve": ("waypost.cli.serve", "serve a hub over HTTP or stdio"),
    "list": ("waypost.cli.list", "list the tools of a hub"),
    "search": ("waypost.cli.search", "find tools, workflows, prompts and documents by what they do"),
    "describe": ("waypost.cli.describe", "show the definition of a tool, prompt, resource or item"),
    "call": ("waypost.cli.call", "call a tool"),
    "read": ("waypost.cli.read", "read a resource"),
    "check": ("waypost.cli.check", "report every problem in a configuration file"),
    "schema": ("waypost.cli.schema", "print the JSON Schema of the configuration file"),
    "graph": ("waypost.cli.graph", "draw a workflow"),
    "simulate": ("waypost.cli.simulate", "walk through a workflow at random, without side effects"),
    "replay": ("waypost.cli.replay", "check the history of an instance against the current workflow"),
    "init": ("waypost.cli.init", "write a small working hub to start from"),
    "install": ("waypost.cli.install", "enter a hub in the configuration of an MCP client"),
    "import": ("waypost.cli.import_servers", "turn the MCP servers of a client into connections of a hub"),
    "doctor": ("waypost.cli.doctor", "check everything that a hub needs on this machine"),
    "completion": ("waypost.cli.completion", "print the completion of commands for a shell"),
    "store": ("waypost.cli.store", "check, migrate, back up or vacuum the store of a hub"),
    "skills-worker": ("waypost.cli.skills_worker", "run the registry of skills and prompts as a worker"),
    "skills": ("waypost.cli.skills", "manage executable skills and documents of a running hub"),
    "prompts": ("waypost.cli.prompts", "list, show or remove the prompts of a running hub"),
    "workers": ("waypost.cli.workers", "list the workers of a running hub"),
    "replicas": ("waypost.cli.replicas", "list the replicas of a running hub"),
    "upstreams": ("waypost.cli.upstreams", "list, approve or restart the MCP servers behind a running hub"),
    "runs": ("waypost.cli.runs", "list, show, cancel or resolve workflow instances of a running hub"),
    "approvals": ("waypost.cli.approvals", "list, approve or reject pending approvals of a running hub"),
    "console": ("waypost.cli.console", "open the console of a running hub in a browser"),
    "keys": ("waypost.cli.keys", "create, list or revoke keys of a running hub"),
    "policy": ("waypost.cli.policy", "list or test the policy rules of a running hub"),
    "breakers": ("waypost.cli.breakers", "list or reset the circuit breakers of a running hub"),
    "audit": ("waypost.cli.audit", "show or verify the audit of a running hub"),
}
"""Every command with its module, which is imported only to run it, and its line in `waypost --help`."""


class Parser(ArgumentParser):
    """A parser that reports wrong usage in one sentence."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with the call, and exit."""
        joint = " See" if message.endswith("?") else "; see"
        sys.stderr.write(f"{self.prog}: {message}{joint} `{self.prog} --help`\n")
        raise SystemExit(USAGE)

    def _check_value(self, action: Action, value: Any) -> None:
        hint = "" if value in (action.choices or (value,)) else did_you_mean(str(value), action.choices or ())
        if hint:
            raise ArgumentError(action, f"there is no {value!r}; {hint}")
        super()._check_value(action, value)

    def _match_arguments_partial(self, actions: Sequence[Action], arg_strings_pattern: str) -> list[int]:
        # Up to Python 3.12, an optional argument counts as left out at the first option, although it may come later.
        counts: list[int] = super()._match_arguments_partial(actions, arg_strings_pattern)
        while counts and not counts[-1] and "O" in arg_strings_pattern:
            counts.pop()
        return counts


def build_parser(*names: str) -> ArgumentParser:
    """The parser of all commands; only those in `names` know their arguments, because that imports their modules."""
    parser = Parser(
        prog="waypost",
        description="One hub through which AI agents reach everything they can do, over MCP.",
        epilog="example: waypost serve waypost.yaml --port 8420",
    )
    parser.add_argument("--version", action="version", version=f"waypost {__version__}")
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        command = parsers.add_parser(name, help=summary)
        if name in names:
            declared: Command | Group = import_module(module).COMMAND
            declared.declare(command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the status to exit with; an error is one sentence on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        output, as_json = _run(words)
    except SystemExit:  # argparse has printed a help text or a usage error
        _flush_stdout()
        raise
    try:
        with suppress(BrokenPipeError):
            output.print(as_json)
        _flush_stdout()
    except OSError as error:  # of the output alone: one of the command itself has another cause
        _discard_stdout()
        sys.stderr.write(f"waypost: The output cannot be written: {error.strerror or error}.\n")
        return FAILED
    return output.status


def _run(words: list[str]) -> tuple[Output, bool]:
    """What a command prints, and whether as JSON."""
    try:
        parser = build_parser(*[word for word in words if not word.startswith("-")][:1])
        args, unknown = parser.parse_known_args(words)
        if unknown:
            args.refuse(f"unrecognized arguments: {' '.join(unknown)}")
        return args.run(args), getattr(args, "json", False)
    except ConfigError as error:
        return Output(error=format_findings(error.findings) or str(error), status=FAILED), False
    except WaypostError as error:
        return Output(error=f"waypost: {error}", status=USAGE if isinstance(error, WrongUsage) else FAILED), False
    except KeyboardInterrupt:
        return Output(status=INTERRUPTED), False


def _flush_stdout() -> None:
    """Write what is buffered; a reader that has gone, as in `waypost list | head -1`, is no failure."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Drop what is buffered: the interpreter flushes once more when it exits, and would report the same error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
