"""`waypost workers`: the workers that are connected to a running hub."""

from __future__ import annotations

import argparse
from typing import Any

from waypost.cli.client import Remote, add_action, group, print_json, print_table


def register(commands: Any) -> None:
    """Add the command."""
    actions = group(
        commands,
        "workers",
        "list the workers of a running hub",
        "Look at the workers that are connected to a running hub.",
        "waypost workers list",
    )
    add_action(actions, "list", show_all, "list the workers and their functions", "waypost workers list --json")


def show_all(hub: Remote, given: argparse.Namespace) -> int:
    """Print all of them."""
    workers = hub.get("workers")["workers"]
    if given.json:
        print_json(workers)
        return 0
    rows = [
        (
            one["name"],
            one["namespace"],
            str(one.get("runtime") or ""),
            str(one.get("version") or ""),
            one["connected_at"][:19],
            ", ".join(one["functions"]),
        )
        for one in workers
    ]
    print_table(("NAME", "NAMESPACE", "RUNTIME", "VERSION", "SINCE", "FUNCTIONS"), rows)
    return 0
