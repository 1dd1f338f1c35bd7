"""The command line: which commands there are, and what happens when one fails."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from waypost.cli import (
    approvals,
    audit,
    check,
    graph,
    init,
    inspecting,
    keys,
    policy,
    prompts,
    runs,
    serve,
    simulate,
    skills,
    skills_worker,
    store,
    upstreams,
    workers,
)
from waypost.cli.arguments import WrongUsage
from waypost.errors import ConfigError, WaypostError
from waypost.suggestions import did_you_mean
from waypost.version import __version__

OK, FAILED, USAGE = 0, 1, 2


class Parser(argparse.ArgumentParser):
    """A parser that answers a wrong call with one sentence."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the call, and end."""
        joint = " See" if message.endswith("?") else "; see"
        sys.stderr.write(f"{self.prog}: {message}{joint} `{self.prog} --help`\n")
        raise SystemExit(USAGE)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        hint = "" if value in (action.choices or (value,)) else did_you_mean(str(value), action.choices or ())
        if hint:
            raise argparse.ArgumentError(action, f"there is no {value!r}; {hint}")
        super()._check_value(action, value)


def parser() -> argparse.ArgumentParser:
    """Everything the command understands."""
    top = Parser(
        prog="waypost",
        description="One hub through which AI agents reach everything they can do, over MCP.",
        epilog="example: waypost serve waypost.yaml --port 8420",
    )
    top.add_argument("--version", action="version", version=f"waypost {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for group in (
        *(serve, inspecting, check, graph, simulate, init, store, skills_worker),
        *(skills, prompts, workers, upstreams, runs, approvals, keys, policy, audit),
    ):
        group.register(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors are one sentence on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    given = parser().parse_args([*words[1:], "--help"] if words[:1] == ["help"] else words)
    try:
        code: int = given.run(given)
    except ConfigError as error:
        for line in map(check.told, error.findings) if error.findings else (str(error),):
            sys.stderr.write(f"{line}\n")
        return FAILED
    except WrongUsage as error:
        sys.stderr.write(f"waypost: {error}\n")
        return USAGE
    except WaypostError as error:
        sys.stderr.write(f"waypost: {error}\n")
        return FAILED
    except KeyboardInterrupt:
        return 130
    return code
