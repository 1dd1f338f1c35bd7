"""`waypost check` and `waypost schema`"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from waypost.cli.targets import DEFAULT


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
    schema.set_defaults(run=run_schema)


def run_check(given: argparse.Namespace) -> int:
    """Print the findings; errors fail."""
    from waypost.building import check

    findings = check(Path(given.config))
    if given.json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(findings), indent=2) + "\n")
    else:
        for found in findings:
            sys.stdout.write(f"{found.severity}: {found}\n" if found.severity == "warning" else f"{found}\n")
        if not findings:
            sys.stdout.write(f"{given.config}: nothing wrong\n")
    return 1 if any(found.severity == "error" for found in findings) else 0


def run_schema(_given: argparse.Namespace) -> int:
    """Print the schema."""
    from waypost.config import schema

    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
    return 0
