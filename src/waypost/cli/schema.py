"""`waypost schema`: the JSON Schema of the configuration file."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Final

from waypost.cli.command import Argument, Command, Output


def run(_args: Namespace) -> Output:
    """Print the schema; with `--json` the same."""
    from waypost.config import schema

    found = schema()
    return Output(found, json.dumps(found, indent=2))


COMMAND: Final = Command(
    run,
    "Print the JSON Schema of the configuration file, for editors.",
    "waypost schema > waypost.schema.json",
    Argument("--json", action="store_true", help="accepted as everywhere; the output is always JSON"),
)
