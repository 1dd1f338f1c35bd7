"""`waypost check`: every problem in a configuration file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Final

from waypost.cli.command import JSON, Argument, Command, Output, WrongUsage, format_findings
from waypost.cli.target import DEFAULT_FILE


def run(args: Namespace) -> Output:
    """Print the findings; an error among them fails the command, a warning does not."""
    from waypost.runtime.assembly import check

    if args.config.endswith(".py") or args.config.rpartition(":")[0].endswith(".py"):
        raise WrongUsage(f"{args.config} is Python; `waypost check` is for configuration files such as {DEFAULT_FILE}.")
    findings = check(Path(args.config))
    return Output(
        [found.to_row() for found in findings],
        format_findings(findings) or f"{args.config}: nothing wrong",
        status=1 if any(found.severity == "error" for found in findings) else 0,
    )


COMMAND: Final = Command(
    run,
    "Report every problem in a configuration file, one line a finding.",
    "waypost check waypost.yaml --json",
    Argument("config", nargs="?", default=DEFAULT_FILE, metavar="CONFIG", help=f"the file (default: {DEFAULT_FILE})"),
    JSON,
)
