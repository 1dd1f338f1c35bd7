"""`waypost workers`: the workers that are connected to a running hub."""

from __future__ import annotations

from typing import Final

from waypost.cli.client import list_command
from waypost.cli.command import Group
from waypost.cli.output import to_second

COMMAND: Final = Group(
    "Show the workers that are connected to a running hub.",
    "waypost workers list",
    {
        "list": list_command(
            "workers",
            "List the workers and their functions.",
            "waypost workers list --json",
            {
                "NAME": "name",
                "NAMESPACE": "namespace",
                "RUNTIME": "runtime",
                "VERSION": "version",
                "SINCE": to_second("connected_at"),
                "FUNCTIONS": lambda worker: ", ".join(worker["functions"]),
            },
        )
    },
)
