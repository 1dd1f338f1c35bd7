"""`waypost replicas`: the hubs that share the store of a running hub."""

from __future__ import annotations

from typing import Final

from waypost.cli.client import list_command
from waypost.cli.command import to_second

COMMAND: Final = list_command(
    "replicas",
    "List the replicas that share the store of a running hub; those that differ from most are marked.",
    "waypost replicas --json",
    {
        "ID": "id",
        "ADDRESS": "address",
        "VERSION": "version",
        "CONFIGURATION": "configDigest",
        "STARTED": to_second("startedAt"),
        "LAST SEEN": to_second("lastSeenAt"),
        "STATUS": "status",
        "DIFFERS": lambda row: "yes" if row.get("differs") else "",
    },
)
