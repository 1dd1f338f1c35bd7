"""`waypost check` and `waypost schema`"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from waypost.cli.arguments import WrongUsage
from waypost.cli.target import DEFAULT

if TYPE_CHECKING:
    from waypost.config import Finding


def register(commands: Any) -> None:
    """Add the commands."""
    check = commands.add_parser(
        "check",
        help="say everything that is wrong with a configuration file",
        description="Say everything that is wrong with a configuration file, one line a finding.",
        epilog="example: waypost check waypost.yaml --json",
    )
    check.add_argument("config", nargs="?", default=DEFAULT, metavar="CONFIG", help=f"the file (default: {DEFAULT})")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.set_defaults(run=run_check)
    schema = commands.add_parser(
        "schema",
        help="print the JSON Schema of the configuration file",
        description="Print the JSON Schema of the configuration file, for editors.",
        epilog="example: waypost schema > waypost.schema.json",
    )
    schema.add_argument("--json", action="store_true", help="accepted like everywhere; it is JSON anyway")
    schema.set_defaults(run=run_schema)


def run_check(given: argparse.Namespace) -> int:
    """Print the findings; errors fail."""
    from waypost.building import check

    if given.config.rpartition(":")[0].endswith(".py") or given.config.endswith(".py"):
        raise WrongUsage(f"{given.config} is Python; `waypost check` is for configuration files such as {DEFAULT}.")
    findings = check(Path(given.config))
    if given.json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(findings), indent=2) + "\n")
    else:
        for found in findings:
            sys.stdout.write(f"{told(found)}\n")
        if not findings:
            sys.stdout.write(f"{given.config}: nothing wrong\n")
    return 1 if any(found.severity == "error" for found in findings) else 0


def told(found: Finding) -> str:
    """A finding as a line."""
    return f"{found.severity}: {found}" if found.severity == "warning" else str(found)


def run_schema(_given: argparse.Namespace) -> int:
    """Print the schema."""
    from waypost.config import schema

    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
    return 0
